#include "cohort/train/loop/state_io.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <algorithm>

#include "cohort/engine/tensor_file.h"
#include "cohort/job/run_on_all.h"
#include "cohort/nn/tensor.h"
#include "cohort/train/loop/via_host.h"

namespace cohort::train {
namespace {

using checkpoint::Contents;

using engine::read_run, engine::run_view, engine::whole_view;

// Another architecture: the first tensor that only one of the two has, or that has another shape.
void check_model(const Contents& from, TrainLoop& loop, const std::set<std::string>& sharded) {
  std::set<std::string> mine;
  const auto refuse = [&](const std::string& why) {
    const auto& texts = from.checkpoint().manifest.texts;
    const auto model = texts.find("model");
    throw_failure(Kind::usage,
                  "the run cannot resume from {}: it was made with model '{}', which is another one: {}; restore `model`, take another "
                  "`out`, or begin anew with checkpoint.resume=never",
                  from.checkpoint().path, model == texts.end() ? "?" : model->second, why);
  };
  for (const auto& [name, t] : model_tensors(loop.model())) {
    mine.insert(name);
    const auto* stored = from.find(kModelGroup, name);
    if (stored == nullptr) refuse(fmt::format("it has no {}", name));
    if (!sharded.contains(name) && !std::equal(stored->shape.begin(), stored->shape.end(), t.sizes().begin(), t.sizes().end()))
      refuse(fmt::format("its {} is of [{}], this run's of [{}]", name, fmt::join(stored->shape, ", "), fmt::join(t.sizes(), ", ")));
  }
  for (const auto& stored : from.tensors())
    if (stored.group == kModelGroup && !mine.contains(stored.name)) refuse(fmt::format("this run's has no {}", stored.name));
}

// Whether the state is to be read.
bool wanted(const Contents& from, const std::string& parameter, const std::string& state, StateToRead which) {
  return which == StateToRead::all || (which == StateToRead::fitting && from.find(kOptimizerGroup, parameter + "/" + state) != nullptr);
}

void check_state(const Contents& from, const std::string& parameter, const std::string& state, const std::string& mine) {
  if (from.find(kOptimizerGroup, parameter + "/" + state) != nullptr) return;
  const auto& texts = from.checkpoint().manifest.texts;
  const auto rule = texts.find("optimizer");
  throw_failure(Kind::usage,
                "checkpoint {} was trained with {} and has no {} of {}, which {} needs: take the same rule and optim.frozen, say "
                "checkpoint.allow={} to begin with it anew, or checkpoint.resume=never",
                from.checkpoint().path, rule == texts.end() ? "another rule" : rule->second, state, parameter, mine, kAllowOptimizer);
}

nn::NamedTensors replicated_tensors(TrainLoop& loop, const std::set<std::string>& sharded) {
  auto all = model_tensors(loop.model());
  std::erase_if(all, [&](const auto& entry) { return sharded.contains(entry.first); });
  return all;
}

// This rank's runs of what is sharded.
void read_shards(const Contents& from, TrainLoop& loop, StateToRead of_optimizer) {
  auto& engine = loop.engine();
  engine.each_shard(
      [&](const std::string& p, const std::string& state, at::IntArrayRef sizes, std::int64_t first, std::int64_t, const at::Tensor& flat) {
        if (state.empty() && engine.shards_parameters()) read_run(from, kModelGroup, p, sizes, first, flat);
        if (state.empty() || !wanted(from, p, state, of_optimizer)) return;
        check_state(from, p, state, engine.rule()->spec());
        read_run(from, kOptimizerGroup, p + "/" + state, sizes, first, flat);
      });
}

}  // namespace

nn::NamedTensors model_tensors(const nn::Model& model) {
  auto all = model.named_parameters();
  for (auto& entry : model.named_buffers()) all.push_back(std::move(entry));
  return all;
}

std::set<std::string> sharded_parameters(collective::Communicator& comm, TrainLoop& loop) {
  if (!loop.engine().shards_parameters()) return {};
  std::set<std::string> mine, all;
  loop.engine().each_shard(
      [&](const std::string& p, const std::string&, at::IntArrayRef, std::int64_t, std::int64_t, const at::Tensor&) { mine.insert(p); });
  const auto names = loop.model().named_parameters();
  std::vector<std::int32_t> seen;
  for (const auto& [name, t] : names) seen.push_back(mine.contains(name) ? 1 : 0);
  comm.all_reduce(collective::piece(std::span(seen)), collective::Op::sum, {.name = "which parameters are sharded"});
  for (std::size_t i = 0; i < names.size(); ++i)
    if (seen[i] > 0) all.insert(names[i].first);
  return all;
}

void write_state(checkpoint::Snapshot& into, collective::Communicator& comm, TrainLoop& loop, const std::set<std::string>& sharded) {
  auto& engine = loop.engine();
  const int rank = comm.rank().value;
  const auto file = [&](const char* group, bool pieces) {
    return pieces ? checkpoint::shard_file(group, rank, comm.size()) : checkpoint::whole_file(group);
  };
  const auto model = file(kModelGroup, engine.shards_parameters()), optimizer = file(kOptimizerGroup, engine.shards_state());
  if (rank == 0)
    for (const auto& [name, t] : replicated_tensors(loop, sharded)) into.add(model, whole_view(name, t.detach().cpu()));
  engine.each_shard([&](const std::string& p, const std::string& state, at::IntArrayRef sizes, std::int64_t first, std::int64_t count,
                        const at::Tensor& flat) {
    if (!state.empty()) into.add(optimizer, run_view(p + "/" + state, sizes, first, count, flat));
    if (state.empty() && engine.shards_parameters()) into.add(model, run_view(p, sizes, first, count, flat));
  });
  if (rank == 0 || engine.shards_parameters()) into.set_metadata(model, {{"format", "pt"}, {"model", into.manifest.texts["model"]}});
  if (rank == 0 || engine.shards_state()) into.set_metadata(optimizer, {{"rule", engine.rule()->spec()}});
}

void write_state(checkpoint::Snapshot& into, const Survivor& survivor, TrainLoop& loop) {
  auto& engine = loop.engine();
  std::set<std::string> trained;
  // Parameters sharded at every stage: the lost rank may not have published all of its updates, so that only their owners have them.
  const auto write = [&](int rank) {
    return [&into, &survivor, rank](const std::string& p, const std::string& state, at::IntArrayRef sizes, std::int64_t first,
                                    std::int64_t count, const at::Tensor& flat) {
      const auto file = checkpoint::shard_file(state.empty() ? kModelGroup : kOptimizerGroup, rank, survivor.ranks);
      into.add(file, run_view(state.empty() ? p : p + "/" + state, sizes, first, count, flat));
    };
  };
  engine.each_shard(write(survivor.rank));
  if (survivor.rank == (survivor.lost + 1) % survivor.ranks) engine.each_buddy_shard(write(survivor.lost));
  if (!survivor.writes_common) return;
  for (const auto& name : engine.trained()) trained.insert(name);
  for (const auto& [name, t] : replicated_tensors(loop, trained))
    into.add(checkpoint::shard_file(kModelGroup, survivor.rank, survivor.ranks), whole_view(name, t.detach().cpu()));
}

void read_state(const checkpoint::Checkpoint& found, collective::Communicator& comm, TrainLoop& loop, const std::set<std::string>& sharded,
                StateToRead of_optimizer) {
  auto& engine = loop.engine();
  const auto replicated = replicated_tensors(loop, sharded);
  const auto states = [&](const auto& visit) {
    if (!engine.shards_state()) engine.each_state(visit);
  };
  job::run_on_all(comm, "tensors of the checkpoint", [&] {
    if (comm.rank().value != 0 && !engine.shards_state()) return;
    const Contents from(found);
    if (comm.rank().value == 0) check_model(from, loop, sharded);
    if (engine.shards_state()) read_shards(from, loop, of_optimizer);
    if (comm.rank().value != 0) return;
    for (const auto& [name, t] : replicated) read_run(from, kModelGroup, name, t.sizes(), 0, t.detach());
    states([&](const std::string& p, const std::string& state, const at::Tensor& t) {
      if (t.numel() == 0 || !wanted(from, p, state, of_optimizer)) return;  // none: this rank owns none of it
      check_state(from, p, state, engine.rule()->spec());
      read_run(from, kOptimizerGroup, p + "/" + state, t.sizes(), 0, t);
    });
  });
  for (const auto& [name, t] : replicated) broadcast_via_host(comm, t.detach(), name);
  states([&](const std::string& p, const std::string& state, const at::Tensor& t) {
    nn::broadcast(comm, t, Rank{0}, {.name = p + "/" + state});
  });
  if (engine.shards_state()) engine.publish_loaded_state();
}

void load_model(const nn::Model& model, const checkpoint::Checkpoint& found) {
  const Contents from(found);
  for (const auto& [name, t] : model_tensors(model)) read_run(from, kModelGroup, name, t.sizes(), 0, t.detach());
}

}  // namespace cohort::train
