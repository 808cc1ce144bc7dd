#include "cohort/train/loop/checkpoint_manager.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>

#include "cohort/base/file.h"
#include "cohort/base/log.h"
#include "cohort/checkpoint/sharded_save.h"
#include "cohort/checkpoint/staging_directory.h"
#include "cohort/data/class_names.h"
#include "cohort/job/run_on_all.h"
#include "cohort/train/loop/emergency_save.h"

namespace cohort::train {
namespace {

constexpr Seconds kLastSave{120};   // how long the end of a run waits for its last checkpoint
constexpr Seconds kAbortPoll{0.1};  // .. and how often it checks whether the wait was aborted

constexpr Seconds kOtherRanks{1};  // rank 0 knows the end of a save before the others do
constexpr int kAlarm = 2;          // checkpoints left out in a row
constexpr std::size_t kMostNameBytes = 128;

// A run that starts over must not find, count or prune the checkpoints of the one before: they move to <folder>.old, one generation of
// them.
void move_aside(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::exists(folder, error) || fs::is_empty(folder, error)) return;
  error = remove_tree(folder + ".old");
  if (!error) fs::rename(folder, folder + ".old", error);
  if (error) throw_failure(Kind::system, "cannot move {} to {}.old: {}; say another `out`", folder, folder, error.message());
  log_info("starting over: the checkpoints of the run before are in {}.old", folder);
}

// A folder of classes that came, went or was renamed since the checkpoint would give the labels it was trained on another meaning.
void check_classes(const checkpoint::Checkpoint& found, const data::Form& form, const TrainConfig& config) {
  const auto at = found.manifest.values.find("data");
  if (at == found.manifest.values.end()) return;
  const auto names = nlohmann::json::parse(at->second).value("names", std::vector<std::string>{});
  const std::string now = fmt::format("data.train '{}'", config.data.train);
  const data::ClassNames saved_names{names, found.path}, names_now{form.names, now};
  std::string difference = data::difference_of_classes(saved_names, names_now);
  if (difference.empty()) difference = data::difference_of_classes(names_now, saved_names);
  if (!difference.empty())
    throw_failure(Kind::usage,
                  "{}: the run cannot resume with other classes; restore them, or say checkpoint.resume=never or another `out`",
                  difference);
}

}  // namespace

struct CheckpointManager::PendingSaves {
  struct Save {
    std::unique_ptr<checkpoint::StagingDirectory> staging;  // rank 0
    checkpoint::ShardedSave sharded_save;
  };
  std::mutex mutex;
  std::map<std::int64_t, Save> by_step;  // guarded by mutex: handed to the thread that writes

  void put(std::int64_t step, Save save) {
    const std::lock_guard lock(mutex);
    by_step.insert_or_assign(step, std::move(save));
  }
  Save take(std::int64_t step) {
    const std::lock_guard lock(mutex);
    auto node = by_step.extract(step);
    return node.empty() ? Save{} : std::move(node.mapped());
  }
};

CheckpointManager::CheckpointManager(collective::Communicator& comm, TrainLoop& loop, const TrainConfig& config, std::string config_text,
                                     checkpoint::Fence fence)
    : comm_(comm),
      loop_(loop),
      config_(config),
      config_text_(std::move(config_text)),
      folder_(run_folder(config) + "/checkpoints"),
      fence_(std::move(fence)),
      sharded_(loop.engine().shards_state()),
      sharded_parameters_(sharded_parameters(comm, loop)),
      pending_saves_(std::make_shared<PendingSaves>()) {
  job::run_on_all(comm, "folder of checkpoints", [&] {
    if (comm.rank().value == 0) {
      if (config.checkpoint.resume == "never") move_aside(folder_);
      store_ = std::make_unique<checkpoint::Store>(folder_, checkpoint::StoreOptions{.keep = config.checkpoint.keep, .fence = fence_});
    }
    if (sharded_)
      writer_ =
          std::make_unique<checkpoint::Writer>(save_shard(), checkpoint::WriterOptions{.patience = store_ ? Seconds{0} : kOtherRanks});
    else if (store_)
      writer_ = std::make_unique<checkpoint::Writer>(*store_);
  });
  if (!loop.engine().has_buddy()) return;
  if (store_) rendezvous_ = new_rendezvous(folder_);
  comm.broadcast(collective::piece(std::span(&rendezvous_, 1)), Rank{0}, {.name = "number for an emergency save"});
}

checkpoint::Writer::Save CheckpointManager::save_shard() const {
  return [pending = pending_saves_, store = store_ ? std::optional(*store_) : std::nullopt, folder = folder_](
             const checkpoint::Manifest& manifest, std::span<const checkpoint::TensorFile> files) {
    const auto [staging, sharded_save] = pending->take(manifest.step);
    if (store) return store->save(manifest, files, *staging, sharded_save);
    return checkpoint::contribute(sharded_save, manifest, files, folder + "/" + checkpoint::step_name(manifest.step));
  };
}

