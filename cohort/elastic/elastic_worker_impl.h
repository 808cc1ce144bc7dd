// The parts of an ElasticWorker: its thread, which keeps the connection to the coordinator (elastic_worker_link.cc) and handles what comes
// over it (elastic_worker_messages.cc), and the calls of the training thread (elastic_worker.cc), behind one mutex.
// Owner: ElasticWorker. Threads: as each group of members says. Failure: as elastic_worker.h says.
#pragma once
#include <condition_variable>
#include <mutex>
#include <thread>

#include "cohort/elastic/elastic_worker.h"
#include "cohort/elastic/step_commit.h"

namespace cohort::elastic {

WorkerId new_worker_id();

struct ElasticWorker::Impl {
  explicit Impl(ElasticWorkerOptions o);
  ~Impl();

  // --- its own thread; elastic_worker_link.cc
  void run();
  void connect();
  bool awaits_next_call();
  void arrive();
  void poll_connection();
  void receive_all();
  void receive(const ElasticAction& message);
  void on(const SealEpoch& seal);
  void on(const BeginEpoch& begin);
  void on(const Evict& evict);
  void on(const Release& release) { pending = Released{release.save, release.finish}; }
  void on(const Stop& stop);
  void on(const group::Refuse& refuse);
  void on(const Say& line);
  void on(const Respawn&) {}
  void on(const Alive& answer) { coordinator_process = answer; }

  // --- any thread, with the mutex held
  bool trains() const { return step_commit.phase() == StepCommit::Phase::open || step_commit.phase() == StepCommit::Phase::prepared; }
  void end_epoch(const Error& why);
  void report();
  void send(const ElasticEvent& event);
  void disconnect();
  void finish(Over how);
  void check_leave_alone();
  void leave_alone();
  void lose_coordinator(const std::string& how);
  void note_answer();
  void check_silence();

  // Constant after construction.
  const ElasticWorkerOptions options;
  const net::Listener listener;
  const Fd wake;

  // Guarded by mutex; only the thread below makes and drops the connection.
  mutable std::mutex mutex;
  std::condition_variable changed;
  WorkerId id;
  StepCommit step_commit;
  std::optional<net::ControlConnection> connection;
  std::optional<std::variant<BeginEpoch, Released>> pending;  // for next()
  bool pending_sealed = false;                                // it was sealed before next() returned it
  std::optional<Over> over;
  std::function<void(const Error&)> abort;
  bool in_next = false;   // the training thread is in next()
  bool evicted = false;   // and has not joined as new since
  bool in_epoch = false;  // the training thread is in an epoch that is not over
  bool entering = false;  // .. and still connecting: it reports by itself, once its links are closed
  bool reported = false, settled_sent = false, change_wanted = false, leaving = false, stop = false;
  bool commit_sent = false;  // that a step of this epoch was committed: a job without any is not begun again and again
  std::string why_leaving;
  std::optional<std::int64_t> ended_at;
  std::optional<Error> failed;
  std::optional<StateTransferred> state_transferred;  // as sent last
  bool was_rank_0 = false;                            // in its last epoch
  bool leaves_alone = false;                          // without a coordinator, which is no longer looked for
  std::optional<Error> lost;                          // the coordinator, for good
  Deadline leave_alone_at;                            // never: it is connected, or was not asked to leave
  Deadline vote_deadline;                             // leaving alone: when it stops without another vote
  std::atomic<bool> sealed{false};

  // Owned by the thread.
  Deadline next_heartbeat, reconnect_deadline;
  std::optional<Alive> coordinator_process;           // as it named itself last
  Clock::time_point answered_at, silence_checked_at;  // by the coordinator, with any message; by this thread
  bool said_silent = false;                           // of the silence under way
  std::string problem;                                // of the last attempt to connect
  bool broken = false;                                // the connection failed while it was written

  std::thread thread;
};

}  // namespace cohort::elastic
