#include "cohort/ddp/sharded_state.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <memory>
#include <set>

#include "cohort/base/log.h"
#include "cohort/base/text.h"
#include "cohort/checkpoint/sharded_save.h"
#include "cohort/checkpoint/snapshot.h"
#include "cohort/checkpoint/staging_directory.h"
#include "cohort/engine/residuals.h"
#include "cohort/engine/tensor_file.h"
#include "cohort/job/run_on_all.h"
#include "cohort/nn/tensor.h"
#include "cohort/optim/loss_scale.h"

namespace cohort::ddp {
namespace {

using checkpoint::Contents;
using engine::kLocalGroup, engine::kModelGroup, engine::kOptimizerGroup, engine::kResidualWeight;

constexpr std::size_t kMostStagingName = 128;
constexpr const char* kGroups = "groups";

// What rank 0 writes for all: parameters that no rank writes its own elements of, and buffers.
std::vector<std::pair<std::string, at::Tensor>> replicated_of(const ShardedState& s) {
  std::set<std::string> sharded;
  if (s.core.shards_parameters())
    for (const auto& name : s.core.trained()) sharded.insert(name);
  std::vector<std::pair<std::string, at::Tensor>> all;
  for (const auto& item : s.module.named_parameters())
    if (!sharded.contains(item.key())) all.emplace_back(item.key(), item.value().detach());
  for (const auto& item : s.module.named_buffers())
    if (item.value().defined()) all.emplace_back(item.key(), item.value().detach());
  return all;
}

void write(checkpoint::Snapshot& into, const ShardedState& s) {
  const int rank = s.comm.rank().value, ranks = s.comm.size();
  const bool pieces = s.core.shards_parameters();
  const auto model = pieces ? checkpoint::shard_file(kModelGroup, rank, ranks) : checkpoint::whole_file(kModelGroup);
  const auto optimizer = checkpoint::shard_file(kOptimizerGroup, rank, ranks), local = checkpoint::shard_file(kLocalGroup, rank, ranks);
  if (rank == 0)
    for (const auto& [name, t] : replicated_of(s)) into.add(model, engine::whole_view(name, t.cpu().contiguous()));
  s.core.visit([&](const StateItem& item) {
    if (item.share == Share::each) return into.add(local, engine::local_view(rank, item));
    if (item.state.empty() && !pieces) return;
    into.add(item.state.empty() ? model : optimizer, engine::run_view(item));
  });
  if (rank == 0 || pieces) into.set_metadata(model, {{"format", "pt"}});
  into.set_metadata(optimizer, {{"rule", s.core.rule()->spec()}});
  if (s.core.has_own_state()) into.set_metadata(local, {{kResidualWeight, fmt::format("{}", s.core.residual_weight())}});
}

void describe(checkpoint::Manifest& m, const ShardedState& s, std::int64_t updates) {
  m.step = updates;
  m.world_size = s.comm.size();
  m.cohort_version = COHORT_VERSION;
  m.torch_version = TORCH_VERSION;
  m.texts["optimizer"] = s.core.rule()->spec();
  m.values[kGroups] = s.groups;
}

// Before anything is changed: is all there, and of the right shapes?
void check(const Contents& from, const ShardedState& s) {
  for (const auto& [name, t] : replicated_of(s)) engine::check_run(from, kModelGroup, name, t.sizes(), t);
  s.core.visit([&](const StateItem& item) {
    if (item.share == Share::each) return;  // begins anew where it is not there
    const auto rule = from.checkpoint().manifest.texts.find("optimizer");
    if (!item.state.empty() && from.find(kOptimizerGroup, item.key()) == nullptr)
      throw_failure(Kind::usage, "checkpoint {} was trained with {} and has no {} of {}, which {} needs: take the same optimizer",
                    from.checkpoint().path, rule == from.checkpoint().manifest.texts.end() ? "another" : rule->second, item.state,
                    item.parameter, s.core.rule()->spec());
    engine::check_run(from, item);
  });
  const auto& values = from.checkpoint().manifest.values;
  if (const auto saved = values.find(kGroups); saved != values.end() && saved->second != s.groups && s.comm.rank() == Rank{0})
    log_warning("checkpoint {} was trained with other parameter groups: {}; those of this program count: {}", from.checkpoint().path,
                saved->second, s.groups);
}

void read(const Contents& from, const ShardedState& s) {
  if (s.comm.rank() == Rank{0})
    for (const auto& [name, t] : replicated_of(s)) {
      const at::Tensor here = t.cpu().contiguous();
      engine::read_run(from, kModelGroup, name, t.sizes(), 0, here);
      if (here.data_ptr() != t.data_ptr()) t.copy_(here);
    }
  s.core.visit([&](const StateItem& item) {
    if (item.share == Share::each) return;
    if (!item.state.empty() || s.core.shards_parameters()) engine::read_run(from, item);
  });
  engine::read_residuals(from, s.core, s.comm.rank().value, s.comm.size());
}

void broadcast_replicated(const ShardedState& s) {
  for (const auto& [name, t] : replicated_of(s)) {
    const at::Tensor block = t.cpu().contiguous();
    nn::broadcast(s.comm, block, Rank{0}, {.name = name});
    if (block.data_ptr() != t.data_ptr()) t.copy_(block);
  }
}

// -1: nothing was saved there.
std::int64_t newest_in(const std::string& folder) {
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) return -1;
  const auto newest = checkpoint::Store(folder).newest();
  if (newest.checkpoint) return newest.checkpoint->manifest.step;
  if (newest.refused.empty()) return -1;
  throw_failure(Kind::corrupt, "none of the {} checkpoints in {} can be used; the newest: {}", newest.refused.size(), folder,
                newest.refused.front().error.what);
}

// Of the rule, whose state may have begun later than the run (checkpoint.allow=optimizer). A run of Trainer counts the steps that its vote
// called off, too.
std::int64_t updates_of(const checkpoint::Manifest& m) {
  const auto scale = m.texts.find("loss_scale_state");
  const auto skipped = scale == m.texts.end() ? 0 : optim::scale_state_of(scale->second).skipped;
  const auto began = m.texts.find("optimizer_start");
  const auto before = began == m.texts.end() ? 0 : parse_int(began->second);
  if (skipped > m.step || before < 0 || before > m.step - skipped)
    throw_failure(Kind::corrupt, "manifest: of {} steps {} were called off, and the optimizer began after {}, which cannot be", m.step,
                  skipped, before);
  return m.step - skipped - before;
}

}  // namespace