void CheckpointManager::find_newest(std::span<std::int64_t> position) {
  if (!fence_.job.empty()) checkpoint::raise_fence(folder_, fence_);
  const auto newest = store_->newest();
  for (const auto& refused : newest.refused)
    log_error("checkpoint {} is damaged and was passed over: {}", refused.path, refused.error.what);
  if (!newest.checkpoint) {
    if (config_.checkpoint.resume == "must")
      throw_failure(Kind::usage, "checkpoint.resume is must, and {} holds no whole checkpoint", folder_);
    return;
  }
  found_ = *newest.checkpoint;
  check_classes(found_, loop_.form(), config_);
  const auto& m = found_.manifest;
  position[0] = m.step, position[1] = m.epoch, position[2] = m.position;
  if (m.world_size != comm_.size())
    log_warning("the checkpoint is of {} ranks, this run has {}: its batches are others than they would have been", m.world_size,
                comm_.size());
  if (const auto scale = m.texts.find("loss_scale"), state = m.texts.find("loss_scale_state"); state != m.texts.end())
    loop_.scale().restore(optim::scale_state_of(state->second), scale == m.texts.end() ? "" : scale->second);
}

std::optional<std::int64_t> CheckpointManager::restore() {
  if (config_.checkpoint.resume == "never") return std::nullopt;
  std::int64_t position[] = {-1, 0, 0};  // step, epoch, samples of the epoch
  job::run_on_all(comm_, "checkpoint to resume from", [&] {
    if (store_) find_newest(position);
  });
  comm_.broadcast(collective::piece(std::span<std::int64_t>(position)), Rank{0}, {.name = "position to resume at"});
  if (position[0] < 0) return std::nullopt;
  optim::ScaleState scale = loop_.scale().state();
  comm_.broadcast({&scale, sizeof scale / 8, collective::Dtype::i64, collective::Device::cpu}, Rank{0}, {.name = "loss scale"});
  loop_.scale().restore(scale, loop_.scale().spec());
  if (sharded_)
    job::run_on_all(comm_, "manifest of the checkpoint", [&] {
      const auto path = folder_ + "/" + checkpoint::step_name(position[0]);
      if (!store_) found_ = {path, checkpoint::read_manifest(path, position[0])};
    });
  read_state(found_, comm_, loop_, sharded_parameters_);
  loop_.start_at(position[1], position[2], position[0]);
  last_saved_ = saved_step_ = position[0];
  return position[0];
}

void CheckpointManager::save_if_due(bool epoch_ended) {
  const auto& c = config_.checkpoint;
  const bool by_step = c.every_steps > 0 && loop_.step() % c.every_steps == 0;
  const bool by_epoch = epoch_ended && c.every_epochs > 0 && loop_.position().epoch % c.every_epochs == 0;
  if ((by_step || by_epoch) && loop_.non_finite().in_a_row() == 0) save();  // what may have diverged does not replace what had not
  while (const auto outcome = writer_ ? writer_->poll() : std::nullopt) note(*outcome);
}

void CheckpointManager::save() {
  loop_.average_buffers();   // training goes on with what is saved: a resumed run has the bits of one that never stopped
  loop_.compare_replicas();  // a divergence is not saved
  if (sharded_) return save_sharded();
  if (writer_) save_whole();
}

void CheckpointManager::save_whole() {
  if (last_saved_ == loop_.step()) return;
  if (writer_->busy()) return note_skipped();
  if (writer_->submit(snapshot())) last_saved_ = loop_.step();
}

// The second in a row is an alarm: with every further step more would be lost.
void CheckpointManager::note_skipped() {
  log_warning("no checkpoint at step {}: the one before is still being written", loop_.step());
  if (++skipped_ == kAlarm)
    log_error("alarm: {} checkpoints in a row were left out, {}; look at the disk of {}, it is slow or hangs", skipped_,
              saved_step_ < 0 ? "none is whole yet" : fmt::format("the newest whole one is of step {}", saved_step_), folder_);
}

// Rank 0 decides and broadcasts the folder; then every rank copies its shards and goes on training.
void CheckpointManager::save_sharded() {
  std::array<std::int64_t, kMostNameBytes / sizeof(std::int64_t)> folder_name{};
  auto staging = open_staging();
  const auto name = staging ? std::filesystem::path(staging->path()).filename().string() : std::string{};
  std::memcpy(folder_name.data(), name.data(), std::min(name.size(), kMostNameBytes - 1));
  comm_.broadcast(collective::piece(std::span<std::int64_t>(folder_name)), Rank{0}, {.name = "folder of this checkpoint"});
  const std::string received(reinterpret_cast<const char*>(folder_name.data()));
  if (received.empty()) return;
  const auto step = loop_.step();
  const checkpoint::ShardedSave sharded_save{folder_ + "/" + received, comm_.rank().value, comm_.size()};
  pending_saves_->put(step, {std::move(staging), sharded_save});
  in_flight_ = sharded_save.folder;
  if (writer_->submit(snapshot())) return void(last_saved_ = step);
  pending_saves_->take(step);
  checkpoint::decline(sharded_save, step, {Kind::timeout, "the checkpoint before is still being written", comm_.rank()});
}

