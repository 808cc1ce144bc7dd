#include "cohort/net/door.h"

#include <sys/epoll.h>

#include <array>
#include <cerrno>

#include "cohort/net/socket.h"

namespace cohort::net {
namespace {

constexpr std::size_t kBatch = 64;  // taken in at a time: a flood must not keep us there

}  // namespace

Door::Door(const Listener& listener, const Secret& secret, Hello mine, Admit admit)
    : listener_(listener), secret_(secret), mine_(std::move(mine)), admit_(std::move(admit)), ready_(epoll_create1(EPOLL_CLOEXEC)) {
  if (secret_.empty()) throw_failure(Kind::usage, "a door at {} needs the job's secret, and none was given", listener_.address.text());
  if (!ready_) throw_system("epoll of a door");
}

void Door::refuse(const std::string& why) {
  ++counts_.refused;
  counts_.last_refusal = why;
}

void Door::forget(Strangers::iterator stranger) {
  by_fd_.erase(stranger->greeting.fd());
  strangers_.erase(stranger);  // closes the socket, which leaves the epoll set by that
}

void Door::look_for(Strangers::iterator stranger) {
  const short wanted = stranger->greeting.events();
  if (stranger->watched == wanted) return;
  epoll_event event{.events = static_cast<std::uint32_t>(wanted), .data = {.fd = stranger->greeting.fd()}};  // EPOLLIN is POLLIN, and so on
  const int how = stranger->watched == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
  if (epoll_ctl(ready_.get(), how, event.data.fd, &event) != 0) throw_system("epoll of a stranger");
  stranger->watched = wanted;
}

// They are heard in the order in which they speak, which epoll keeps: who has ended its part is known before anybody that called later is
// judged.
void Door::welcome_strangers() {
  for (std::size_t n = 0; n < kBatch && has_room(); ++n) {
    Fd socket = accept_one(listener_, Deadline::in(0s));
    if (!socket) break;
    if (strangers_.size() == kStrangers) {
      refuse(peer_text(strangers_.front().greeting.fd()) + ": too many strangers at the door");
      forget(strangers_.begin());
    }
    std::string where = peer_text(socket.get());
    Greeting greeting(std::move(socket), std::move(where), Handshake(Handshake::Side::listener, secret_, mine_, admit_),
                      Deadline::in(kHandshakeLimit));
    strangers_.push_back({std::move(greeting), Deadline::in(kHearing)});
    const auto last = std::prev(strangers_.end());
    by_fd_.emplace(last->greeting.fd(), last);
    look_for(last);
  }
}

std::optional<Wire> Door::hear(Strangers::iterator stranger) {
  const Greeting::State state = stranger->greeting.advance();
  if (state == Greeting::State::going) {
    look_for(stranger);
    return std::nullopt;
  }
  std::optional<Wire> wire;
  const int fd = stranger->greeting.fd();
  if (state == Greeting::State::done) {
    epoll_ctl(ready_.get(), EPOLL_CTL_DEL, fd, nullptr);  // the socket lives on
    wire = stranger->greeting.take();
    ++counts_.admitted;
  } else {
    refuse(stranger->greeting.error().what);
  }
  by_fd_.erase(fd);
  strangers_.erase(stranger);
  return wire;
}

std::optional<Wire> Door::hear_ready() {
  std::array<epoll_event, kBatch> events;
  const int n = epoll_wait(ready_.get(), events.data(), static_cast<int>(events.size()), 0);
  if (n < 0 && errno != EINTR) throw_system("epoll_wait at a door");
  for (int i = 0; i < n; ++i)
    if (auto wire = hear(by_fd_.at(events[static_cast<std::size_t>(i)].data.fd))) return wire;  // the rest stays ready
  return std::nullopt;
}

std::optional<Wire> Door::advance() {
  welcome_strangers();
  if (auto wire = hear_ready()) return wire;
  while (!strangers_.empty() && strangers_.front().greeting.limit().passed())
    if (auto wire = hear(strangers_.begin())) return wire;
  return std::nullopt;
}

void Door::watch(std::vector<pollfd>& into) const {
  into.push_back({has_room() ? listener_.fd.get() : -1, POLLIN, 0});
  into.push_back({ready_.get(), POLLIN, 0});
}

Deadline Door::look_again() const {
  if (strangers_.empty()) return {};
  const Deadline limit = strangers_.front().greeting.limit();
  return has_room() ? limit : limit.sooner(strangers_.front().heard);
}

std::optional<Wire> Door::next(Deadline deadline) {
  std::vector<pollfd> polls;
  while (true) {
    if (auto wire = advance()) return wire;
    if (deadline.passed()) return std::nullopt;
    polls.clear();
    watch(polls);
    if (poll(polls.data(), polls.size(), deadline.sooner(look_again()).left_ms()) < 0 && errno != EINTR) throw_system("poll");
  }
}

}  // namespace cohort::net