std::string save_state(const ShardedState& s, const std::string& folder, std::int64_t updates, int keep) {
  const at::NoGradGuard no_grad;
  std::unique_ptr<checkpoint::Store> store;
  std::unique_ptr<checkpoint::StagingDirectory> staging;
  std::array<std::int64_t, kMostStagingName / sizeof(std::int64_t)> name{};
  job::run_on_all(s.comm, "folder of the checkpoint", [&] {
    if (s.comm.rank() != Rank{0}) return;
    store = std::make_unique<checkpoint::Store>(folder, checkpoint::StoreOptions{.keep = keep});
    staging = std::make_unique<checkpoint::StagingDirectory>(checkpoint::staging_path(folder, updates));
    const auto last = std::filesystem::path(staging->path()).filename().string();
    std::memcpy(name.data(), last.data(), std::min(last.size(), kMostStagingName - 1));
  });
  s.comm.broadcast(collective::piece(std::span<std::int64_t>(name)), Rank{0}, {.name = "folder of this checkpoint"});
  const checkpoint::ShardedSave together{fmt::format("{}/{}", folder, reinterpret_cast<const char*>(name.data())), s.comm.rank().value,
                                         s.comm.size()};
  const auto path = fmt::format("{}/{}", folder, checkpoint::step_name(updates));
  job::run_on_all(s.comm, "checkpoint", [&] {
    checkpoint::Snapshot made;
    describe(made.manifest, s, updates);
    try {
      write(made, s);
    } catch (const Failure& failure) {
      if (!store) checkpoint::decline(together, updates, failure.error());  // rank 0 does not wait for this part
      throw;
    }
    if (store)
      store->save(made.manifest, made.files(), *staging, together);
    else
      checkpoint::contribute(together, made.manifest, made.files(), path);
  });
  return path;
}

std::optional<std::int64_t> load_state(const ShardedState& s, const std::string& folder) {
  const at::NoGradGuard no_grad;
  std::int64_t step = -1;
  job::run_on_all(s.comm, "newest checkpoint", [&] {
    if (s.comm.rank() == Rank{0}) step = newest_in(folder);
  });
  s.comm.broadcast(collective::piece(std::span(&step, 1)), Rank{0}, {.name = "checkpoint to load"});
  if (step < 0) return std::nullopt;
  std::optional<Contents> from;
  job::run_on_all(s.comm, "checkpoint to load", [&] {
    const auto path = fmt::format("{}/{}", folder, checkpoint::step_name(step));
    from.emplace(checkpoint::Checkpoint{path, checkpoint::read_manifest(path, step)});
    check(*from, s);
  });
  job::run_on_all(s.comm, "tensors of the checkpoint", [&] { read(*from, s); });
  broadcast_replicated(s);
  s.core.publish_loaded_state();
  return updates_of(from->checkpoint().manifest);
}

}  // namespace cohort::ddp