std::unique_ptr<checkpoint::StagingDirectory> CheckpointManager::open_staging() {
  if (!store_ || last_saved_ == loop_.step()) return nullptr;
  try {
    if (!writer_->busy()) return std::make_unique<checkpoint::StagingDirectory>(checkpoint::staging_path(folder_, loop_.step()));
    note_skipped();
  } catch (const Failure& failure) {
    note({loop_.step(), failure.error(), std::nullopt, Seconds{0}});
  }
  return nullptr;
}

checkpoint::Snapshot CheckpointManager::snapshot() {
  auto made = writer_->begin();
  describe(made.manifest);
  write_state(made, comm_, loop_, sharded_parameters_);
  return made;
}

void CheckpointManager::describe(checkpoint::Manifest& m) const {
  m.step = loop_.step();
  m.epoch = loop_.position().epoch;
  m.position = loop_.samples_taken();
  m.world_size = comm_.size();
  m.cohort_version = COHORT_VERSION;
  m.torch_version = TORCH_VERSION;
  m.texts["config"] = config_text_;
  m.texts["model"] = config_.model;
  m.texts["optimizer"] = loop_.engine().rule()->spec();
  m.texts["loss_scale"] = loop_.scale().spec();
  m.texts["loss_scale_state"] = to_text(loop_.scale().state());
  m.texts["transforms"] = loop_.transforms().text();
  const auto& form = loop_.form();
  m.values["data"] =
      nlohmann::json{{"shape", form.shape}, {"classes", form.classes}, {"names", form.names}, {"tokens", form.vocabulary}}.dump();
}

std::optional<checkpoint::Checkpoint> CheckpointManager::save_emergency(const Error& why) {
  const int lost = why.rank.value, me = comm_.rank().value;
  if (!loop_.engine().has_buddy() || why.rank == kNoRank || lost == me) return std::nullopt;
  if (!in_flight_.empty() && lost > 0 && me == (lost + 1) % comm_.size())  // the others no longer wait for its part
    checkpoint::decline({in_flight_, lost, comm_.size()}, last_saved_, why);
  try {
    EmergencySave emergency({me, comm_.size(), lost}, folder_, rendezvous_);
    emergency.agree_on_step(loop_);
    return emergency.save(
        loop_, [this](checkpoint::Manifest& m) { describe(m); }, config_.checkpoint.keep);
  } catch (const Failure& failure) {
    log_error("rank {} was lost, and its shards could not be saved: {}; the checkpoint before stays", lost, failure.what());
    return std::nullopt;
  }
}

void CheckpointManager::abandon_save(std::span<const Rank> lost) noexcept {
  if (!sharded_ || in_flight_.empty() || !writer_->busy()) return;
  for (const Rank rank : lost) {
    if (rank == Rank{0})
      checkpoint::abandon_staging(in_flight_);  // rank 0 ends saves: without it the folder goes, and the others see that it has gone
    else if (store_)
      checkpoint::decline({in_flight_, rank.value, comm_.size()}, last_saved_, {Kind::peer_lost, "it was lost during the save", rank});
  }
}

void CheckpointManager::note(const checkpoint::Outcome& outcome) {
  if (!outcome.error) return void((saved_step_ = outcome.step, skipped_ = 0));
  if (last_saved_ == outcome.step) last_saved_ = -1;
  log_error("the checkpoint of step {} was not written: {}; training goes on, the one before stays", outcome.step, outcome.error->what);
}

std::int64_t CheckpointManager::newest_step(const std::atomic<bool>* aborted) {
  finish(aborted);
  std::int64_t newest = -1;
  job::run_on_all(comm_, "newest checkpoint", [&] {
    if (!store_) return;
    if (const auto found = store_->newest().checkpoint) newest = found->manifest.step;
  });
  comm_.broadcast(collective::piece(std::span(&newest, 1)), Rank{0}, {.name = "newest checkpoint"});
  return newest;
}

void CheckpointManager::finish(const std::atomic<bool>* aborted) {
  if (!writer_) return;
  const Deadline deadline = Deadline::in(kLastSave);
  while (true) {
    try {
      const auto outcome = writer_->wait(aborted != nullptr ? deadline.sooner(Deadline::in(kAbortPoll)) : deadline);
      if (!outcome) return;
      note(*outcome);
    } catch (const Failure& failure) {
      if (aborted != nullptr && *aborted)
        throw_failure(Kind::aborted, "a rank was lost while the checkpoint of step {} was being written", last_saved_);
      if (deadline.passed()) return log_error("{}", failure.what());  // a disk that hangs
    }
  }
}

}  // namespace cohort::train
