#include "cohort/group/elastic_coordinator.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "cohort/base/log.h"
#include "cohort/group/decision_log.h"
#include "cohort/group/elastic.h"
#include "cohort/group/orders.h"
#include "cohort/net/door.h"

namespace cohort::group {
namespace {

constexpr Seconds kFrameLimit{1};  // a worker that does not take a few bytes in this time is dropped

double now() { return Seconds(Clock::now().time_since_epoch()).count(); }

struct News {
  Process process;  // 0: a start that failed
  std::string how;
  bool seen = true;  // it has ended
};

}  // namespace

struct ElasticCoordinator::Impl {
  Impl(ElasticCoordinatorOptions o, net::Listener l)
      : options(std::move(o)),
        listener(std::move(l)),
        wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        log(options.log_file >= 0 ? DecisionLog(options.log_file) : DecisionLog(options.log)),
        elastic(options.rules, replay(log.found()), now()),
        door(listener, options.secret, {options.rules.job, Epoch{}, kNoRank, net::Role::coordinator}) {
    if (!wake) throw_system("elastic coordinator: eventfd");
    thread = std::thread([this] { run(); });
  }

  void run();
  void poll_once();
  void hear_all();
  void hear(Guest guest);
  void tell_news(News what);
  void take_news();
  void adopt();
  void note_arrival(const Arrive& arrive);
  void feed(const ElasticEvent& event) { carry_out(elastic.handle(event, now())); }
  void carry_out(const Decided& decided);
  void act(const ElasticAction& action);
  void tell(Guest guest, const net::Frame& frame);
  void drop(Guest guest);
  void end(std::optional<Error> error);
  void say(const std::string& text) const {
    if (options.say) options.say(text);
  }

  // Constant after construction.
  const ElasticCoordinatorOptions options;
  const net::Listener listener;
  const Fd wake;

  // Guarded by mutex.
  mutable std::mutex mutex;
  std::vector<News> news;
  bool stop = false;
  std::optional<Ending> ending;
  bool formed = false;

