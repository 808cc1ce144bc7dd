#include "cohort/train/loop/keeper.h"

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
#include "cohort/checkpoint/party.h"
#include "cohort/checkpoint/workshop.h"
#include "cohort/train/loop/rescue.h"
#include "cohort/train/loop/together.h"

namespace cohort {
namespace {

constexpr Seconds kLastSave{120};  // how long the end of a run waits for its last checkpoint
constexpr Seconds kLook{0.1};      // .. and how often it looks whether that is still of use

constexpr Seconds kOtherRanks{1};  // rank 0 has heard of the end of a save before the others have
constexpr int kAlarm = 2;          // checkpoints left out in a row
constexpr std::size_t kMostNameBytes = 128;

// A run that starts anew must not find, count or prune the checkpoints of the one before: they move to <folder>.old, one generation of
// them.
void set_aside(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::exists(folder, error) || fs::is_empty(folder, error)) return;
  error = remove_tree(folder + ".old");
  if (!error) fs::rename(folder, folder + ".old", error);
  if (error) throw_failure(Kind::system, "cannot move {} to {}.old: {}; say another `out`", folder, folder, error.message());
  log_info("starting anew: the checkpoints of the run before are in {}.old", folder);
}

}  // namespace

struct Keeper::Errand {
  struct Save {
    std::unique_ptr<checkpoint::Workshop> workshop;  // rank 0
    checkpoint::Party party;
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

Keeper::Keeper(collective::Communicator& comm, Learner& learner, const TrainConfig& config, std::string config_text, checkpoint::Fence mine)
    : comm_(comm),
      learner_(learner),
      config_(config),
      config_text_(std::move(config_text)),
      folder_(run_folder(config) + "/checkpoints"),
      mine_(std::move(mine)),
      sharded_(learner.engine().shards_state()),
      in_pieces_(sharded_parameters(comm, learner)),
      errand_(std::make_shared<Errand>()) {
  together(comm, "folder of checkpoints", [&] {
    if (comm.rank().value == 0) {
      if (config.checkpoint.resume == "never") set_aside(folder_);
      store_ = std::make_unique<checkpoint::Store>(folder_, checkpoint::StoreOptions{.keep = config.checkpoint.keep, .fence = mine_});
    }
    if (sharded_)
      writer_ = std::make_unique<checkpoint::Writer>(save_with_others(),
                                                     checkpoint::WriterOptions{.patience = store_ ? Seconds{0} : kOtherRanks});
    else if (store_)
      writer_ = std::make_unique<checkpoint::Writer>(*store_);
  });
  if (!learner.engine().has_buddy()) return;
  if (store_) meeting_ = new_meeting(folder_);
  comm.broadcast(collective::piece(std::span(&meeting_, 1)), Rank{0}, {.name = "where survivors would meet"});
}

checkpoint::Writer::Save Keeper::save_with_others() const {
  return [errand = errand_, store = store_ ? std::optional(*store_) : std::nullopt, folder = folder_](
             const checkpoint::Manifest& manifest, std::span<const checkpoint::TensorFile> files) {
    const auto [workshop, party] = errand->take(manifest.step);
    if (store) return store->save(manifest, files, *workshop, party);
    return checkpoint::contribute(party, manifest, files, folder + "/" + checkpoint::step_name(manifest.step));
  };
}

void Keeper::find(std::span<std::int64_t> where) {
  if (!mine_.job.empty()) checkpoint::raise_fence(folder_, mine_);
  const auto newest = store_->newest();
  for (const auto& refused : newest.refused)
    log_error("checkpoint {} is damaged and was passed over: {}", refused.path, refused.error.what);
  if (!newest.checkpoint) {
    if (config_.checkpoint.resume == "must")
      throw_failure(Kind::usage, "checkpoint.resume is must, and {} holds no whole checkpoint", folder_);
    return;
  }
  found_ = *newest.checkpoint;
  const auto& m = found_.manifest;
  where[0] = m.step, where[1] = m.epoch, where[2] = m.position;
  if (m.world_size != comm_.size())
    log_warning("the checkpoint is of {} ranks, this run has {}: it goes on with other batches than it would have had", m.world_size,
                comm_.size());
  if (const auto scale = m.texts.find("loss_scale"), state = m.texts.find("loss_scale_state"); state != m.texts.end())
    learner_.scale().restore(optim::scale_state_of(state->second), scale == m.texts.end() ? "" : scale->second);
}

std::optional<std::int64_t> Keeper::restore() {
  if (config_.checkpoint.resume == "never") return std::nullopt;
  std::int64_t where[] = {-1, 0, 0};  // step, epoch, samples of the epoch
  together(comm_, "checkpoint to go on from", [&] {
    if (store_) find(where);
  });
  comm_.broadcast(collective::piece(std::span<std::int64_t>(where)), Rank{0}, {.name = "where to go on"});
  if (where[0] < 0) return std::nullopt;
  optim::ScaleState scale = learner_.scale().state();
  comm_.broadcast({&scale, sizeof scale / 8, collective::Dtype::i64, collective::Device::cpu}, Rank{0}, {.name = "loss scale"});
  learner_.scale().restore(scale, learner_.scale().spec());
  if (sharded_)
    together(comm_, "manifest of the checkpoint", [&] {
      const auto path = folder_ + "/" + checkpoint::step_name(where[0]);
      if (!store_) found_ = {path, checkpoint::read_manifest(path, where[0])};
    });
  unstow(found_, comm_, learner_, in_pieces_);
  learner_.start_at(where[1], where[2], where[0]);
  last_saved_ = saved_step_ = where[0];
  return where[0];
}

void Keeper::save_if_due(bool epoch_ended) {
  const auto& c = config_.checkpoint;
  const bool by_step = c.every_steps > 0 && learner_.step() % c.every_steps == 0;
  const bool by_epoch = epoch_ended && c.every_epochs > 0 && learner_.position().epoch % c.every_epochs == 0;
  if (by_step || by_epoch) save();
  while (const auto outcome = writer_ ? writer_->poll() : std::nullopt) note(*outcome);
}

void Keeper::save() {
  learner_.agree_on_buffers();  // what is saved is also what goes on: a resumed run has the bits of one that never stopped
  learner_.compare_replicas();  // and what is wrong is not saved
  if (sharded_) return save_together();
  if (writer_) save_alone();
}

void Keeper::save_alone() {
  if (last_saved_ == learner_.step()) return;
  if (writer_->busy()) return note_skipped();
  if (writer_->submit(snapshot())) last_saved_ = learner_.step();
}

// The second in a row is an alarm: with every further step more would be lost.
void Keeper::note_skipped() {
  log_warning("no checkpoint at step {}: the one before is still being written", learner_.step());
  if (++skipped_ == kAlarm)
    log_error("alarm: {} checkpoints in a row were left out, {}; look at the disk of {}, it is slow or hangs", skipped_,
              saved_step_ < 0 ? "none is whole yet" : fmt::format("the newest whole one is of step {}", saved_step_), folder_);
}

// Rank 0 decides and says where; then every rank copies its own and goes on training.
void Keeper::save_together() {
  std::array<std::int64_t, kMostNameBytes / sizeof(std::int64_t)> said{};
  auto workshop = open_workshop();
  const auto name = workshop ? std::filesystem::path(workshop->path()).filename().string() : std::string{};
  std::memcpy(said.data(), name.data(), std::min(name.size(), kMostNameBytes - 1));
  comm_.broadcast(collective::piece(std::span<std::int64_t>(said)), Rank{0}, {.name = "where this checkpoint is written"});
  const std::string heard(reinterpret_cast<const char*>(said.data()));
  if (heard.empty()) return;
  const auto step = learner_.step();
  const checkpoint::Party party{folder_ + "/" + heard, comm_.rank().value, comm_.size()};
  errand_->put(step, {std::move(workshop), party});
  in_flight_ = party.folder;
  if (writer_->submit(snapshot())) return void(last_saved_ = step);
  errand_->take(step);
  checkpoint::decline(party, step, {Kind::timeout, "the checkpoint before is still being written", comm_.rank()});
}

std::unique_ptr<checkpoint::Workshop> Keeper::open_workshop() {
  if (!store_ || last_saved_ == learner_.step()) return nullptr;
  try {
    if (!writer_->busy()) return std::make_unique<checkpoint::Workshop>(checkpoint::workshop_path(folder_, learner_.step()));
    note_skipped();
  } catch (const Failure& failure) {
    note({learner_.step(), failure.error(), std::nullopt, Seconds{0}});
  }
  return nullptr;
}

checkpoint::Snapshot Keeper::snapshot() {
  auto made = writer_->begin();
  describe(made.manifest);
  stow(made, comm_, learner_, in_pieces_);
  return made;
}

void Keeper::describe(checkpoint::Manifest& m) const {
  m.step = learner_.step();
  m.epoch = learner_.position().epoch;
  m.position = learner_.samples_taken();
  m.world_size = comm_.size();
  m.cohort_version = COHORT_VERSION;
  m.torch_version = TORCH_VERSION;
  m.texts["config"] = config_text_;
  m.texts["model"] = config_.model;
  m.texts["optimizer"] = learner_.engine().rule()->spec();
  m.texts["loss_scale"] = learner_.scale().spec();
  m.texts["loss_scale_state"] = to_text(learner_.scale().state());
  m.texts["transforms"] = learner_.transforms().text();
  const auto& form = learner_.form();
  m.values["data"] =
      nlohmann::json{{"shape", form.shape}, {"classes", form.classes}, {"names", form.names}, {"tokens", form.vocabulary}}.dump();
}

std::optional<checkpoint::Checkpoint> Keeper::rescue(const Error& why) {
  const int lost = why.rank.value, me = comm_.rank().value;
  if (!learner_.engine().has_buddy() || why.rank == kNoRank || lost == me) return std::nullopt;
  if (!in_flight_.empty() && lost > 0 && me == (lost + 1) % comm_.size())  // nobody shall wait for its part
    checkpoint::decline({in_flight_, lost, comm_.size()}, last_saved_, why);
  try {
    Rescue survivors({me, comm_.size(), lost}, folder_, meeting_);
    survivors.agree(learner_);
    return survivors.save(
        learner_, [this](checkpoint::Manifest& m) { describe(m); }, config_.checkpoint.keep);
  } catch (const Failure& failure) {
    log_error("rank {} was lost, and what it had could not be saved: {}; the checkpoint before stays", lost, failure.what());
    return std::nullopt;
  }
}

void Keeper::call_off(std::span<const Rank> lost) noexcept {
  if (!sharded_ || in_flight_.empty() || !writer_->busy()) return;
  for (const Rank rank : lost) {
    if (rank == Rank{0})
      checkpoint::abandon_workshop(in_flight_);  // nobody is left to end it; the others notice that it is gone
    else if (store_)
      checkpoint::decline({in_flight_, rank.value, comm_.size()}, last_saved_, {Kind::peer_lost, "it was lost before", rank});
  }
}

void Keeper::note(const checkpoint::Outcome& outcome) {
  if (!outcome.error) return void((saved_step_ = outcome.step, skipped_ = 0));
  if (last_saved_ == outcome.step) last_saved_ = -1;
  log_error("the checkpoint of step {} was not written: {}; training goes on, the one before stays", outcome.step, outcome.error->what);
}

void Keeper::finish(const std::atomic<bool>* given_up) {
  if (!writer_) return;
  const Deadline deadline = Deadline::in(kLastSave);
  while (true) {
    try {
      const auto outcome = writer_->wait(given_up != nullptr ? deadline.sooner(Deadline::in(kLook)) : deadline);
      if (!outcome) return;
      note(*outcome);
    } catch (const Failure& failure) {
      if (given_up != nullptr && *given_up)
        throw_failure(Kind::aborted, "a rank was lost while the checkpoint of step {} was being written", last_saved_);
      if (deadline.passed()) return log_error("{}", failure.what());  // a disk that hangs
    }
  }
}

}  // namespace cohort
