// A Lane does a queue's work: one wheel, held by whoever works. A caller that waits without a deadline takes the wheel when it is free
// (the lane thread hands it over between two operations) and works until its own operation is done, so that a synchronous call needs
// no other thread; the lane thread has it at all other times there is work (overlap), and to listen when nothing happens here.
// Owner: Queue. Threads: the public methods from any; the protected ones say who calls.
// Lock order: NegotiatedLane::order_, then mutex_. Neither is held while a ticket is finished or a verb runs.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "cohort/queue/execute.h"
#include "cohort/queue/flights.h"
#include "cohort/queue/queue.h"

namespace cohort::queue {

class Lane {
 public:
  Lane(std::unique_ptr<collective::Communicator> communicator, QueueOptions options);
  virtual ~Lane() = default;  // after close()

  void start();
  std::shared_ptr<Ticket> submit(Operation operation);
  std::shared_ptr<Ticket> join();
  Result wait(const std::shared_ptr<Ticket>& ticket, Deadline deadline);
  bool help(const std::shared_ptr<Ticket>& ticket, Deadline look_up);
  void abort(const Error& error) noexcept;
  void close() noexcept;  // drains, then ends the thread, in bounded time
  collective::Communicator& communicator() const { return *comm_; }

 protected:
  // How long to hold the wheel.
  struct Shift {
    const Ticket* until = nullptr;  // a waiter: until this is done. The lane thread: until nothing is in flight
    Deadline look_up{};             // a waiter with other things to do: until then at the latest, but for a verb under way
    bool listen = false;            // the lane thread, when all is calm: until something was in flight and is done
  };

  // ---- for each mode to say
  virtual void accept(const std::shared_ptr<Ticket>& ticket) = 0;  // mutex_ held
  virtual void accept_join(const std::shared_ptr<Ticket>& ticket) = 0;
  virtual bool knock() = 0;  // no lock held: if the holder of the wheel sleeps, it shall look up; false: nobody sleeps there
  virtual void work(const Shift& shift) = 0;  // wheel held; throws what is final
  virtual bool listens() const = 0;           // peers may have something to say although nothing is in flight here
  virtual void say_goodbye() noexcept {}      // wheel held; the last thing a closing queue does

  // ---- holder of the wheel only
  bool shift_over(const Shift& shift, bool& busy);
  void tell(const Event& event) const {
    if (options_.watch) options_.watch(event);
  }
  void land(const std::shared_ptr<Ticket>& ticket, Result result, std::optional<Error> error);
  // Runs `verbs`; its usage error is the tickets' own, anything worse is told to the peers and thrown on.
  template <class Verbs>
  std::optional<Error> attempt(Verbs&& verbs);

  // ---- constant after construction
  const QueueOptions options_;
  const std::unique_ptr<collective::Communicator> comm_;
  const Patience patience_;

  // ---- guarded by mutex_
  std::mutex mutex_;
  Flights flights_;
  bool closing_ = false;
  Deadline drain_until_;
  std::optional<Error> failure_;  // final
  // The wheel: true while somebody works. Whoever lets go looks at everything above first and rings for the lane thread if need be.
  std::atomic<bool> held_{false};

  // ---- owned by the holder of the wheel
  Executor executor_;

 private:
  void announce() noexcept;  // something guarded changed: whoever should act hears of it
  void ring();
  bool take_wheel(const std::shared_ptr<Ticket>& waits_for);  // false: somebody has it, and knows who wants it
  void leave_wheel(bool waiter);
  void turn(const Shift& shift) noexcept;  // wheel held
  void end(const Error& error) noexcept;   // final: everything in flight fails with it

  // ---- the lane thread
  enum class Wakes { to_sleep, to_work, to_listen, to_end };
  void run() noexcept;
  bool await_bell(std::uint32_t seen, Deadline until);
  Wakes wake_up(bool rung);  // takes the wheel unless it goes back to sleep

  // ---- guarded by mutex_
  bool dozing_ = true;                        // the lane thread looks up by itself soon; else it sleeps until rung
  bool missed_ = false;                       // it waits for the wheel: ring when it is free
  std::shared_ptr<Ticket> wanted_by_;         // a waiter to hand the wheel to
  bool by_waiter_ = false;                    // the last turn at the wheel was a caller's
  std::uint64_t turns_ = 0, turns_seen_ = 0;  // of callers; as the lane thread saw it last

  Word bell_{0};  // the lane thread sleeps here
  std::atomic<bool> asleep_{false};
  Word ended_{0};
  std::thread thread_;
};

std::unique_ptr<Lane> in_order_lane(std::unique_ptr<collective::Communicator> communicator, QueueOptions options);
std::unique_ptr<Lane> negotiated_lane(std::unique_ptr<collective::Communicator> communicator, QueueOptions options);

inline constexpr std::string_view kJoinName = "(join)";  // what the join in flight is called in the table and in errors

template <class Verbs>
std::optional<Error> Lane::attempt(Verbs&& verbs) {
  try {
    verbs();
    return std::nullopt;
  } catch (const Failure& failure) {
    if (failure.kind() == Kind::usage) return failure.error();
    const bool known = failure.kind() == Kind::peer_lost || failure.kind() == Kind::aborted;  // the peers hear of it as we did
    if (!known) comm_->abort(failure.error());  // they may be waiting for bytes that will not come
    throw;
  }
}

}  // namespace cohort::queue
