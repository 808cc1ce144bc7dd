// The connection of an ElasticWorker to its coordinator: made, kept alive by heartbeats, and made again when it breaks.
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include <utility>

#include "cohort/base/log.h"
#include "cohort/base/text.h"
#include "cohort/elastic/control_messages.h"
#include "cohort/elastic/elastic_worker_impl.h"
#include "cohort/net/auth/dialer.h"

namespace cohort::elastic {
namespace {

constexpr Seconds kFrameLimit{1};
constexpr Seconds kPollInterval{0.2};     // while it connects, between two checks of the flags
constexpr Seconds kAttempt{1.5};          // per attempt: the kernel backs off between SYNs, a new attempt sends one at once
constexpr double kSendsPerHeartbeat = 3;  // a heartbeat that TCP retransmits late is made up for by the next one
constexpr Seconds kSilentInterval{5};     // between heartbeats to a coordinator that does not read them: its receive buffer is small

}  // namespace

WorkerId new_worker_id() {
  WorkerId id;
  if (getrandom(&id.value, sizeof id.value, 0) != sizeof id.value) throw_system("getrandom");
  return id;
}

ElasticWorker::Impl::Impl(ElasticWorkerOptions o)
    : options(std::move(o)),
      listener(net::listen_on({options.listen, 0}, options.secret)),
      wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      id(new_worker_id()) {
  if (!wake) throw_system("elastic worker: eventfd");
  thread = std::thread([this] { run(); });
}

ElasticWorker::Impl::~Impl() {
  {
    const std::lock_guard lock(mutex);
    stop = true;
  }
  eventfd_write(wake.get(), 1);
  thread.join();
}

void ElasticWorker::Impl::run() {
  reconnect_deadline = Deadline::in(options.coordinator_timeout);
  while (true) {
    {
      const std::lock_guard lock(mutex);
      if (stop) return;
    }
    try {
      connection ? poll_connection() : connect();
    } catch (const Failure& failure) {
      const std::lock_guard lock(mutex);
      log_debug("elastic worker: {}", failure.what());
      if (connection) disconnect();
    }
  }
}

void ElasticWorker::Impl::connect() {
  if (over || leaves_alone) {  // nothing left to send; written by this thread alone
    pollfd one{wake.get(), POLLIN, 0};
    poll(&one, 1, Deadline::in(kPollInterval).left_ms());
    const std::lock_guard lock(mutex);
    return check_leave_alone();
  }
  if (awaits_next_call()) return;
  const net::Hello mine{options.job, Epoch{}, kNoRank, net::Role::worker};
  net::Dialer dialer(options.coordinator, options.secret, mine, {}, reconnect_deadline);
  const Deadline attempt = Deadline::in(kAttempt);
  while (!attempt.passed()) {
    {
      const std::lock_guard lock(mutex);
      check_leave_alone();
      if (stop || over || leaves_alone) return;
      if (reconnect_deadline.passed())
        return lose_coordinator(
            fmt::format("did not answer for {:g} s{}{}", options.coordinator_timeout.count(), problem.empty() ? "" : ": ", problem));
    }
    std::optional<net::ControlConnection> got;
    try {
      got = dialer.advance();
    } catch (const Failure& failure) {
      if (failure.kind() == Kind::timeout) return;  // reported above when it was the last attempt
      const std::lock_guard lock(mutex);
      return finish({failure.error()});
    }
    problem = dialer.problem();
    if (got) {
      const std::lock_guard lock(mutex);
      connection = std::move(got);
      return arrive();
    }
    pollfd fds[] = {{dialer.fd(), dialer.events(), 0}, {wake.get(), POLLIN, 0}};
    poll(fds, 2, dialer.look_again().sooner(Deadline::in(kPollInterval)).left_ms());
  }
}

// A worker whose training thread hangs must not join again because this thread still sends heartbeats: it would block every new epoch.
bool ElasticWorker::Impl::awaits_next_call() {
  std::unique_lock lock(mutex);
  if (!evicted || in_next) return false;
  changed.wait_for(lock, kPollInterval, [&] { return in_next || stop; });
  reconnect_deadline = Deadline::in(options.coordinator_timeout);  // not an attempt that failed
  check_leave_alone();
  return true;
}

void ElasticWorker::Impl::arrive() {
  evicted = false;
  const group::Member member{Rank{0}, listener.address.text(), getpid(), options.host};
  send(Arrive{.worker = {id, member},
              .epoch = step_commit.epoch(),
              .sealed = step_commit.phase() == StepCommit::Phase::sealed && reported,
              .settled = trains() && settled_sent,
              .worker_progress = step_commit.worker_progress(),
              .version = options.version});
  if (state_transferred && state_transferred->epoch == step_commit.epoch()) send(*state_transferred);
  if (leaving) send(Leaving{.why = why_leaving});
  if (ended_at) send(Ended{.step = *ended_at});
  if (failed) send(JobFailed{.error = *failed});
  next_heartbeat = Deadline::in(options.heartbeat / kSendsPerHeartbeat);
  leave_alone_at = Deadline{};
  answered_at = silence_checked_at = Clock::now();
}

void ElasticWorker::Impl::poll_connection() {
  pollfd fds[] = {{connection->fd(), POLLIN, 0}, {wake.get(), POLLIN, 0}};
  poll(fds, 2, next_heartbeat.sooner(Deadline::in(options.heartbeat)).left_ms());
  if (fds[1].revents != 0) {
    eventfd_t ignored = 0;
    eventfd_read(wake.get(), &ignored);
  }
  const std::lock_guard lock(mutex);
  receive_all();
  if (!connection) return;
  // A host that vanished sends no FIN: where its kernel acknowledges nothing, a new connection is tried.
  if (broken || net::host_is_silent(connection->fd())) return disconnect();
  check_silence();
  if (!connection || !next_heartbeat.passed()) return;
  send(Heartbeat{});
  next_heartbeat = Deadline::in(said_silent ? kSilentInterval : options.heartbeat / kSendsPerHeartbeat);
}

void ElasticWorker::Impl::note_answer() {
  const auto now = Clock::now();
  if (std::exchange(said_silent, false)) {
    log_warning("the coordinator of '{}' answers again, after {}", options.job, format_seconds(now - answered_at));
    next_heartbeat = Deadline::in(options.heartbeat / kSendsPerHeartbeat);
  }
  answered_at = now;
}

// It is connected, so that its kernel lives, but its process is stopped, or hangs. It may continue at any time: training goes on.
void ElasticWorker::Impl::check_silence() {
  const auto now = Clock::now(), before = std::exchange(silence_checked_at, now);
  if (now - before > 2 * options.heartbeat) answered_at += now - before;  // this process was suspended and could read no answer
  if (!coordinator_process) return;
  const Seconds silent = now - answered_at, limit{static_cast<double>(coordinator_process->silence_limit) / 1000};
  const std::string who = fmt::format("(process {} on {}) has", coordinator_process->pid, coordinator_process->host);
  if (leaving && silent >= options.leave_timeout)
    return disconnect();  // as one that is gone: it leaves by itself, unless it can join again
  if (silent >= limit) {
    disconnect();
    return lose_coordinator(fmt::format("{} not answered for {}: it is stopped, or hangs", who, format_seconds(limit)));
  }
  if (silent < options.silence_notice || std::exchange(said_silent, true)) return;
  log_warning(
      "the coordinator of '{}' {} not answered for {}: it is stopped, or hangs; roster changes wait, training goes on; after {} "
      "without an answer the workers save and end",
      options.job, who, format_seconds(options.silence_notice), format_seconds(limit));
}

// With the mutex held: a TLS stream must not be read and written at once. An incomplete frame is continued by the next call.
void ElasticWorker::Impl::receive_all() {
  try {
    while (connection && connection->readable()) {
      const ElasticAction message = decode_action(connection->recv(Deadline::in(Seconds{0})));
      note_answer();
      receive(message);
    }
  } catch (const Failure& failure) {
    if (failure.kind() != Kind::timeout) throw;
  }
}

// A connection that cannot be written is closed by the thread; the next Arrive repeats the whole state.
void ElasticWorker::Impl::send(const ElasticEvent& event) {
  if (!connection || broken) return;
  const net::Frame frame = encode_event(event);
  try {
    connection->send(frame.type, frame.body, Deadline::in(kFrameLimit));
  } catch (const Failure& failure) {
    log_debug("elastic worker: {}", failure.what());
    broken = true;
    eventfd_write(wake.get(), 1);
  }
}

void ElasticWorker::Impl::disconnect() {
  connection.reset();
  broken = said_silent = false;
  reconnect_deadline = Deadline::in(options.coordinator_timeout);
  if (leaving) leave_alone_at = Deadline::in(options.leave_timeout);
}

// The others lose it at about the same time: all stop after the same step, and what was learned is saved before they end.
void ElasticWorker::Impl::lose_coordinator(const std::string& how) {
  lost = Error{Kind::peer_lost, fmt::format("the coordinator of '{}' at {} {}", options.job, options.coordinator.text(), how), kNoRank};
  if (!step_commit.worker_progress()) return finish({lost});
  log_warning("{}; this worker stops after the next step, and rank 0 saves", lost->what);
  leave_alone();
}

void ElasticWorker::Impl::leave_alone() {
  leaves_alone = change_wanted = true;
  vote_deadline = Deadline::in(options.leave_timeout);
  changed.notify_all();
}

// All workers that were asked to leave get here at about the same time, and a request by any one stops all of them after the same step.
void ElasticWorker::Impl::check_leave_alone() {
  if (!leaves_alone && leave_alone_at.passed()) {
    log_debug("elastic worker: no coordinator to release this worker: it leaves by itself");
    leave_alone();
  }
  if (!leaves_alone || !in_epoch || !vote_deadline.passed()) return;
  end_epoch(
      {Kind::aborted,
       fmt::format("membership epoch {} is over: its workers were asked to leave, and the coordinator is gone", step_commit.epoch().value),
       kNoRank});
  step_commit.seal();
}

}  // namespace cohort::elastic
