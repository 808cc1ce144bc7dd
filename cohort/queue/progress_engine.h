// A ProgressEngine runs a queue's operations. One thread at a time does so, the driver. A caller that waits without a deadline becomes the
// driver when there is none (the progress thread hands over between two operations) and works until its own operation is done, so that a
// synchronous call needs no other thread; at all other times the progress thread drives (overlap), also to receive when idle. Owner: Queue.
// Threads: the public methods from any; the protected ones say who calls. Lock order: NegotiatedProgress::order_, then mutex_. Neither is
// held while a Submission is finished or a collective runs.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "cohort/queue/execute.h"
#include "cohort/queue/operation_table.h"
#include "cohort/queue/queue.h"

namespace cohort::queue {

class ProgressEngine {
 public:
  ProgressEngine(std::unique_ptr<collective::Communicator> communicator, QueueOptions options);
  virtual ~ProgressEngine() = default;  // after close()

  void start();
  std::shared_ptr<Submission> submit(Operation operation);
  std::shared_ptr<Submission> join();
  Result wait(const std::shared_ptr<Submission>& submission, Deadline deadline);
  bool help(const std::shared_ptr<Submission>& submission, Deadline return_by);
  void abort(const Error& error) noexcept;
  void close() noexcept;  // drains, then ends the thread, in bounded time
  collective::Communicator& communicator() const { return *comm_; }

 protected:
  // How long to stay the driver.
  struct DriveLimits {
    const Submission* until = nullptr;  // a waiter: until this is done. The progress thread: until nothing is in flight
    Deadline return_by{};               // a waiter with other things to do: until then at the latest, but for a running collective
    bool listen = false;                // the progress thread, when idle: until something was in flight and is done
  };

  // ---- for each mode to define
  virtual void accept(const std::shared_ptr<Submission>& submission) = 0;  // mutex_ held
  virtual void accept_join(const std::shared_ptr<Submission>& submission) = 0;
  virtual bool wake_driver() = 0;                    // no lock held: wakes a driver that sleeps in a receive; false: there is none
  virtual void work(const DriveLimits& limits) = 0;  // by the driver; throws what is final
  virtual bool listens() const = 0;                  // peers may send although nothing is in flight here
  virtual void send_leave() noexcept {}              // by the driver; the last thing a closing queue does

  // ---- driver only
  bool driving_over(const DriveLimits& limits, bool& busy);
  void heard() { heard_.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed); }  // rank 0 has answered
  void emit(const Event& event) const {
    if (options_.on_event) options_.on_event(event);
  }
  void complete(const std::shared_ptr<Submission>& submission, Result result, std::optional<Error> error);
  // Runs `collectives`; a usage error is the operations' own and returned, anything worse aborts the peers and is thrown on.
  template <class Body>
  std::optional<Error> attempt(Body&& collectives);

  // ---- constant after construction
  const QueueOptions options_;
  const std::unique_ptr<collective::Communicator> comm_;
  const SpinPolicy spin_policy_;

  // ---- guarded by mutex_
  std::mutex mutex_;
  OperationTable operations_;
  bool closing_ = false;
  Deadline drain_until_;
  std::optional<Error> failure_;  // final
  // True while there is a driver. A driver that stops checks everything above first and wakes the progress thread if need be.
  std::atomic<bool> driven_{false};

  // ---- owned by the driver
  Executor executor_;

 private:
  void notify() noexcept;  // something guarded changed: wakes the thread that should act
  void wake_thread();
  bool start_driving(const std::shared_ptr<Submission>& waits_for);  // false: there is a driver, which now knows who waits to drive
  void stop_driving(bool waiter);
  void drive(const DriveLimits& limits) noexcept;    // by the driver
  void end(const Error& error) noexcept;             // final: everything in flight fails with it
  void check_silence(const Submission& submission);  // by a caller: ends the queue when rank 0 has not answered for too long

  // ---- the progress thread
  enum class Next { sleep, work, listen, end };
  void run() noexcept;
  bool await_wake(std::uint32_t seen, Deadline until);
  Next next_action(bool woken);  // becomes the driver unless it goes back to sleep

  // ---- guarded by mutex_
  bool polling_ = true;                         // the progress thread wakes by itself soon; else it sleeps until woken
  bool missed_ = false;                         // it waits to become the driver: wake it when the driver stops
  std::shared_ptr<Submission> wanted_by_;       // a waiter to make the driver next
  bool by_waiter_ = false;                      // the last driver was a caller
  std::uint64_t drives_ = 0, drives_seen_ = 0;  // turns of callers; as the progress thread saw it last

  std::atomic<Clock::rep> heard_{0};
  Word wake_count_{0};  // the progress thread sleeps here
  std::atomic<bool> asleep_{false};
  Word ended_{0};
  std::thread thread_;
};

std::unique_ptr<ProgressEngine> in_order_progress(std::unique_ptr<collective::Communicator> communicator, QueueOptions options);
std::unique_ptr<ProgressEngine> negotiated_progress(std::unique_ptr<collective::Communicator> communicator, QueueOptions options);

inline constexpr std::string_view kJoinName = "(join)";  // the name of the join in flight in the table and in errors

template <class Body>
std::optional<Error> ProgressEngine::attempt(Body&& collectives) {
  try {
    collectives();
    return std::nullopt;
  } catch (const Failure& failure) {
    if (failure.kind() == Kind::usage) return failure.error();
    const bool known = failure.kind() == Kind::peer_lost || failure.kind() == Kind::aborted;  // the peers get it as we did
    if (!known) comm_->abort(failure.error());  // they may be waiting for bytes that will not come
    throw;
  }
}

}  // namespace cohort::queue
