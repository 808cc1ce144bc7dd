#include "cohort/train/loop/checkpoint_manager.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <random>

#include "cohort/base/file.h"
#include "cohort/base/log.h"
#include "cohort/base/text.h"
#include "cohort/checkpoint/sharded_save.h"
#include "cohort/checkpoint/staging_directory.h"
#include "cohort/data/form_json.h"
#include "cohort/job/run_on_all.h"
#include "cohort/train/loop/emergency_save.h"

namespace cohort::train {
namespace {

constexpr Seconds kLastSave{120};   // how long the end of a run waits for its last checkpoint
constexpr Seconds kAbortPoll{0.1};  // .. and how often it checks whether the wait was aborted

constexpr Seconds kOtherRanks{1};  // rank 0 knows the end of a save before the others do
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

// A job with a fixed number of ranks has no name that is another one at each start.
checkpoint::Fence fence_of(collective::Communicator& comm, checkpoint::Fence given) {
  if (!given.job.empty()) return given;
  std::array<std::int64_t, 2> drawn{};
  std::random_device random;
  if (comm.rank().value == 0)
    for (auto& number : drawn) number = static_cast<std::int64_t>((std::uint64_t{random()} << 32) | random());
  comm.broadcast(collective::piece(std::span<std::int64_t>(drawn)), Rank{0}, {.name = "name of this job"});
  return {fmt::format("{:016x}{:016x}", static_cast<std::uint64_t>(drawn[0]), static_cast<std::uint64_t>(drawn[1])), 0};
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
      fence_(fence_of(comm, std::move(fence))),
      sharded_(loop.engine().shards_state() || loop.engine().has_own_state() || loop.engine().has_boxes()),
      sharded_parameters_(sharded_parameters(comm, loop)),
      pending_saves_(std::make_shared<PendingSaves>()),
      job_goes_on_(fence_.epoch > 0) {
  job::run_on_all(comm, "folder of checkpoints", [&] {
    if (comm.rank().value == 0) open_store();
    if (sharded_)
      writer_ =
          std::make_unique<checkpoint::Writer>(save_shard(), checkpoint::WriterOptions{.patience = store_ ? Seconds{0} : kOtherRanks});
    else if (store_)
      writer_ = std::make_unique<checkpoint::Writer>(*store_);
  });
  if (!loop.engine().has_buddy()) return;
  if (store_) rendezvous_ = new_rendezvous(folder_, kOwnParts);
  comm.broadcast(collective::piece(std::span(&rendezvous_, 1)), Rank{0}, {.name = "number for an emergency save"});
}

// Between two rank 0 the folder must not be without an owner: on a full disk the next one could not write its name, and another job might.
CheckpointManager::~CheckpointManager() {
  if (run_lock_ && job_goes_on_) run_lock_->leave_it();
}

// The newest checkpoint is one whose parameters no step has used yet: it may have diverged, and the one before it has not.
checkpoint::StoreOptions CheckpointManager::store_options() const {
  constexpr int kFewest = 2;
  return {.keep = std::max(config_.checkpoint.keep, kFewest), .followed = false, .fence = fence_};
}

// First the folder is ours; then nobody changes what is in it. A new rank 0 of a job that trains goes on without, and tries again with the
// next save: the next rank 0 would meet the same disk.
void CheckpointManager::open_store() {
  folder_watch_ = std::make_unique<FolderWatch>(run_folder(config_));
  const bool elastic = fence_.epoch > 0, starts_over = config_.checkpoint.resume == "never", trains = fence_.epoch > 1;
  checkpoint::StoreOptions options = store_options();
  options.prepared = false;
  if (trains) {
    store_ = std::make_unique<checkpoint::Store>(folder_, options);
    return void(hold_folder());
  }
  lock_run();
  if (starts_over) move_aside(folder_);  // which may take long, and the folder answers
  const auto look = folder_watch_->look();
  options.prepared = held_ = true;
  store_ = std::make_unique<checkpoint::Store>(folder_, options);
  if (!elastic || starts_over) checkpoint::raise_fence(open_folder(), fence_);
}

void CheckpointManager::lock_run() {
  if (run_lock_) return;
  const auto run = run_folder(config_);
  const auto look = folder_watch_->look();
  checkpoint::make_durable_folder(run);
  checkpoint::RunLockOptions options{.takeover = config_.checkpoint.takeover, .had = fence_.epoch > 1};
  options.looked = [this] { folder_watch_->answered(); };  // it may wait for an owner for a minute
  run_lock_ = std::make_unique<checkpoint::RunLock>(run, checkpoint::this_process(fence_.job), options);
}

bool CheckpointManager::hold_folder() {
  if (held_) return true;
  try {
    lock_run();
    const auto look = folder_watch_->look();
    store_->prepare();
  } catch (const std::exception& error) {
    const auto* failure = dynamic_cast<const Failure*>(&error);
    if (failure != nullptr && failure->kind() == Kind::usage) throw;  // another run has it
    log_warning("{}; training goes on, and the next checkpoint tries again", error.what());
    return false;
  }
  held_ = true;
  return true;
}

// The fence tells of a job that has ended again, too.
void CheckpointManager::note_owner() {
  const auto folder = Folder::if_there(folder_, kOwnParts);
  const auto fence = folder ? checkpoint::raised_fence(*folder) : std::nullopt;
  if (!fence || *fence == fence_) return;
  const bool other = fence->job != fence_.job;
  fenced_off_ = other || fence->epoch > fence_.epoch;
  if (other && owner_.empty()) owner_ = "job " + printable(fence->job);
}

bool CheckpointManager::may_write() {
  if (!store_ || fenced_off_ || taken_over()) return store_ == nullptr;
  const auto look = folder_watch_->look();
  try {
    note_owner();
  } catch (const std::exception& error) {
    log_debug("{}: {}", folder_, error.what());  // a network file system that is away for a while
  }
  return !fenced_off_ && (!run_lock_ || run_lock_->holds());
}

void CheckpointManager::refuse_if_taken_over(collective::Communicator* comm) {
  const auto refuse = [&] {
    may_write();
    if (!store_ || !taken_over()) return;
    const std::string owner = run_lock_ && run_lock_->taken() ? run_lock_->owner() : owner_;
    throw_failure(Kind::usage,
                  "{} was taken over by {}: this run can save nothing there any more, so it ends after update {} of {}; what it learned "
                  "since {} is lost. Start it again with another `out` to have both runs",
                  run_folder(config_), owner, loop_.step(), loop_.total_steps(),
                  saved_step_ < 0 ? "its beginning" : fmt::format("its checkpoint of step {}", saved_step_));
  };
  comm != nullptr ? job::run_on_all(*comm, "folder of the run", refuse) : refuse();
}

checkpoint::Writer::Save CheckpointManager::save_shard() const {
  return [pending = pending_saves_, store = store_ ? std::optional(*store_) : std::nullopt, folder = folder_](
             const checkpoint::Manifest& manifest, std::span<const checkpoint::TensorFile> files) {
    const auto [staging, sharded_save] = pending->take(manifest.step);
    if (store) return store->save(manifest, files, *staging, sharded_save);
    return checkpoint::contribute(sharded_save, manifest, files, folder + "/" + checkpoint::step_name(manifest.step));
  };
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
  const engine::Consensus consensus(loop_.engine());
  if (!finite()) return;  // nor is a model that is lost: the one before stays the newest
  if (sharded_) return save_sharded();
  if (writer_) save_whole();
}

void CheckpointManager::save_whole() {
  if (last_saved_ == loop_.step() || fenced_off_ || taken_over()) return;
  if (writer_->busy()) return note_left_out();
  if (!may_save()) return;
  if (!writer_->submit(snapshot())) return;
  last_saved_ = loop_.step();
  left_out_.submitted(Clock::now());
}

// Rank 0. Without the run's folder nothing is written: another run may have it.
bool CheckpointManager::may_save() {
  try {
    if (hold_folder() && raise_due_fence()) return true;
  } catch (const Failure& failure) {
    owner_ = "another run";
    log_error("{}", failure.what());
  }
  write_failed_ = true;
  return false;
}

// Each rank looks at what it would write.
bool CheckpointManager::finite() {
  const torch::NoGradGuard no_grad;
  std::string found;
  const auto look = [&](const std::string& name, const at::Tensor& t) {
    if (!found.empty() || t.numel() == 0 || !t.is_floating_point()) return;
    if (std::isfinite(t.sum().item<double>()) || t.isfinite().all().item<bool>()) return;  // the sum of finite ones may overflow
    found = name;
  };
  if (loop_.engine().shards_parameters())
    loop_.engine().visit([&](const StateItem& item) {
      if (item.state.empty()) look(std::string(item.parameter), engine::borrowed(item.values));
    });
  else if (store_ || loop_.engine().has_boxes())
    for (const auto& [name, p] : loop_.model().named_parameters()) look(name, p.detach());
  std::int32_t bad = found.empty() ? 0 : 1;
  comm_.all_reduce(collective::piece(std::span(&bad, 1)), collective::Op::max, {.name = "are all parameters finite"});
  if (!found.empty())
    log_error("no checkpoint at step {}: parameter '{}' has values that are inf or nan, training has diverged; {}", loop_.step(), found,
              saved_step_ < 0 ? "there is none from before" : fmt::format("the one of step {} stays the newest", saved_step_));
  return bad == 0;
}

void CheckpointManager::note_left_out() {
  const auto now = Clock::now();
  const auto say = left_out_.add(now);
  if (say == LeftOutSaves::Say::nothing) return;
  const int row = left_out_.in_a_row();
  log_warning("no checkpoint at step {}: the one before is still being written{}", loop_.step(),
              row > 1 ? fmt::format(" ({} left out in a row)", row) : "");
  if (say == LeftOutSaves::Say::alarm)
    log_error("alarm: {} checkpoints in a row were left out, {}; look at the disk of {}, it is slow or hangs: one write takes more than {}",
              row, saved_step_ < 0 ? "none is whole yet" : fmt::format("the newest whole one is of step {}", saved_step_), folder_,
              format_seconds(left_out_.writing_for(now)));
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
  const auto sharded_save = sharded_save_in(folder_ + "/" + received, comm_.rank().value);
  pending_saves_->put(step, {std::move(staging), sharded_save});
  in_flight_ = sharded_save.folder;
  if (writer_->submit(snapshot())) return void((last_saved_ = step, left_out_.submitted(Clock::now())));
  pending_saves_->take(step);
  checkpoint::decline(sharded_save, step, {Kind::timeout, "the checkpoint before is still being written", comm_.rank()});
}

std::unique_ptr<checkpoint::StagingDirectory> CheckpointManager::open_staging() {
  if (!store_ || last_saved_ == loop_.step() || fenced_off_ || taken_over()) return nullptr;
  try {
    if (writer_->busy()) return note_left_out(), nullptr;
    if (!may_save()) return nullptr;
    return std::make_unique<checkpoint::StagingDirectory>(checkpoint::staging_path(folder_, loop_.step()), kOwnParts);
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
  m.texts["model"] = loop_.model_spec();
  m.texts[kTrainedOnText] = config_.data.train;
  m.texts[kLossText] = config_.loss;
  m.texts["optimizer"] = loop_.engine().rule()->spec();
  m.texts["loss_scale"] = loop_.scale().spec();
  m.texts["loss_scale_state"] = to_text(loop_.scale().state());
  m.texts["transforms"] = loop_.transforms().text();
  m.texts[kDataText] = data::to_text(loop_.data_fingerprint());
  if (loop_.optimizer_start() > 0) m.texts[kOptimizerStartText] = std::to_string(loop_.optimizer_start());
  if (loop_.non_finite().in_a_row() > 0) m.texts[kNotFiniteText] = std::to_string(loop_.non_finite().in_a_row());
  m.values["data"] = data::to_json(loop_.form());
}

std::optional<checkpoint::Checkpoint> CheckpointManager::save_emergency(const Error& why) {
  const int lost = why.rank.value, me = comm_.rank().value;
  if (!loop_.engine().has_buddy() || why.rank == kNoRank || why.kind == Kind::usage || lost == me) return std::nullopt;
  if (!in_flight_.empty() && lost > 0 && me == (lost + 1) % comm_.size())  // the others no longer wait for its part
    checkpoint::decline(sharded_save_in(in_flight_, lost), last_saved_, why);
  try {
    if (const auto folder = Folder::if_there(folder_, kOwnParts)) checkpoint::check_fence(*folder, fence_);
    EmergencySave emergency({me, comm_.size(), lost}, folder_, kOwnParts, rendezvous_);
    emergency.agree_on_step(loop_);
    return emergency.save(
        loop_, [this](checkpoint::Manifest& m) { describe(m); }, store_options());
  } catch (const Failure& failure) {
    log_error("rank {} was lost, and its shards could not be saved: {}; the checkpoint before stays", lost, failure.what());
    return std::nullopt;
  }
}

checkpoint::ShardedSave CheckpointManager::sharded_save_in(const std::string& staging, int rank) const {
  return {.folder = staging, .rank = rank, .ranks = comm_.size(), .own = kOwnParts + 1};
}

void CheckpointManager::abandon_in_flight() const noexcept {
  try {
    checkpoint::abandon_staging({open_folder(), std::filesystem::path(in_flight_).filename().string()});
  } catch (const std::exception& error) {
    log_debug("{}: {}", in_flight_, error.what());  // it is gone, or somebody put another thing in its place
  }
}

void CheckpointManager::abandon_save(std::span<const Rank> lost) noexcept {
  if (!sharded_ || in_flight_.empty() || !writer_->busy()) return;
  for (const Rank rank : lost) {
    if (rank == Rank{0})
      abandon_in_flight();  // rank 0 ends saves: without it the folder goes, and the others see that it has gone
    else if (store_)
      checkpoint::decline(sharded_save_in(in_flight_, rank.value), last_saved_, {Kind::peer_lost, "it was lost during the save", rank});
  }
}

void CheckpointManager::note(const checkpoint::Outcome& outcome) {
  if (!outcome.error) return void((saved_step_ = outcome.step, left_out_.written()));
  if (last_saved_ == outcome.step) last_saved_ = -1;
  write_failed_ = true;
  may_write();
  if (taken_over()) return log_debug("{}", outcome.error->what);  // the run ends, and says so
  if (fenced_off_) return log_error("{}; this worker saves no more", outcome.error->what);
  if (std::exchange(told_, outcome.error->what) == outcome.error->what) return log_debug("{}", told_);  // the last one, tried again
  log_error("the checkpoint of step {} was not written: {}{}", outcome.step, told_, ending_ ? "" : "; training goes on");
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
