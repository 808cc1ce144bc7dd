#include "cohort/net/door.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "cohort/net/socket.h"

namespace cohort::net {
namespace {

constexpr std::size_t kBatch = Door::kStrangers;  // taken in at a time: a flood must not keep us there

// Connections that wait to be accepted; 0 where the kernel does not tell.
std::size_t queue_of(const Listener& listener) {
  tcp_info info{};
  socklen_t size = sizeof info;
  return getsockopt(listener.fd.get(), IPPROTO_TCP, TCP_INFO, &info, &size) == 0 ? info.tcpi_unacked : 0;
}

}  // namespace

Door::Door(const Listener& listener, const Secret& secret, Hello mine, Admit admit)
    : listener_(listener),
      secret_(secret),
      mine_(std::move(mine)),
      admit_(std::move(admit)),
      ready_(epoll_create1(EPOLL_CLOEXEC)),
      vouched_ready_(epoll_create1(EPOLL_CLOEXEC)) {
  if (secret_.empty()) throw_failure(Kind::usage, "a door at {} needs the job's secret, and none was given", listener_.address.text());
  if (!ready_ || !vouched_ready_) throw_system("epoll of a door");
  clear_queue();
}

void Door::clear_queue() {
  const std::size_t waiting = queue_of(listener_);
  if (waiting <= kStrangers) return;
  for (std::size_t n = 0; n < waiting && accept_one(listener_, Deadline::in(0s)); ++n) ++counts_.sent_away;
}

void Door::refuse(const std::string& why) {
  ++counts_.refused;
  counts_.last_refusal = why;
  if (!resting())
    rest_ = Deadline::in(kRest);  // one that is under way is not made longer: strangers who go one by one must not keep it shut
}

void Door::forget(Strangers::iterator stranger, int fd) {
  by_fd_.erase(fd);
  starved_ = false;
  unwatch(*stranger);  // by closing it would leave the set only if no child that is just being started holds a copy of it
  (stranger->vouched ? vouched_ : strangers_).erase(stranger);
}

void Door::turn_out_one(const std::string& why) {
  const auto oldest = strangers_.empty() || (gives_way(vouched_) && !gives_way(strangers_)) ? vouched_.begin() : strangers_.begin();
  const int fd = oldest->greeting.fd();
  refuse(peer_text(fd) + ": " + why);
  forget(oldest, fd);
}

void Door::unwatch(Stranger& stranger) {
  if (std::exchange(stranger.watched, short{0}) == 0) return;
  epoll_ctl((stranger.vouched ? vouched_ready_ : ready_).get(), EPOLL_CTL_DEL, stranger.greeting.fd(), nullptr);
}

bool Door::is_new(ConstBytes nonce) {
  if (std::ranges::any_of(spent_, [&](const Nonce& old) { return std::ranges::equal(old, nonce); })) return false;
  if (spent_.size() < kRemembered) spent_.emplace_back();
  std::ranges::copy(nonce, spent_[next_spent_].begin());
  next_spent_ = (next_spent_ + 1) % kRemembered;
  return true;
}

void Door::prefer(Strangers::iterator stranger) {
  unwatch(*stranger);
  stranger->vouched = true;
  stranger->heard = Deadline::in(kHearing);
  const auto later = [at = stranger->greeting.limit().at()](const Stranger& other) { return other.greeting.limit().at() > at; };
  vouched_.splice(std::find_if(vouched_.begin(), vouched_.end(), later), strangers_, stranger);
}

Fd Door::take_in() {
  try {
    Fd socket = accept_one(listener_, Deadline::in(0s));
    starved_ = false;
    return socket;
  } catch (const Failure& failure) {
    if (by_fd_.empty()) throw;
    starved_ = true;  // until one gives way: the next would wake us again and again
    if (gives_way(strangers_) || gives_way(vouched_)) turn_out_one(failure.what());
    return {};
  }
}

void Door::look_for(Strangers::iterator stranger) {
  const short wanted = stranger->greeting.events();
  if (stranger->watched == wanted) return;
  epoll_event event{.events = static_cast<std::uint32_t>(wanted), .data = {.fd = stranger->greeting.fd()}};  // EPOLLIN is POLLIN, and so on
  const int how = stranger->watched == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
  if (epoll_ctl((stranger->vouched ? vouched_ready_ : ready_).get(), how, event.data.fd, &event) != 0) throw_system("epoll of a stranger");
  stranger->watched = wanted;
}

// Most strangers have said enough to be refused when they are taken in.
std::optional<Wire> Door::welcome_strangers() {
  for (std::size_t n = 0; n < kBatch && has_room(); ++n) {
    Fd socket = take_in();
    if (!socket) break;
    if (by_fd_.size() == kStrangers) turn_out_one("too many strangers at the door");
    std::string where = peer_text(socket.get());
    Greeting greeting(std::move(socket), std::move(where), Handshake(Handshake::Side::listener, secret_, mine_, admit_),
                      Deadline::in(kHandshakeLimit));
    strangers_.push_back({std::move(greeting), Deadline::in(secret_.tls() ? kHearing : kGlance)});
    const auto last = std::prev(strangers_.end());
    by_fd_.emplace(last->greeting.fd(), last);
    if (auto wire = hear(last)) return wire;
  }
  return std::nullopt;
}

std::optional<Wire> Door::hear(Strangers::iterator stranger) {
  const Greeting::State state = stranger->greeting.advance();
  const int fd = stranger->greeting.fd();
  std::optional<Wire> wire;
  if (state == Greeting::State::going) {
    const bool vouches = !stranger->vouched && stranger->greeting.vouched();
    if (!vouches || secret_.tls() || is_new(stranger->greeting.peer_nonce())) {
      if (vouches) prefer(stranger);
      look_for(stranger);
      return std::nullopt;
    }
    refuse(peer_text(fd) + ": repeats an opening that was heard before: a stranger who listens in");
  } else if (state == Greeting::State::done) {
    unwatch(*stranger);  // the socket lives on
    prepare_socket(fd);  // not before: of those who come under attack most go at once
    wire = stranger->greeting.take();
    ++counts_.admitted;
  } else {
    refuse(stranger->greeting.error().what);
  }
  forget(stranger, fd);
  return wire;
}

std::optional<Wire> Door::hear_ready(const Fd& set) {
  std::array<epoll_event, kStrangers> events;
  const int n = epoll_wait(set.get(), events.data(), static_cast<int>(events.size()), 0);
  if (n < 0 && errno != EINTR) throw_system("epoll_wait at a door");
  for (int i = 0; i < n; ++i) {
    const auto stranger = by_fd_.find(events[static_cast<std::size_t>(i)].data.fd);
    if (stranger == by_fd_.end()) continue;
    if (auto wire = hear(stranger->second)) return wire;  // the rest stays ready
  }
  return std::nullopt;
}

// Those who vouched first, in the order in which they speak, which epoll keeps: who has ended its part is known before anybody that called
// later is judged. A stranger is not judged before it has vouched and stands among them.
std::optional<Wire> Door::hear_all() {
  if (auto wire = hear_ready(vouched_ready_)) return wire;
  if (auto wire = hear_ready(ready_)) return wire;
  return hear_ready(vouched_ready_);
}

std::optional<Wire> Door::advance() {
  if (resting()) {
    if (auto wire = hear_ready(vouched_ready_)) return wire;
  } else {
    if (auto wire = hear_all()) return wire;  // before anybody is judged by the clock: we may have been away
    if (auto wire = welcome_strangers()) return wire;
    if (auto wire = hear_all()) return wire;
  }
  for (Strangers* some : {&strangers_, &vouched_})
    while (!some->empty() && some->front().greeting.limit().passed())
      if (auto wire = hear(some->begin())) return wire;
  return std::nullopt;
}

void Door::watch(std::vector<pollfd>& into) const {
  into.push_back({has_room() && !resting() ? listener_.fd.get() : -1, POLLIN, 0});
  into.push_back({resting() ? -1 : ready_.get(), POLLIN, 0});
  into.push_back({vouched_ready_.get(), POLLIN, 0});
}

Deadline Door::look_again() const {
  Deadline next = resting() ? rest_ : Deadline{};
  for (const Strangers* some : {&strangers_, &vouched_}) {
    if (some->empty()) continue;
    next = next.sooner(some->front().greeting.limit());
    if (!has_room()) next = next.sooner(some->front().heard);
  }
  return next;
}

std::optional<Wire> Door::next(Deadline deadline) {
  std::vector<pollfd> polls;
  while (true) {
    if (auto wire = advance()) return wire;
    if (deadline.passed()) return std::nullopt;
    const Deadline until = deadline.sooner(look_again());
    polls.clear();
    watch(polls);
    if (poll(polls.data(), polls.size(), until.left_ms()) < 0 && errno != EINTR) throw_system("poll");
  }
}

}  // namespace cohort::net
