#include "cohort/net/tcp_mesh.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "cohort/net/control.h"
#include "cohort/net/little.h"
#include "cohort/net/socket.h"

namespace cohort::net {
namespace {

constexpr std::size_t kManyPeers = 3;  // from here on one poll() is cheaper than a read that finds nothing on every socket

// How long a large message of a collective waits in the socket for its receive, before it is taken in and copied twice. Behind one may lie
// the news that its sender died or aborted, which must not wait for ever.
constexpr Seconds kHold{0.25};

// What a paced socket of this host takes at most. Bytes that wait in the kernel for their turn cost a timer every 64 KiB, bytes that wait
// here do not: docs/bench.md.
constexpr int kPacedQueue = 128_KiB;

// A look costs a system call here, not a load: fewer of them before sleeping.
Patience near_patience(std::size_t ranks) {
  const Patience p = Patience::for_ranks(static_cast<int>(ranks));
  return {.pauses = p.pauses / 20, .yields = p.yields / 5};
}

// Bytes from another host come a packet every few microseconds: whoever looks for each of them keeps a core from computing. In the middle
// of a large message nobody looks twice before he sleeps, and he is not woken for less than this while more is certain to come (2 ms of 1
// Gbit/s): it costs a tenth of a core instead of half (docs/bench.md). For a message that has not begun a few looks are quicker than a
// sleep.
constexpr std::size_t kWorthWaking = 256_KiB, kLarge = 32_KiB;
constexpr Patience kFar{.pauses = 50, .yields = 0};

// The body of an abort frame: whom it is about, and why.
std::vector<std::byte> abort_body(const Error& why) {
  const std::string_view text = std::string_view(why.what).substr(0, 4_KiB - 4);
  std::vector<std::byte> body(4);
  put_little<std::uint32_t>(body.data(), static_cast<std::uint32_t>(why.rank.value));
  body.insert(body.end(), as_bytes(text).begin(), as_bytes(text).end());
  return body;
}

Error abort_cause(std::string_view body) {
  if (body.size() < 4) return {Kind::aborted, "without a reason", kNoRank};
  const auto rank = get_little<std::uint32_t>(as_bytes(body).data());
  return {Kind::aborted, std::string(body.substr(4)), Rank{static_cast<std::int32_t>(rank)}};
}

}  // namespace

TcpMesh::TcpMesh(TcpPlan plan)
    : Hub(plan.me, static_cast<int>(plan.wires.size()), plan.epoch, near_patience(plan.wires.size())), by_rank_(plan.wires.size()) {
  for (int r = 0; r < size(); ++r) {
    auto& wire = plan.wires[static_cast<std::size_t>(r)];
    if (wire.has_value() ? Rank{r} == rank() : Rank{r} != rank() && !plan.partial)
      throw_failure(Kind::bug, "tcp: rank {} got {} connection to rank {}", rank().value, wire ? "a" : "no", r);
    if (!wire) continue;
    std::vector<Wire> more = plan.more.empty() ? std::vector<Wire>{} : std::move(plan.more[static_cast<std::size_t>(r)]);
    const auto of = static_cast<std::uint32_t>(1 + more.size());
    add(Rank{r}, std::move(*wire), plan, {0, of});
    for (std::uint32_t s = 1; s < of; ++s) add(Rank{r}, std::move(more[s - 1]), plan, {s, of});
  }
  far_ = std::any_of(peers_.begin(), peers_.end(), [](const auto& p) { return !p->is_local; });
  if (!plan.partial) start_monitor();
}

void TcpMesh::add(Rank rank, Wire wire, const TcpPlan& plan, Strand strand) {
  const bool paced = paces(set_congestion(wire.fd(), plan.congestion));
  const bool local = !plan.all_far && peer_is_local(wire.fd());
  if (local && paced) setsockopt(wire.fd(), SOL_SOCKET, SO_SNDBUF, &kPacedQueue, sizeof kPacedQueue);  // best effort
  if (!local) keep_probing(wire.fd(), kLastHope);                                                      // the monitor looks
  peers_.push_back(std::make_unique<TcpPeer>(std::move(wire), mailbox_, rank, local, paced, strand));
  streams(rank).push_back(peers_.back().get());
}

TcpMesh::~TcpMesh() {
  stop_monitor();
  say_goodbye();
}

void TcpMesh::start_monitor() {
  if (!peers_.empty()) monitor_ = std::thread([this] { monitor(); });
}

void TcpMesh::stop_monitor() {
  closing_.store(true);
  monitor_bell_.ring();
  if (monitor_.joinable()) monitor_.join();
}

Pending TcpMesh::launch(Rank to, ConstBytes bytes, Tag tag) {
  Outflow::Push result;
  const auto& all = streams(to);
  auto sending = all[Strand::of_tag(tag, static_cast<std::uint32_t>(all.size()))]->out.begin(bytes, tag, result);
  if (!sending) return {};
  wake();
  return pending(std::move(sending));
}

Haste TcpMesh::haste(TcpPeer& p) {
  if (p.out.lending() || p.hung_up.load()) return Haste::now;  // the peer's word that it has read, or its last words, stand behind the rest
  return p.paused && p.held_until.passed() ? Haste::soon : Haste::none;
}

bool TcpMesh::move(TcpPeer& p) {
  Outflow::Push pushed;
  if (p.out.waiting() || p.out.flying()) pushed = p.out.push();
  if (p.over.load()) return pushed.moved;
  const Haste urge = pushed.broken ? Haste::now : haste(p);  // why the peer left may still lie unread in the socket
  if (p.paused && urge == Haste::none && !p.thawed.exchange(false)) return pushed.moved;
  Inflow::Pull pulled = p.in.pull(p.wire.connection(), urge);
  p.paused = pulled.paused;
  if (p.paused) p.held_until = Deadline::in(kHold);
  if (pulled.owed) p.out.owe_got();
  if (pulled.got && !p.out.lent_was_got()) pulled = {.end = Inflow::End::corrupt, .text = "it confirms a message that nobody lent"};
  if (pulled.owed || pulled.got) p.out.push();
  if (pushed.broken && !pulled.moved && pulled.end == Inflow::End::none)
    pulled = {.end = Inflow::End::closed, .text = problem_text(pushed.problem)};
  if (pulled.end != Inflow::End::none) ended(p, pulled);
  return pushed.moved || pulled.moved || pulled.end != Inflow::End::none;
}

// The end of one socket is the end of the link, except that a goodbye counts when all of them have heard it: messages that left before it
// may still be on their way on another.
void TcpMesh::ended(TcpPeer& p, const Inflow::Pull& how) {
  const auto& all = streams(p.rank);
  const bool polite = how.end == Inflow::End::goodbye;
  p.left.store(polite);
  for (TcpPeer* const other : all)
    if (other == &p || !polite) {
      other->over.store(true);
      other->out.drop();
    }
  switch (how.end) {
    case Inflow::End::none: return;
    case Inflow::End::goodbye:
      if (std::all_of(all.begin(), all.end(), [](const TcpPeer* s) { return s->left.load(); })) lost(p.rank, left_error(p.rank), true);
      return;
    case Inflow::End::aborted: return lost(p.rank, aborted_error(p.rank, abort_cause(how.text)));
    case Inflow::End::closed:
      return lost(p.rank, {Kind::peer_lost, fmt::format("tcp: rank {} at {} died ({})", p.rank.value, p.wire.where(), how.text), p.rank});
    case Inflow::End::corrupt:
      return lost(p.rank, {Kind::corrupt, fmt::format("tcp: rank {} at {}: {}", p.rank.value, p.wire.where(), how.text), p.rank});
  }
}

bool TcpMesh::step() {
  woken_.store(false);
  bool moved = false;
  if (peers_.size() < kManyPeers) {
    for (const auto& p : peers_) moved = move(*p) || moved;
    return moved;
  }
  list_polls();
  poll(polls_.data(), polls_.size(), 0);
  for (std::size_t i = 0; i < polled_.size(); ++i)  // what a paused peer said last may lie in our own hands, where poll does not look
    if (polls_[i + 1].revents != 0 || polled_[i]->paused || holds_bytes(polled_[i]->wire.connection())) moved = move(*polled_[i]) || moved;
  return moved;
}

void TcpMesh::list_polls() {
  polls_.assign(1, {bell_.fd(), POLLIN, 0});
  polled_.clear();
  look_at_ = {};
  for (const auto& p : peers_) {
    const bool held = p->paused && !p->thawed.load() && haste(*p) == Haste::none;
    if (held && !p->over.load()) look_at_ = look_at_.sooner(p->held_until);
    const bool mute = p->over.load() || held;
    const int events = (mute ? 0 : POLLIN) | (p->out.waiting() ? POLLOUT : 0);
    if (events == 0 && !p->out.flying()) continue;  // POLLERR, which tells of memory let go, needs no asking
    polls_.push_back({p->fd(), static_cast<short>(events), 0});
    polled_.push_back(p.get());
  }
}

Patience TcpMesh::patience() const {
  if (!far_) return patience_;
  const auto midway = [](const auto& p) { return !p->is_local && p->in.sure() >= kLarge; };
  return std::any_of(peers_.begin(), peers_.end(), midway) ? Patience{.pauses = 0, .yields = 0} : kFar;
}

void TcpMesh::let_sleep(TcpPeer& p) {
  if (p.is_local || p.wire.connection().tls != nullptr) return;  // of what TLS expects, a part may already be in its own hands
  const int bytes = static_cast<int>(std::min(kWorthWaking, p.in.sure()));
  if (bytes == p.wakes_at) return;
  if (setsockopt(p.fd(), SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes) == 0) p.wakes_at = bytes;
}

void TcpMesh::sleep(Deadline deadline) {
  list_polls();
  for (TcpPeer* const p : polled_) let_sleep(*p);
  if (also_ >= 0) polls_.push_back({also_, POLLIN, 0});
  asleep_.store(true);
  if (!woken_.load()) poll(polls_.data(), polls_.size(), deadline.sooner(look_at_).left_ms());
  asleep_.store(false);
  bell_.hush();
}

void TcpMesh::wake() noexcept {
  woken_.store(true);
  if (asleep_.load()) bell_.ring();
}

void TcpMesh::on_room(Rank rank) {
  if (rank == this->rank()) return;
  for (TcpPeer* const p : streams(rank)) p->thawed.store(true);
  wake();
}

void TcpMesh::stop(TcpPeer& p, const Error& why) noexcept {
  p.out.stop(kAbortFrame, abort_body(why));
  p.out.push();
  if (p.out.waiting()) monitor_bell_.ring();  // nobody may be driving
}

void TcpMesh::tell_abort(const Error& error) noexcept {
  for (const auto& p : peers_)
    if (!p->over.load()) stop(*p, error);
}

void TcpMesh::on_failed(Rank rank) noexcept {
  if (rank == this->rank()) return;
  for (TcpPeer* const p : streams(rank))
    if (!p->over.exchange(true))  // else it is the peer's doing, which needs no telling
      stop(*p, mailbox_.failure(rank).value_or(Error{Kind::aborted, "the link was given up", kNoRank}));
}

}  // namespace cohort::net
