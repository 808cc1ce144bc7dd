// The CheckpointManager saves and restores a run: parameters, buffers, optimizer state, position. It writes in the background. Where all
// ranks hold the same values rank 0 writes (model.safetensors, optimizer.safetensors, manifest.json); where the engine shards, every rank
// writes what it owns, all into one checkpoint, which is complete when the last part is (checkpoint/sharded_save.h). Any number of ranks at
// any stage can resume from either (another number rebalances the rest of the epoch). Owner: Trainer. Threads: one. Failure: restore()
// throws, on all ranks; a save that fails (full disk) is reported, on all ranks that had a part in it, and training goes on.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cohort/base/folder.h"
#include "cohort/checkpoint/run_lock.h"
#include "cohort/checkpoint/writer.h"
#include "cohort/train/loop/folder_watch.h"
#include "cohort/train/loop/left_out_saves.h"
#include "cohort/train/loop/state_io.h"

namespace cohort::checkpoint {
class StagingDirectory;
struct ShardedSave;
}  // namespace cohort::checkpoint

namespace cohort::train {

// Texts of a manifest that `cohort predict` reads.
inline constexpr const char* kTrainedOnText = "trained_on";  // the spec of data.train
inline constexpr const char* kLossText = "loss";             // the setting

class CheckpointManager {
 public:
  // fence: of an elastic job, which epoch saves; restore() keeps processes of earlier ones from doing so (checkpoint/fence.h). Without one
  // the job gets a name of its own, and whoever saved here before saves no more. While this lives the run's folder is this job's: another
  // one is refused (checkpoint/run_lock.h).
  CheckpointManager(collective::Communicator& comm, TrainLoop& loop, const TrainConfig& config, std::string config_text,
                    checkpoint::Fence fence = {});
  ~CheckpointManager();  // of an elastic job: the folder stays the job's, unless it ends
  CheckpointManager(const CheckpointManager&) = delete;
  CheckpointManager& operator=(const CheckpointManager&) = delete;
  void job_ends() { job_goes_on_ = false; }

  // The step it resumed from, the same on every rank. Checkpoints that are damaged or hold parameters that are not finite are passed over,
  // with errors in the log; when no other is there it throws. So it does where settings or data must not change (resume.h).
  std::optional<std::int64_t> restore();
  // What is not as it was when the checkpoint was made, as lines to print; rank 0 only. Empty: nothing, or no checkpoint.
  std::string changes() const;
  void save_if_due(bool epoch_ended);  // after a step
  void save();                         // now; every rank calls it
  // Waits for the save in flight, bounded. aborted: set by another thread when other ranks of it are lost: Kind::aborted.
  void finish(const std::atomic<bool>* aborted = nullptr);
  // Collective: the last one of the run is written, and tried again for checkpoint.last_try. Whether it is on disk.
  bool save_last(const std::atomic<bool>* aborted = nullptr);
  std::string lost_text() const;  // after that failed: what is lost and what is kept
  // With buddy copies, after a rank was lost (`why` names it): the survivors save what all of them and the lost one had. The checkpoint, or
  // nothing, and the log says why. Not a collective: ranks coordinate through files (emergency_save.h).
  std::optional<checkpoint::Checkpoint> save_emergency(const Error& why);
  // A save in flight no longer waits for these ranks. Not a collective.
  void abandon_save(std::span<const Rank> lost) noexcept;
  // Collective, when training has diverged: no step since this one was finite. The step of the newest checkpoint, after the save in flight,
  // that had a finite step after it; newer ones are set aside, so that no run resumes from them. Where none had: of the newest; -1: there
  // is none.
  std::int64_t newest_before(std::int64_t since, const std::atomic<bool>* aborted = nullptr);
  bool saved() const { return !writer_ || saved_step_ == loop_.step(); }  // the newest update is on disk
  const std::string& folder() const { return folder_; }
  // Rank 0, whose files they are: whether the run's folder still is this job's. It looks, so it is asked before each thing written there.
  bool may_write();
  bool taken_over() const { return !owner_.empty() || (run_lock_ && run_lock_->taken()); }  // rank 0: by another job, as far as is known
  // Kind::usage on rank 0 once another job has the folder: nothing can be saved any more. With a communicator: on all its ranks.
  void refuse_if_taken_over(collective::Communicator* comm = nullptr);

 private:
  struct PendingSaves;
  checkpoint::Snapshot snapshot();
  void describe(checkpoint::Manifest& m) const;
  checkpoint::Writer::Save save_shard() const;
  Folder open_folder() const { return {folder_, kOwnParts}; }  // of checkpoints
  void open_store();
  void lock_run();
  bool hold_folder();  // rank 0: the run's folder is this job's, and can be written
  bool may_save();     // the same, tried with each save
  bool raise_due_fence();
  checkpoint::ShardedSave sharded_save_in(const std::string& staging, int rank) const;
  void abandon_in_flight() const noexcept;
  void note_owner();
  void save_whole();
  void save_sharded();
  std::unique_ptr<checkpoint::StagingDirectory> open_staging();  // rank 0: where this save is written; none: no save now
  struct ResumePoint;
  void find_newest(ResumePoint& at);  // rank 0: the newest checkpoint that can be used
  checkpoint::Newest newest_usable(const std::function<void(const checkpoint::Checkpoint&)>& accept = nullptr) const;
  std::int64_t set_diverged_aside(std::int64_t since);  // rank 0
  checkpoint::StoreOptions store_options() const;
  [[noreturn]] void refuse_none(const std::vector<checkpoint::Refusal>& refused) const;
  bool finite();  // collective: all parameters are; else the log says which is not
  std::vector<checkpoint::Listed> listed_checkpoints() const;
  void note(const checkpoint::Outcome& outcome);
  void note_left_out();

  collective::Communicator& comm_;
  TrainLoop& loop_;
  const TrainConfig config_;
  static constexpr int kOwnParts = 1;  // of folder_: what leads to the run's folder is its user's
  const std::string config_text_, folder_;
  const checkpoint::Fence fence_;
  const bool sharded_;                                 // every rank has a part in every save
  const std::set<std::string> sharded_parameters_;     // parameters of which no rank holds all
  const std::shared_ptr<PendingSaves> pending_saves_;  // the save in flight, shared with the thread that writes
  std::unique_ptr<FolderWatch> folder_watch_;          // rank 0
  std::unique_ptr<checkpoint::RunLock> run_lock_;      // rank 0
  std::unique_ptr<checkpoint::Store> store_;           // rank 0
  std::unique_ptr<checkpoint::Writer> writer_;         // rank 0; with sharding every rank
  std::int64_t rendezvous_ = 0;       // number of the emergency save's folder: the same on every rank, of this start of the run only
  std::string in_flight_;             // the folder of the save that may be under way
  checkpoint::Checkpoint found_;      // what restore() resumes from
  std::vector<std::string> changes_;  // since that one was made
  std::int64_t last_saved_ = -1;      // the step of the newest checkpoint that is written or being written
  std::int64_t saved_step_ = -1;      // of the newest that is whole on disk
  bool job_goes_on_;                  // another rank 0 may follow
  bool held_ = false;                 // rank 0: hold_folder() has succeeded
  bool fence_due_ = false;            // rank 0: restore() could not raise it
  bool fenced_off_ = false;           // rank 0: another job, or a later epoch of this one, saves in the folder
  std::string owner_;                 // rank 0: the other job
  bool write_failed_ = false;         // since save_last() tried
  bool ending_ = false;               // save_last() was called
  std::string told_;                  // why the newest failed save failed
  LeftOutSaves left_out_;             // the disk being busy with an older one
};

}  // namespace cohort::train
