#include "cohort/train/loop/shards.h"

#include <torch/torch.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "cohort/nn/tensor.h"

namespace cohort::train {
namespace {

constexpr std::uint32_t kTransferTag = 0;

// Numbers for names, the same on all ranks: every parameter with every state that the rule has of any.
struct Keys {
  explicit Keys(TrainLoop& loop) : parameters(loop.model().named_parameters()), states(loop.engine().rule()->state_names()) {
    states.insert(states.begin(), "");
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const auto& [name, t] = parameters[i];
      index_of[name] = i;
      const Dtype type = nn::dtype_of(t.scalar_type());
      specs.push_back({{"", t.sizes().vec(), type}});
      std::ranges::move(loop.engine().rule()->state({name, t.sizes().vec(), type}), std::back_inserter(specs.back()));
    }
  }
  std::size_t size() const { return parameters.size() * states.size(); }
  std::int64_t of(const Shard& s) const {
    const auto state = std::ranges::find(states, s.state) - states.begin();
    return static_cast<std::int64_t>(index_of.at(s.parameter) * states.size()) + state;
  }
  const std::string& parameter(std::size_t key) const { return parameters[key / states.size()].first; }
  const std::string& state(std::size_t key) const { return states[key % states.size()]; }
  // None: this parameter has no such state.
  const optim::StateSpec* spec(std::size_t key) const {
    const auto& all = specs[key / states.size()];
    const auto found = std::ranges::find(all, state(key), &optim::StateSpec::name);
    return found == all.end() ? nullptr : &*found;
  }

  nn::NamedTensors parameters;
  std::vector<std::string> states;
  std::map<std::string, std::size_t> index_of;
  std::vector<std::vector<optim::StateSpec>> specs;  // by parameter: itself, then its states
};

std::int64_t count_of(const optim::StateSpec& spec) { return static_cast<std::int64_t>(optim::count_of(spec.shape)); }

at::Tensor empty_run(const optim::StateSpec& spec, std::int64_t count) {
  return at::empty({count}, at::TensorOptions().dtype(nn::scalar_type_of(spec.dtype)));
}

std::vector<std::int64_t> list_pieces(const Shards& mine, const Keys& keys) {
  std::vector<std::int64_t> list;
  for (const Shard& s : mine) list.insert(list.end(), {keys.of(s), s.first, s.values.numel(), static_cast<std::int64_t>(s.source)});
  return list;
}

// The pieces of all ranks.
std::vector<ShardPiece> gather_pieces(collective::Communicator& comm, const Shards& mine, const Keys& keys) {
  std::vector<std::int64_t> list = list_pieces(mine, keys);
  const auto ranks = static_cast<std::size_t>(comm.size());
  std::int64_t size = static_cast<std::int64_t>(list.size());
  std::vector<std::int64_t> sizes(ranks);
  comm.all_gather(collective::piece(std::span(&size, 1)), collective::piece(std::span(sizes)), {.name = "number of pieces"});
  const std::vector<std::size_t> counts(sizes.begin(), sizes.end());
  std::vector<std::int64_t> all(std::accumulate(counts.begin(), counts.end(), std::size_t{0}));
  if (!all.empty())
    comm.all_gather(collective::piece(std::span(list)), collective::piece(std::span(all)), {.name = "list of pieces"}, counts);
  std::vector<ShardPiece> pieces;
  for (std::size_t r = 0, at = 0; r < ranks; at += counts[r++])
    std::ranges::copy(read_pieces(std::span(all).subspan(at, counts[r]), static_cast<int>(r)), std::back_inserter(pieces));
  return pieces;
}

// Pieces of two layouts with the same elements have the same values.
class Values {
 public:
  Values(const Shards& mine, const Keys& keys) {
    for (const Shard& s : mine) at_.emplace(std::tuple(keys.of(s), s.first, s.values.numel()), s.values);
  }
  const at::Tensor& of(const ShardPiece& piece) const { return at_.at(std::tuple(piece.key, piece.first, piece.count)); }

 private:
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, at::Tensor> at_;
};

}  // namespace

Shards collect_shards(const engine::Engine& engine) {
  Shards all;
  const auto collect = [&](const StateItem& item) {
    if (item.share != Share::cut) return;
    all.push_back({std::string(item.parameter), std::string(item.state), static_cast<std::int64_t>(item.run.first),
                   engine::borrowed(item.values).clone(), item.buddy ? ShardSource::buddy : ShardSource::owner});
  };
  engine.visit(collect);
  engine.visit_buddy(collect);
  return all;
}

