#include "cohort/net/door.h"

#include <cerrno>

#include "cohort/net/socket.h"

namespace cohort::net {

Door::Door(const Listener& listener, const Secret& secret, Hello mine, Admit admit)
    : listener_(listener), secret_(secret), mine_(std::move(mine)), admit_(std::move(admit)) {
  if (secret_.empty()) throw_failure(Kind::usage, "a door at {} needs the job's secret, and none was given", listener_.address.text());
}

void Door::refuse(const std::string& why) {
  ++counts_.refused;
  counts_.last_refusal = why;
}

void Door::welcome_strangers() {
  for (std::size_t n = 0; n < kStrangers; ++n) {  // a flood must not keep us here
    Fd socket = accept_one(listener_, Deadline::in(0s));
    if (!socket) return;
    if (greetings_.size() == kStrangers) {
      refuse(peer_text(greetings_.front().fd()) + ": too many strangers at the door");
      greetings_.pop_front();
    }
    std::string where = peer_text(socket.get());
    greetings_.emplace_back(std::move(socket), std::move(where), Handshake(Handshake::Side::listener, secret_, mine_, admit_), Deadline{});
  }
}

std::optional<Wire> Door::advance() {
  welcome_strangers();
  for (auto g = greetings_.begin(); g != greetings_.end();) {
    const Greeting::State state = g->advance();
    if (state == Greeting::State::going) {
      ++g;
      continue;
    }
    std::optional<Wire> wire;
    if (state == Greeting::State::done) {
      wire = g->take();
      ++counts_.admitted;
    } else {
      refuse(g->error().what);
    }
    g = greetings_.erase(g);
    if (wire) return wire;
  }
  return std::nullopt;
}

void Door::watch(std::vector<pollfd>& into) const {
  into.push_back({listener_.fd.get(), POLLIN, 0});
  for (const Greeting& g : greetings_) into.push_back({g.fd(), g.events(), 0});
}

Deadline Door::look_again() const {
  Deadline soonest;
  for (const Greeting& g : greetings_) soonest = soonest.sooner(g.limit());
  return soonest;
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
