#include "cohort/elastic/elastic_coordinator.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "cohort/base/log.h"
#include "cohort/base/version.h"
#include "cohort/elastic/control_messages.h"
#include "cohort/elastic/decision_log.h"
#include "cohort/elastic/membership.h"
#include "cohort/net/auth/acceptor.h"

namespace cohort::elastic {
namespace {

constexpr Seconds kFrameLimit{1};     // a worker that does not take a few bytes in this time is dropped
constexpr Seconds kAcceptPause{0.5};  // out of descriptors or memory: until it tries again

double now() { return Seconds(Clock::now().time_since_epoch()).count(); }

Alive this_process(double silence_limit) {
  std::array<char, 65> host{};
  gethostname(host.data(), host.size() - 1);
  return {.pid = getpid(), .silence_limit = static_cast<std::int64_t>(1000 * silence_limit), .host = host.data()};
}

struct ProcessEvent {
  Process process;  // pid 0: a start that failed
  std::string how;
  bool ended = true;  // false: its host was lost
};

}  // namespace

struct ElasticCoordinator::Impl {
  Impl(ElasticCoordinatorOptions o, net::Listener l)
      : options(std::move(o)),
        listener(std::move(l)),
        wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        alive(encode_action(this_process(options.silence_limit.value_or(options.rules.wait_limit)))),
        log(options.log_file >= 0 ? DecisionLog(options.log_file) : DecisionLog(options.log)),
        membership(options.rules, replay(log.found()), now()),
        acceptor(listener, options.secret, {options.rules.job, Epoch{}, kNoRank, net::Role::coordinator}) {
    if (!wake) throw_system("elastic coordinator: eventfd");
    thread = std::thread([this] { run(); });
  }

  void run();
  void poll_once();
  void accept_all();
  void receive_all();
  void receive(group::ConnectionId connection_id);
  void push_event(ProcessEvent what);
  void take_process_events();
  void adopt();
  void note_arrival(const Arrive& arrive);
  void note_begin(const BeginEpoch& begin);
  void note_first_commit();
  void feed(const ElasticEvent& event) { carry_out(membership.handle(event, now())); }
  void carry_out(const Decided& decided);
  void act(const ElasticAction& action);
  void send_to(group::ConnectionId connection_id, const net::Frame& frame);
  void drop(group::ConnectionId connection_id);
  void end(std::optional<Error> error);
  void say(const std::string& text) const {
    if (options.say) options.say(text);
  }

  // Constant after construction.
  const ElasticCoordinatorOptions options;
  const net::Listener listener;
  const Fd wake;
  const net::Frame alive;  // the answer to heartbeats

  // Guarded by mutex.
  mutable std::mutex mutex;
  std::vector<ProcessEvent> process_events;
  bool stop = false, pinged = false;
  std::optional<Ending> ending;
  bool formed = false;

  // Owned by the thread.
  DecisionLog log;
  Membership membership;
  net::Acceptor acceptor;
  std::map<group::ConnectionId, net::ControlConnection> connections;
  std::vector<group::ConnectionId> failed_connections;  // to be dropped after the event at hand
  std::map<group::ConnectionId, Process> processes;     // of those that sent Arrive
  std::map<Process, WorkerId> worker_ids;               // the newest of each process
  group::ConnectionId next_connection_id = 1;
  std::uint64_t refusals_reported = 0;
  bool commit_reported = false;
  Deadline accept_after;      // never: now
  bool accepts_none = false;  // the last attempt failed

  std::thread thread;
};

ElasticCoordinator::ElasticCoordinator(ElasticCoordinatorOptions options, net::Listener listener)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(listener))) {}

ElasticCoordinator::~ElasticCoordinator() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stop = true;
  }
  eventfd_write(impl_->wake.get(), 1);
  impl_->thread.join();
}

const net::Address& ElasticCoordinator::address() const { return impl_->listener.address; }

void ElasticCoordinator::process_ended(Process process, std::string how) { impl_->push_event({std::move(process), std::move(how)}); }

void ElasticCoordinator::process_vanished(Process process, std::string how) {
  impl_->push_event({std::move(process), std::move(how), false});
}

void ElasticCoordinator::spawn_failed(std::string why) { impl_->push_event({{}, std::move(why)}); }

void ElasticCoordinator::ping() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->pinged = true;
  }
  eventfd_write(impl_->wake.get(), 1);
}

void ElasticCoordinator::Impl::push_event(ProcessEvent what) {
  {
    const std::lock_guard lock(mutex);
    process_events.push_back(std::move(what));
  }
  eventfd_write(wake.get(), 1);
}

bool ElasticCoordinator::formed() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->formed;
}

