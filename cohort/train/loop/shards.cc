#include "cohort/train/loop/shards.h"

#include <torch/torch.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "cohort/nn/tensor.h"

namespace cohort {
namespace {

constexpr std::uint32_t kTag = 0;

// Numbers for names, the same on all ranks: every parameter with every state of the rule.
struct Keys {
  explicit Keys(Learner& learner) : parameters(learner.model().named_parameters()), states(learner.engine().rule()->state_names()) {
    states.insert(states.begin(), "");
    for (std::size_t i = 0; i < parameters.size(); ++i) place[parameters[i].first] = i;
  }
  std::size_t size() const { return parameters.size() * states.size(); }
  std::int64_t of(const Shard& s) const {
    const auto state = std::ranges::find(states, s.state) - states.begin();
    return static_cast<std::int64_t>(place.at(s.parameter) * states.size()) + state;
  }
  const std::pair<std::string, at::Tensor>& parameter(std::size_t key) const { return parameters[key / states.size()]; }
  const std::string& state(std::size_t key) const { return states[key % states.size()]; }

  nn::NamedTensors parameters;
  std::vector<std::string> states;
  std::map<std::string, std::size_t> place;
};

std::vector<std::int64_t> listed(const Shards& mine, const Keys& keys) {
  std::vector<std::int64_t> list;
  for (const Shard& s : mine) list.insert(list.end(), {keys.of(s), s.first, s.values.numel(), static_cast<std::int64_t>(s.source)});
  return list;
}

// Who has what.
std::vector<ShardPiece> everyones(collective::Communicator& comm, const Shards& mine, const Keys& keys) {
  std::vector<std::int64_t> list = listed(mine, keys);
  const auto ranks = static_cast<std::size_t>(comm.size());
  std::int64_t size = static_cast<std::int64_t>(list.size());
  std::vector<std::int64_t> sizes(ranks);
  comm.all_gather(collective::piece(std::span(&size, 1)), collective::piece(std::span(sizes)), {.name = "how many pieces"});
  const std::vector<std::size_t> counts(sizes.begin(), sizes.end());
  std::vector<std::int64_t> all(std::accumulate(counts.begin(), counts.end(), std::size_t{0}));
  if (!all.empty())
    comm.all_gather(collective::piece(std::span(list)), collective::piece(std::span(all)), {.name = "which pieces"}, counts);
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

Shards take_shards(const engine::Engine& engine) {
  Shards all;
  ShardSource source = ShardSource::own;
  const auto visit = [&](const std::string& parameter, const std::string& state, at::IntArrayRef, std::int64_t first, std::int64_t,
                         const at::Tensor& flat) {
    all.push_back({parameter, state, first, flat.detach().clone(), source});
  };
  engine.each_shard(visit);
  source = ShardSource::kept;
  engine.each_kept(visit);
  return all;
}

void hand_over(collective::Communicator& comm, Shards& mine, Learner& learner, std::span<const std::int32_t> leaving) {
  const Keys keys(learner);
  const Rank me = comm.rank();
  Shards own;
  std::ranges::copy_if(mine, std::back_inserter(own), [](const Shard& s) { return s.source == ShardSource::own; });
  const Values values(own, keys);
  for (Rank from{0}; from.value < comm.size(); ++from.value) {
    const Rank to = heir_of(from, leaving);
    if (leaving[static_cast<std::size_t>(from.value)] == 0 || !to || (me != from && me != to)) continue;
    std::vector<std::int64_t> list = me == from ? listed(own, keys) : std::vector<std::int64_t>{};
    std::int64_t size = static_cast<std::int64_t>(list.size());
    const auto pass = [&](collective::Piece data, const char* what) {
      if (data.count == 0) return;
      me == from ? comm.send(data, to, kTag, {.name = what}) : comm.recv(data, from, kTag, {.name = what});
    };
    pass(collective::piece(std::span(&size, 1)), "how many pieces are handed over");
    list.resize(static_cast<std::size_t>(size));
    pass(collective::piece(std::span(list)), "which pieces are handed over");
    for (const ShardPiece& piece : read_pieces(list, from.value)) {
      const auto key = static_cast<std::size_t>(piece.key);
      const auto& [name, parameter] = keys.parameter(key);
      const at::Tensor part = me == from ? values.of(piece) : at::empty({piece.count}, at::TensorOptions().dtype(parameter.scalar_type()));
      pass(nn::piece(part), "a piece that is handed over");
      if (me == to) mine.push_back({name, keys.state(key), piece.first, part, ShardSource::handed});
    }
  }
}

bool has_all(const Shards& mine, Learner& learner) {
  const Keys keys(learner);
  const auto pieces = by_key(read_pieces(listed(mine, keys), 0), keys.size());
  const auto trained = learner.engine().trained();
  const std::set<std::string> wanted(trained.begin(), trained.end());
  for (std::size_t key = 0; key < keys.size(); ++key) {
    const auto& [name, parameter] = keys.parameter(key);
    if (wanted.contains(name) && !covers(cover(pieces[key], parameter.numel()), parameter.numel())) return false;
  }
  return true;
}

Origin lay_out(collective::Communicator& comm, const Shards& mine, Learner& learner) {
  const at::NoGradGuard no_grad;
  auto& engine = learner.engine();
  const Keys keys(learner);
  struct Place {
    std::int64_t first;
    at::Tensor flat;
  };
  std::map<std::int64_t, Place> owned;
  engine.each_shard([&](const std::string& parameter, const std::string& state, at::IntArrayRef, std::int64_t first, std::int64_t,
                        const at::Tensor& flat) {
    owned.emplace(keys.of({parameter, state, first, flat}), Place{first, flat});
  });
  const Values values(mine, keys);
  const auto pieces = by_key(everyones(comm, mine, keys), keys.size());
  const auto trained = engine.trained();
  const std::set<std::string> wanted(trained.begin(), trained.end());
  Origin origin;
  for (std::size_t key = 0; key < keys.size(); ++key) {
    const auto& [name, parameter] = keys.parameter(key);
    if (!wanted.contains(name)) continue;
    const at::Tensor whole = at::empty({parameter.numel()}, at::TensorOptions().dtype(parameter.scalar_type()));
    const auto taken = cover(pieces[key], parameter.numel());
    if (!covers(taken, parameter.numel()))
      throw_failure(Kind::bug, "nobody has all of {} {}; start the job again, from its newest checkpoint", name, keys.state(key));
    for (const ShardPiece& piece : taken) {
      const at::Tensor part = whole.narrow(0, piece.first, piece.count);
      if (piece.holder == comm.rank().value) part.copy_(values.of(piece));
      nn::broadcast(comm, part, Rank{piece.holder}, {.name = name});
      (piece.source == ShardSource::own ? origin.own : piece.source == ShardSource::handed ? origin.handed : origin.kept) += piece.count;
    }
    if (const auto at = owned.find(static_cast<std::int64_t>(key)); at != owned.end())
      at->second.flat.copy_(whole.narrow(0, at->second.first, at->second.flat.numel()));
  }
  engine.adopted();
  return origin;
}

}  // namespace cohort