  // Owned by the thread.
  DecisionLog log;
  Elastic elastic;
  net::Door door;
  std::map<Guest, net::Wire> guests;
  std::vector<Guest> broken;           // connections that ended while something else was done
  std::map<Guest, Process> processes;  // of those that arrived
  std::map<Process, WorkerId> lives;   // its newest one
  Guest next_guest = 1;
  std::uint64_t turned_away = 0;

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

void ElasticCoordinator::process_ended(Process process, std::string how) { impl_->tell_news({std::move(process), std::move(how)}); }

void ElasticCoordinator::process_vanished(Process process, std::string how) {
  impl_->tell_news({std::move(process), std::move(how), false});
}

void ElasticCoordinator::spawn_failed(std::string why) { impl_->tell_news({{}, std::move(why)}); }

void ElasticCoordinator::Impl::tell_news(News what) {
  {
    const std::lock_guard lock(mutex);
    news.push_back(std::move(what));
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
    carry_out(elastic.open(now()));
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
      const auto frame = encode_order(Stop{{}, failure.error()});
      for (const auto& [guest, wire] : guests) tell(guest, frame);
      std::this_thread::sleep_for(100ms);
    }
  }
}

void ElasticCoordinator::Impl::poll_once() {
  std::vector<pollfd> fds{{wake.get(), POLLIN, 0}};
  Deadline next = Deadline::in(Seconds{std::max(0.0, elastic.next_tick() - now())}).sooner(door.look_again());
  door.watch(fds);
  for (const auto& [guest, wire] : guests) fds.push_back({wire.fd(), POLLIN, 0});
  if (poll(fds.data(), fds.size(), next.left_ms()) < 0 && errno != EINTR) throw_system("elastic coordinator: poll");
  while (auto wire = door.advance()) guests.emplace(next_guest++, std::move(*wire));
  if (const auto refused = door.counts().refused; std::bit_width(refused) > std::bit_width(turned_away)) {
    say(fmt::format("turned away ({} so far): {}", refused, door.counts().last_refusal));
    turned_away = refused;
  }
  hear_all();
  if (fds[0].revents != 0) take_news();
  feed(Tick{});
}

// Everything that has come, before any time is counted: who was heard now was not silent.
void ElasticCoordinator::Impl::hear_all() {
  std::vector<Guest> here;
  for (const auto& [guest, wire] : guests) here.push_back(guest);
  for (const Guest guest : here) hear(guest);
  while (!broken.empty()) {
    const Guest gone = broken.back();
    broken.pop_back();
    drop(gone);
  }
}

void ElasticCoordinator::Impl::hear(Guest guest) {
  try {
    while (guests.contains(guest) && guests.at(guest).readable()) {
      const ElasticEvent event = decode_event(guests.at(guest).recv(Deadline::in(Seconds{0})), guest);
      if (const auto* arrive = std::get_if<Arrive>(&event)) note_arrival(*arrive);
      feed(event);
    }
  } catch (const Failure& failure) {
    if (failure.kind() == Kind::timeout) return;  // the rest of the frame is under way
    if (failure.kind() == Kind::system) throw;    // of our own log
    log_debug("elastic coordinator: {}", failure.what());
    drop(guest);
  }
}

void ElasticCoordinator::Impl::note_arrival(const Arrive& arrive) {
  const Process process{arrive.worker.member.pid, arrive.worker.member.host};
  processes[arrive.guest] = process;
  const auto [life, is_first] = lives.try_emplace(process, arrive.worker.id);
  if (!is_first && life->second != arrive.worker.id && options.rejoined) options.rejoined(process);
  life->second = arrive.worker.id;
}

void ElasticCoordinator::Impl::drop(Guest guest) {
  processes.erase(guest);
  if (guests.erase(guest) > 0) feed(LinkEnded{guest});
}

void ElasticCoordinator::Impl::take_news() {
  eventfd_t ignored = 0;
  eventfd_read(wake.get(), &ignored);
  std::vector<News> all;
  {
    const std::lock_guard lock(mutex);
    all.swap(news);
  }
  if (!all.empty()) hear_all();  // its last words are there when a process has ended
  for (auto& n : all) {
    const auto life = lives.find(n.process);
    if (life == lives.end()) {
      feed(SpawnFailed{std::move(n.how)});
      continue;
    }
    if (!n.seen) continue;
    feed(ProcessEnded{life->second, std::move(n.how)});
    lives.erase(life);
  }
}

// Workers that another coordinator had to do with: they are known by their processes until they come back, and those that ended meanwhile
// will not. Processes outside the roster are newcomers on their way.
void ElasticCoordinator::Impl::adopt() {
  const std::vector<Worker> roster = elastic.charter().roster;
  for (const Worker& worker : roster) lives[{worker.member.pid, worker.member.host}] = worker.id;
  const auto outside = std::ranges::count_if(options.workforce.running, [&](const Process& one) { return !lives.contains(one); });
  feed(Adopted{static_cast<int>(outside), options.workforce.owed});
  for (const Process& one : options.workforce.ended)
    if (const auto life = lives.extract(one)) feed(ProcessEnded{life.mapped(), "its process has ended"});
}

void ElasticCoordinator::Impl::carry_out(const Decided& decided) {
  log.append(decided.entries);
  if (elastic.charter().epoch.value > 0 && !formed) {  // written by this thread alone
    {
      const std::lock_guard lock(mutex);
      formed = true;
    }
    if (options.began) options.began();
  }
  for (const ElasticAction& action : decided.actions) act(action);
}

void ElasticCoordinator::Impl::act(const ElasticAction& action) {
  if (const auto* said = std::get_if<Say>(&action)) say(said->text);
  if (const auto* respawn = std::get_if<Respawn>(&action)) return options.respawn ? options.respawn(respawn->count) : void();
  const net::Frame frame = encode_order(action);
  const bool goodbye = std::holds_alternative<Release>(action) || std::holds_alternative<Stop>(action);
  for (const Guest guest : addressees(action)) {
    if (goodbye && options.goodbye && processes.contains(guest)) options.goodbye(processes.at(guest));
    tell(guest, frame);
  }
  if (const auto* stopped = std::get_if<Stop>(&action); stopped && elastic.over()) end(stopped->error);
  if (const auto* refused = std::get_if<Refuse>(&action)) {
    say(refused->error.what);
    broken.push_back(refused->guest);
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

// Whose connection breaks here is dropped once the event at hand is done with.
void ElasticCoordinator::Impl::tell(Guest guest, const net::Frame& frame) {
  const auto at = guests.find(guest);
  if (at == guests.end()) return;
  try {
    at->second.send(frame.type, frame.body, Deadline::in(kFrameLimit));
  } catch (const Failure& failure) {
    log_debug("elastic coordinator: {}", failure.what());
    broken.push_back(guest);
  }
}

}  // namespace cohort::group