std::optional<ElasticCoordinator::Ending> ElasticCoordinator::ending() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->ending;
}

void ElasticCoordinator::Impl::run() {
  try {
    carry_out(membership.open(now()));
    if (!log.found().empty()) adopt();
  } catch (const Failure& failure) {
    end(failure.error());
  }
  while (true) {
    {
      const std::lock_guard lock(mutex);
      if (stop) return;
    }
    try {
      poll_once();
    } catch (const Failure& failure) {  // of the log or of poll: nothing more can be decided
      if (!ending) say(fmt::format("the coordinator of '{}' ends: {}", options.rules.job, failure.what()));
      end(failure.error());
      const auto frame = encode_action(Stop{{}, failure.error()});
      for (const auto& [connection_id, connection] : connections) send_to(connection_id, frame);
      std::this_thread::sleep_for(100ms);
    }
  }
}

void ElasticCoordinator::Impl::poll_once() {
  std::vector<pollfd> fds{{wake.get(), POLLIN, 0}};
  Deadline next = Deadline::in(Seconds{std::max(0.0, membership.next_tick() - now())}).sooner(acceptor.look_again()).sooner(accept_after);
  if (accept_after.never()) acceptor.watch(fds);
  for (const auto& [connection_id, connection] : connections) fds.push_back({connection.fd(), POLLIN, 0});
  if (poll(fds.data(), fds.size(), next.left_ms()) < 0 && errno != EINTR) throw_system("elastic coordinator: poll");
  accept_all();
  if (const auto refused = acceptor.counts().refused; std::bit_width(refused) > std::bit_width(refusals_reported)) {
    say(fmt::format("connections refused so far: {}; the last one: {}", refused, acceptor.counts().last_refusal));
    refusals_reported = refused;
  }
  receive_all();
  if (fds[0].revents != 0) take_process_events();
  feed(Tick{});
}

// Without descriptors nobody can join; those that are connected train on, and who waits in the backlog is accepted later.
void ElasticCoordinator::Impl::accept_all() {
  if (!accept_after.never() && !accept_after.passed()) return;
  accept_after = Deadline{};
  try {
    const auto before = connections.size();
    while (auto connection = acceptor.advance()) connections.emplace(next_connection_id++, std::move(*connection));
    if (connections.size() > before && std::exchange(accepts_none, false)) say("connections can be accepted again");
  } catch (const Failure& failure) {
    if (failure.kind() != Kind::system) throw;
    accept_after = Deadline::in(kAcceptPause);
    if (std::exchange(accepts_none, true)) return;
    say(fmt::format(
        "the coordinator of '{}' can accept no connection: {}; workers that are connected train on, others wait; it tries again "
        "every {:g} s",
        options.rules.job, failure.what(), kAcceptPause.count()));
  }
}

// All that has arrived, before deadlines are checked: a worker whose message is here was not silent.
void ElasticCoordinator::Impl::receive_all() {
  std::vector<group::ConnectionId> here;
  for (const auto& [connection_id, connection] : connections) here.push_back(connection_id);
  for (const group::ConnectionId connection_id : here) receive(connection_id);
  while (!failed_connections.empty()) {
    const group::ConnectionId gone = failed_connections.back();
    failed_connections.pop_back();
    drop(gone);
  }
}

void ElasticCoordinator::Impl::receive(group::ConnectionId connection_id) {
  try {
    while (connections.contains(connection_id) && connections.at(connection_id).readable()) {
      const ElasticEvent event = decode_event(connections.at(connection_id).recv(Deadline::in(Seconds{0})), connection_id);
      const auto* arrive = std::get_if<Arrive>(&event);
      if (arrive != nullptr || std::holds_alternative<Heartbeat>(event)) send_to(connection_id, alive);
      if (arrive != nullptr) {
        note_arrival(*arrive);
        continue;
      }
      feed(event);
    }
  } catch (const Failure& failure) {
    if (failure.kind() == Kind::timeout) return;  // the rest of the frame has not arrived
    if (failure.kind() == Kind::system) throw;    // of our own log
    log_debug("elastic coordinator: {}", failure.what());
    drop(connection_id);
  }
}

void ElasticCoordinator::Impl::note_arrival(const Arrive& arrive) {
  const Process process{arrive.worker.member.pid, arrive.worker.member.host};
  if (arrive.version != version()) {
    const std::string who = fmt::format("the worker of process {} on {}", process.pid, process.host);
    return act(group::Refuse{arrive.connection_id,
                             {Kind::usage, group::another_version(who, arrive.version, options.rules.job, version()), kNoRank}});
  }
  processes[arrive.connection_id] = process;
  const auto [found, is_first] = worker_ids.try_emplace(process, arrive.worker.id);
  const bool again = !is_first && std::exchange(found->second, arrive.worker.id) != arrive.worker.id;
  feed(arrive);
  if (again && membership.knows(arrive.worker.id) && options.rejoined) options.rejoined(process);
}