void transfer_shards(collective::Communicator& comm, Shards& mine, TrainLoop& loop, std::span<const std::int32_t> leaving) {
  const Keys keys(loop);
  const Rank me = comm.rank();
  Shards owned;
  std::ranges::copy_if(mine, std::back_inserter(owned), [](const Shard& s) { return s.source == ShardSource::owner; });
  const Values values(owned, keys);
  for (Rank from{0}; from.value < comm.size(); ++from.value) {
    const Rank to = successor_of(from, leaving);
    if (leaving[static_cast<std::size_t>(from.value)] == 0 || !to || (me != from && me != to)) continue;
    std::vector<std::int64_t> list = me == from ? list_pieces(owned, keys) : std::vector<std::int64_t>{};
    std::int64_t size = static_cast<std::int64_t>(list.size());
    const auto pass = [&](collective::Piece data, const char* what) {
      if (data.count == 0) return;
      me == from ? comm.send(data, to, kTransferTag, {.name = what}) : comm.recv(data, from, kTransferTag, {.name = what});
    };
    pass(collective::piece(std::span(&size, 1)), "number of transferred pieces");
    list.resize(static_cast<std::size_t>(size));
    pass(collective::piece(std::span(list)), "list of transferred pieces");
    for (const ShardPiece& piece : read_pieces(list, from.value)) {
      const auto key = static_cast<std::size_t>(piece.key);
      const auto* spec = keys.spec(key);
      if (spec == nullptr) throw_failure(Kind::bug, "a piece of {}, which has no {}", keys.parameter(key), keys.state(key));
      const at::Tensor part = me == from ? values.of(piece) : empty_run(*spec, piece.count);
      pass(nn::piece(part), "transferred piece");
      if (me == to) mine.push_back({keys.parameter(key), keys.state(key), piece.first, part, ShardSource::transferred});
    }
  }
}

bool has_all(const Shards& mine, TrainLoop& loop) {
  const Keys keys(loop);
  const auto pieces = by_key(read_pieces(list_pieces(mine, keys), 0), keys.size());
  const auto trained = loop.engine().trained();
  const std::set<std::string> wanted(trained.begin(), trained.end());
  for (std::size_t key = 0; key < keys.size(); ++key) {
    const auto* spec = keys.spec(key);
    if (spec == nullptr || !wanted.contains(keys.parameter(key))) continue;
    if (!covers(cover(pieces[key], count_of(*spec)), count_of(*spec))) return false;
  }
  return true;
}

ShardOrigins redistribute(collective::Communicator& comm, const Shards& mine, TrainLoop& loop) {
  const at::NoGradGuard no_grad;
  auto& engine = loop.engine();
  const Keys keys(loop);
  struct OwnedRun {
    std::int64_t first;
    at::Tensor flat;
  };
  std::map<std::int64_t, OwnedRun> owned;
  engine.visit([&](const StateItem& item) {
    if (item.share != Share::cut) return;
    const OwnedRun run{static_cast<std::int64_t>(item.run.first), engine::borrowed(item.values)};
    owned.emplace(keys.of({std::string(item.parameter), std::string(item.state), run.first, run.flat}), run);
  });
  const Values values(mine, keys);
  const auto pieces = by_key(gather_pieces(comm, mine, keys), keys.size());
  const auto trained = engine.trained();
  const std::set<std::string> wanted(trained.begin(), trained.end());
  ShardOrigins origins;
  for (std::size_t key = 0; key < keys.size(); ++key) {
    const auto* spec = keys.spec(key);
    const std::string& name = keys.parameter(key);
    if (spec == nullptr || !wanted.contains(name)) continue;
    const at::Tensor whole = empty_run(*spec, count_of(*spec));
    const auto taken = cover(pieces[key], count_of(*spec));
    if (!covers(taken, count_of(*spec)))
      throw_failure(Kind::bug, "no rank has all of {} {}; start the job again, from its newest checkpoint", name, keys.state(key));
    for (const ShardPiece& piece : taken) {
      const at::Tensor part = whole.narrow(0, piece.first, piece.count);
      if (piece.holder == comm.rank().value) part.copy_(values.of(piece));
      nn::broadcast(comm, part, Rank{piece.holder}, {.name = name});
      (piece.source == ShardSource::owner         ? origins.owner
       : piece.source == ShardSource::transferred ? origins.transferred
                                                  : origins.buddy) += piece.count;
    }
    if (const auto at = owned.find(static_cast<std::int64_t>(key)); at != owned.end())
      at->second.flat.copy_(whole.narrow(0, at->second.first, at->second.flat.numel()));
  }
  engine.publish_loaded_state();
  return origins;
}

}  // namespace cohort::train
