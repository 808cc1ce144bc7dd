#include "cohort/train/loop/state_io.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <algorithm>

#include "cohort/engine/residuals.h"
#include "cohort/engine/tensor_file.h"
#include "cohort/job/run_on_all.h"
#include "cohort/nn/tensor.h"
#include "cohort/optim/averaged_rule.h"
#include "cohort/train/loop/via_host.h"

namespace cohort::train {
namespace {

using checkpoint::Contents;

using engine::kResidualWeight, engine::read_run, engine::whole_view;

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
    const auto part = loop.shards().find(name);
    const Shape shape = part == loop.shards().end() ? t.sizes().vec() : part->second.whole;
    if ((!sharded.contains(name) || part != loop.shards().end()) && stored->shape != shape)
      refuse(fmt::format("its {} is of [{}], this run's of [{}]", name, fmt::join(stored->shape, ", "), fmt::join(shape, ", ")));
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

// As the engine visits what it trains: frozen parameters that ranks of a mesh share out. Those along dp hold the same.
void visit_frozen_boxes(collective::Communicator& comm, TrainLoop& loop, const std::function<void(const StateItem&)>& call) {
  const auto trained = loop.engine().trained();
  for (const auto& [name, t] : loop.model().named_parameters()) {
    const auto part = loop.shards().find(name);
    if (part == loop.shards().end() || std::ranges::find(trained, name) != trained.end()) continue;
    const ShardSpec& spec = part->second;
    StateItem item{.group = kModelGroup,
                   .parameter = name,
                   .state = {},
                   .shape = spec.whole,
                   .run = {0, static_cast<std::size_t>(t.numel())},
                   .values = nn::piece(t.detach())};
    item.box = &spec.box;
    item.first = loop.mesh().coordinate(comm.rank(), "dp") == 0;
    call(item);
  }
}

bool has_file(const checkpoint::Snapshot& made, const std::string& name) {
  return std::ranges::any_of(made.files(), [&](const checkpoint::TensorFile& file) { return file.name == name; });
}

struct Reading {
  int rank = 0, ranks = 1;
  bool same_ranks = true;  // as many as made the checkpoint
  bool anew = false;       // the strategy begins with the model of the job, which every rank takes
  StateToRead of_optimizer = StateToRead::all;
};

// What the strategy keeps is not what the checkpoint has: another strategy made it, whose ranks stood for another model than theirs may.
bool is_of_another_strategy(const Contents& from, const engine::Engine& engine, const Reading& how) {
  std::set<std::string> kept, stored;
  bool lacks_own = false;
  engine.visit([&](const StateItem& item) {
    if (item.group != engine::kStrategyGroup) return;
    if (item.share != Share::each)
      kept.insert(item.key());
    else
      lacks_own = lacks_own || (how.same_ranks && !engine::has_local(from, how.rank, item));
  });
  for (const auto& tensor : from.tensors())
    if (tensor.group == engine::kStrategyGroup) stored.insert(tensor.name);
  return lacks_own || kept != stored;
}

// One item of the engine's state. What is each rank's own comes back bit for bit on the same number of ranks; on another one all ranks
// begin with the mean of what there was, or of a checkpoint without such with what all had.
void read_item(const Contents& from, TrainLoop& loop, const Reading& how, const StateItem& item) {
  const std::string parameter(item.parameter), state(item.state);
  const StateToRead of_optimizer = how.of_optimizer;
  const int had = static_cast<int>(from.checkpoint().manifest.world_size);
  if (item.group == engine::kResidualGroup) return;  // read_residuals()
  if (item.group == kOptimizerGroup && of_optimizer == StateToRead::none) return;
  const bool own = item.share == Share::each && how.same_ranks && !(how.anew && item.group == kModelGroup);
  if (own && engine::has_local(from, how.rank, item)) return engine::read_local(from, how.rank, item);
  if (item.group == engine::kStrategyGroup && item.share == Share::each) {
    if (item.merge == Merge::mean) engine::read_mean_of_locals(from, had, item);
    return;
  }
  if (item.group == kOptimizerGroup) {
    if (from.find(kOptimizerGroup, item.key()) != nullptr) return engine::read_run(from, item);
    if (engine::read_mean_of_locals(from, had, item)) return;  // of ranks that had each its own
    if (!wanted(from, parameter, state, of_optimizer)) return;
    return check_state(from, parameter, state, loop.engine().rule()->spec());
  }
  if (from.find(std::string(item.group), item.key()) != nullptr) engine::read_run(from, item);
}

}  // namespace

nn::NamedTensors model_tensors(const nn::Model& model) {
  auto all = model.named_parameters();
  for (auto& entry : model.named_buffers()) all.push_back(std::move(entry));
  return all;
}

std::set<std::string> sharded_parameters(collective::Communicator& comm, TrainLoop& loop) {
  std::set<std::string> mine, all;
  for (const auto& [name, spec] : loop.shards()) all.insert(name);
  if (!loop.engine().shards_parameters()) return all;
  loop.engine().visit([&](const StateItem& item) { mine.emplace(item.parameter); });
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
  const bool boxes = engine.has_boxes(), model_in_pieces = engine.shards_parameters() || boxes;
  const auto shard = [&](std::string_view group) { return checkpoint::shard_file(group, rank, comm.size()); };
  const auto file = [&](std::string_view group, bool pieces) { return pieces ? shard(group) : checkpoint::whole_file(group); };
  if (rank == 0)
    for (const auto& [name, t] : replicated_tensors(loop, sharded))
      into.add(file(kModelGroup, model_in_pieces), whole_view(name, t.detach().cpu()));
  const auto write = [&](const StateItem& item) {
    if (item.share == Share::each) return into.add(shard(engine::kLocalGroup), engine::local_view(rank, item));
    if (!item.first) return;
    if (item.group == kModelGroup && !engine.shards_parameters() && item.box == nullptr) return;  // rank 0 has written it
    into.add(file(item.group, item.share == Share::cut || boxes), engine::run_view(item));
  };
  engine.visit(write);
  visit_frozen_boxes(comm, loop, write);
  if (rank == 0 || engine.shards_parameters() || has_file(into, shard(kModelGroup)))
    into.set_metadata(file(kModelGroup, model_in_pieces), {{"format", "pt"}, {"model", into.manifest.texts["model"]}});
  if (!engine.drifts() && (rank == 0 || engine.shards_state() || has_file(into, shard(kOptimizerGroup))))
    into.set_metadata(file(kOptimizerGroup, engine.shards_state() || boxes), {{"rule", engine.rule()->spec()}});
  if (engine.has_own_state())
    into.set_metadata(shard(engine::kLocalGroup),
                      {{"rule", engine.rule()->spec()}, {kResidualWeight, fmt::format("{}", engine.residual_weight())}});
}

void write_state(checkpoint::Snapshot& into, const Survivor& survivor, TrainLoop& loop) {
  auto& engine = loop.engine();
  std::set<std::string> trained;
  // Parameters sharded in every case: the lost rank may not have published all of its updates, so that only their owners have them.
  const auto write = [&](int rank) {
    return [&into, &survivor, rank](const StateItem& item) {
      if (item.share == Share::cut) into.add(checkpoint::shard_file(item.group, rank, survivor.ranks), engine::run_view(item));
    };
  };
  engine.visit(write(survivor.rank));
  if (survivor.rank == (survivor.lost + 1) % survivor.ranks) engine.visit_buddy(write(survivor.lost));
  if (!survivor.writes_common) return;
  for (const auto& name : engine.trained()) trained.insert(name);
  for (const auto& [name, t] : replicated_tensors(loop, trained))
    into.add(checkpoint::shard_file(kModelGroup, survivor.rank, survivor.ranks), whole_view(name, t.detach().cpu()));
}

void read_state(const checkpoint::Checkpoint& found, collective::Communicator& comm, TrainLoop& loop, const std::set<std::string>& sharded,
                StateToRead of_optimizer) {
  auto& engine = loop.engine();
  const auto replicated = replicated_tensors(loop, sharded);
  const bool all_read = engine.shards_state() || engine.has_own_state() || engine.has_boxes();
  const int rank = comm.rank().value;
  Reading how{.rank = rank, .ranks = comm.size(), .of_optimizer = of_optimizer};
  job::run_on_all(comm, "tensors of the checkpoint", [&] {
    if (rank != 0 && !all_read) return;
    const Contents from(found);
    if (rank == 0) check_model(from, loop, sharded);
    if (rank == 0)
      for (const auto& [name, t] : replicated) read_run(from, kModelGroup, name, t.sizes(), 0, t.detach());
    how.same_ranks = static_cast<int>(from.checkpoint().manifest.world_size) == how.ranks;
    how.anew = is_of_another_strategy(from, engine, how);
    const auto read = [&](const StateItem& item) {
      if (item.share == Share::identical && item.box == nullptr && (rank != 0 || item.group == kModelGroup)) return;
      if (item.group == kModelGroup && item.share == Share::cut && item.box == nullptr && !engine.shards_parameters()) return;
      read_item(from, loop, how, item);
    };
    engine.visit(read);
    visit_frozen_boxes(comm, loop, read);
    engine::read_residuals(from, engine, rank, comm.size());
  });
  for (const auto& [name, t] : replicated)
    if (!engine.drifts()) broadcast_via_host(comm, t.detach(), name);
  if (engine.drifts())
    for (const auto& [name, buffer] : loop.model().named_buffers()) broadcast_via_host(comm, buffer, name);
  engine.publish_loaded_state();
  if (!how.same_ranks) engine.begin_own_slots_anew();
  if (how.anew) engine.begin_strategy_anew();
}

void load_model(const nn::Model& model, const checkpoint::Checkpoint& found) {
  const Contents from(found);
  const auto rule = found.manifest.texts.find("optimizer");
  const bool averages = found.manifest.step > 0 && rule != found.manifest.texts.end() && optim::evaluates_average(rule->second);
  for (const auto& [name, t] : model_tensors(model)) {
    const std::string average = fmt::format("{}/{}", name, optim::kAverageState);  // buffers and what is frozen have none
    const bool averaged = averages && from.find(kOptimizerGroup, average) != nullptr;
    read_run(from, averaged ? kOptimizerGroup : kModelGroup, averaged ? average : name, t.sizes(), 0, t.detach());
  }
}

}  // namespace cohort::train