void ElasticCoordinator::Impl::note_begin(const BeginEpoch& begin) {
  const auto found = processes.find(begin.connection_id);
  if (options.begun && found != processes.end()) options.begun(found->second, begin.roster.epoch, begin.rank);
}

void ElasticCoordinator::Impl::note_first_commit() {
  if (!membership.committed() || std::exchange(commit_reported, true) || !options.first_commit) return;
  options.first_commit();
}

void ElasticCoordinator::Impl::drop(group::ConnectionId connection_id) {
  processes.erase(connection_id);
  if (connections.erase(connection_id) > 0) feed(LinkEnded{connection_id});
}

void ElasticCoordinator::Impl::take_process_events() {
  eventfd_t ignored = 0;
  eventfd_read(wake.get(), &ignored);
  std::vector<ProcessEvent> all;
  bool asked = false;
  {
    const std::lock_guard lock(mutex);
    all.swap(process_events);
    asked = std::exchange(pinged, false);
  }
  if (asked && options.alive) options.alive();
  if (!all.empty()) receive_all();  // the last messages of a process that has ended
  for (auto& n : all) {
    const auto found = worker_ids.find(n.process);
    if (found == worker_ids.end()) {
      feed(SpawnFailed{std::move(n.how)});
      continue;
    }
    if (!n.ended) continue;
    feed(ProcessEnded{found->second, std::move(n.how)});
    worker_ids.erase(found);
  }
}

// Workers of an earlier coordinator are known by their processes until they reconnect; those that ended meanwhile will not. Processes
// outside of the roster are newcomers that have not connected yet.
void ElasticCoordinator::Impl::adopt() {
  const std::vector<Worker> roster = membership.coordinator_state().roster;
  for (const Worker& worker : roster) worker_ids[{worker.member.pid, worker.member.host}] = worker.id;
  const auto outside = std::ranges::count_if(options.workforce.running, [&](const Process& one) { return !worker_ids.contains(one); });
  feed(Adopted{static_cast<int>(outside), options.workforce.pending});
  for (const Process& one : options.workforce.ended)
    if (const auto found = worker_ids.extract(one)) feed(ProcessEnded{found.mapped(), "its process has ended"});
}

void ElasticCoordinator::Impl::carry_out(const Decided& decided) {
  log.append(decided.entries);
  if (membership.coordinator_state().epoch.value > 0 && !formed) {  // written by this thread alone
    {
      const std::lock_guard lock(mutex);
      formed = true;
    }
    if (options.first_epoch) options.first_epoch();
  }
  note_first_commit();
  for (const ElasticAction& action : decided.actions) act(action);
}

void ElasticCoordinator::Impl::act(const ElasticAction& action) {
  if (const auto* line = std::get_if<Say>(&action)) say(line->text);
  if (const auto* respawn = std::get_if<Respawn>(&action)) return options.respawn ? options.respawn(respawn->count) : void();
  const net::Frame frame = encode_action(action);
  if (const auto* begin = std::get_if<BeginEpoch>(&action)) note_begin(*begin);
  const bool releases = std::holds_alternative<Release>(action) || std::holds_alternative<Stop>(action);
  for (const group::ConnectionId connection_id : recipients(action)) {
    if (releases && options.released && processes.contains(connection_id)) options.released(processes.at(connection_id));
    send_to(connection_id, frame);
  }
  if (const auto* stopped = std::get_if<Stop>(&action); stopped && membership.over()) end(stopped->error);
  if (const auto* refused = std::get_if<group::Refuse>(&action)) {
    say(refused->error.what);
    failed_connections.push_back(refused->connection_id);
  }
}

void ElasticCoordinator::Impl::end(std::optional<Error> error) {
  {
    const std::lock_guard lock(mutex);
    if (ending) return;
    ending = Ending{std::move(error)};
  }
  if (options.over) options.over(ending->error);  // written by this thread alone
}

// A connection that fails here is dropped after the event at hand.
void ElasticCoordinator::Impl::send_to(group::ConnectionId connection_id, const net::Frame& frame) {
  const auto at = connections.find(connection_id);
  if (at == connections.end()) return;
  try {
    at->second.send(frame.type, frame.body, Deadline::in(kFrameLimit));
  } catch (const Failure& failure) {
    log_debug("elastic coordinator: {}", failure.what());
    failed_connections.push_back(connection_id);
  }
}

}  // namespace cohort::elastic
