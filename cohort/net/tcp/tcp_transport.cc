#include "cohort/net/tcp/tcp_transport.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "cohort/net/frame/little_endian.h"
#include "cohort/net/socket/socket.h"

namespace cohort::net {
namespace {

constexpr std::size_t kManyPeers = 3;  // from here on one poll() is cheaper than a read that finds nothing on every socket

// How long a large message of a collective waits in the socket for its receive, before it is read as unexpected and copied twice: an abort
// or the end of the stream may be behind it, which must not wait for ever.
constexpr Seconds kHold{0.25};

// Send buffer of a paced socket to this host. Bytes that wait in the kernel for their turn cost a timer every 64 KiB, bytes that wait here
// do not: docs/bench.md.
constexpr int kPacedQueue = 128_KiB;

// A check costs a system call here, not a load: fewer of them before sleeping.
SpinPolicy near_patience(std::size_t ranks) {
  const SpinPolicy p = SpinPolicy::for_ranks(static_cast<int>(ranks));
  return {.pauses = p.pauses / 20, .yields = p.yields / 5};
}

// Bytes from another host come a packet every few microseconds: polling for each of them keeps a core from computing. In the middle of a
// large message the driver sleeps after one check, and is not woken for less than kLowWater while more is certain to come (2 ms of 1
// Gbit/s): it costs a tenth of a core instead of half (docs/bench.md). For a message that has not begun a few checks are quicker than a
// sleep.
constexpr std::size_t kLowWater = 256_KiB, kLarge = 32_KiB;
constexpr SpinPolicy kFar{.pauses = 50, .yields = 0};

// The body of an abort frame: the rank that caused it, and the reason. kThisLink instead of a rank: the sender's links to others go on.
constexpr Rank kThisLink{-2};
std::vector<std::byte> abort_body(Rank cause, std::string_view what) {
  const std::string_view text = what.substr(0, 4_KiB - 4);
  std::vector<std::byte> body(4);
  store_le<std::uint32_t>(body.data(), static_cast<std::uint32_t>(cause.value));
  body.insert(body.end(), as_bytes(text).begin(), as_bytes(text).end());
  return body;
}

Error abort_cause(std::string_view body) {
  if (body.size() < 4) return {Kind::aborted, "without a reason", kNoRank};
  const auto rank = load_le<std::uint32_t>(as_bytes(body).data());
  return {Kind::aborted, std::string(body.substr(4)), Rank{static_cast<std::int32_t>(rank)}};
}

}  // namespace

TcpTransport::TcpTransport(TcpPlan plan)
    : TransportBase(plan.me, static_cast<int>(plan.connections.size()), plan.epoch, near_patience(plan.connections.size())),
      by_rank_(plan.connections.size()) {
  for (int r = 0; r < size(); ++r) {
    auto& connection = plan.connections[static_cast<std::size_t>(r)];
    if (connection.has_value() ? Rank{r} == rank() : Rank{r} != rank() && !plan.partial)
      throw_failure(Kind::bug, "tcp: rank {} got {} connection to rank {}", rank().value, connection ? "a" : "no", r);
    if (!connection) continue;
    std::vector<ControlConnection> more =
        plan.more.empty() ? std::vector<ControlConnection>{} : std::move(plan.more[static_cast<std::size_t>(r)]);
    const auto of = static_cast<std::uint32_t>(1 + more.size());
    add(Rank{r}, std::move(*connection), plan, {0, of});
    for (std::uint32_t s = 1; s < of; ++s) add(Rank{r}, std::move(more[s - 1]), plan, {s, of});
  }
  far_ = std::any_of(peers_.begin(), peers_.end(), [](const auto& p) { return !p->is_local; });
  if (!plan.partial) start_monitor();
}

void TcpTransport::add(Rank rank, ControlConnection connection, const TcpPlan& plan, StreamId stream_id) {
  const bool paced = paces(set_congestion(connection.fd(), plan.congestion));
  const bool local = !plan.all_far && peer_is_local(connection.fd());
  if (local && paced) setsockopt(connection.fd(), SOL_SOCKET, SO_SNDBUF, &kPacedQueue, sizeof kPacedQueue);  // best effort
  if (!local) keep_probing(connection.fd(), kMaxSilence);                                                    // the monitor decides
  peers_.push_back(std::make_unique<TcpPeer>(std::move(connection), mailbox_, rank, local, stream_id));
  streams(rank).push_back(peers_.back().get());
}

TcpTransport::~TcpTransport() {
  stop_monitor();
  send_goodbyes();
}

void TcpTransport::start_monitor() {
  if (!peers_.empty()) monitor_ = std::thread([this] { monitor(); });
}

void TcpTransport::stop_monitor() {
  closing_.store(true);
  monitor_wake_.notify();
  if (monitor_.joinable()) monitor_.join();
}

Pending TcpTransport::launch(Rank to, ConstBytes bytes, Tag tag) {
  SendStream::Push result;
  const auto& all = streams(to);
  auto sending = all[StreamId::of_tag(tag, static_cast<std::uint32_t>(all.size()))]->out.begin(bytes, tag, result);
  if (!sending) return {};
  wake();
  return pending(std::move(sending));
}

ReadUrgency TcpTransport::urgency(TcpPeer& p) {
  if (p.hung_up.load()) return ReadUrgency::now;  // the peer's last frame is behind the rest
  return p.paused && p.held_until.passed() ? ReadUrgency::soon : ReadUrgency::none;
}

bool TcpTransport::move(TcpPeer& p) {
  SendStream::Push pushed;
  if (p.out.waiting() || p.out.in_flight()) pushed = p.out.push();
  if (p.over.load()) return pushed.moved;
  const ReadUrgency urge = pushed.broken ? ReadUrgency::now : urgency(p);  // the peer's last frame may still be unread in the socket
  if (p.paused && urge == ReadUrgency::none && !p.may_resume.exchange(false)) return pushed.moved;
  ReceiveStream::Pull pulled = p.in.pull(p.connection.socket_view(), urge);
  p.paused = pulled.paused;
  if (p.paused) p.held_until = Deadline::in(kHold);
  if (pushed.broken && !pulled.moved && pulled.end == ReceiveStream::End::none)
    pulled = {.end = ReceiveStream::End::closed, .text = problem_text(pushed.problem)};
  if (pulled.end != ReceiveStream::End::none) ended(p, pulled);
  return pushed.moved || pulled.moved || pulled.end != ReceiveStream::End::none;
}

// The end of one socket is the end of the link, except that a goodbye counts once it has come on all of them: messages that were sent
// before it may still be in transit on another.
void TcpTransport::ended(TcpPeer& p, const ReceiveStream::Pull& how) {
  const auto& all = streams(p.rank);
  const bool polite = how.end == ReceiveStream::End::goodbye;
  p.left.store(polite);
  for (TcpPeer* const other : all)
    if (other == &p || !polite) {
      other->over.store(true);
      other->out.drop();
    }
  switch (how.end) {
    case ReceiveStream::End::none: return;
    case ReceiveStream::End::goodbye:
      if (std::all_of(all.begin(), all.end(), [](const TcpPeer* s) { return s->left.load(); })) lost(p.rank, left_error(p.rank), true);
      return;
    case ReceiveStream::End::aborted: {
      const Error cause = abort_cause(how.text);
      return lost(p.rank, cause.rank == kThisLink ? link_given_up_error(p.rank, cause) : aborted_error(p.rank, cause));
    }
    case ReceiveStream::End::closed:
      return lost(p.rank,
                  {Kind::peer_lost, fmt::format("tcp: rank {} at {} died ({})", p.rank.value, p.connection.where(), how.text), p.rank});
    case ReceiveStream::End::corrupt:
      return lost(p.rank, {Kind::corrupt, fmt::format("tcp: rank {} at {}: {}", p.rank.value, p.connection.where(), how.text), p.rank});
  }
}

bool TcpTransport::step() {
  woken_.store(false);
  bool moved = false;
  if (peers_.size() < kManyPeers) {
    for (const auto& p : peers_) moved = move(*p) || moved;
    return moved;
  }
  list_polls();
  poll(polls_.data(), polls_.size(), 0);
  for (std::size_t i = 0; i < polled_.size(); ++i)  // bytes of a paused peer may be in our own buffers, which poll does not see
    if (polls_[i + 1].revents != 0 || polled_[i]->paused || holds_bytes(polled_[i]->connection.socket_view()))
      moved = move(*polled_[i]) || moved;
  return moved;
}

void TcpTransport::list_polls() {
  polls_.assign(1, {wake_event_.fd(), POLLIN, 0});
  polled_.clear();
  resume_at_ = {};
  for (const auto& p : peers_) {
    const bool held = p->paused && !p->may_resume.load() && urgency(*p) == ReadUrgency::none;
    if (held && !p->over.load()) resume_at_ = resume_at_.sooner(p->held_until);
    const bool skip = p->over.load() || held;
    const int events = (skip ? 0 : POLLIN) | (p->out.waiting() ? POLLOUT : 0);
    if (events == 0 && !p->out.in_flight()) continue;  // POLLERR, which reports zero-copy completions, needs no event bit
    polls_.push_back({p->fd(), static_cast<short>(events), 0});
    polled_.push_back(p.get());
  }
}

SpinPolicy TcpTransport::patience() const {
  if (!far_) return patience_;
  const auto in_large_message = [](const auto& p) { return !p->is_local && p->in.sure() >= kLarge; };
  return std::any_of(peers_.begin(), peers_.end(), in_large_message) ? SpinPolicy{.pauses = 0, .yields = 0} : kFar;
}

void TcpTransport::set_low_water(TcpPeer& p) {
  if (p.is_local || p.connection.socket_view().tls != nullptr) return;  // TLS may have buffered a part of what is expected
  const int bytes = static_cast<int>(std::min(kLowWater, p.in.sure()));
  if (bytes == p.low_water) return;
  if (setsockopt(p.fd(), SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes) == 0) p.low_water = bytes;
}

void TcpTransport::sleep(Deadline deadline) {
  list_polls();
  for (TcpPeer* const p : polled_) set_low_water(*p);
  if (extra_poll_fd_ >= 0) polls_.push_back({extra_poll_fd_, POLLIN, 0});
  asleep_.store(true);
  if (!woken_.load()) poll(polls_.data(), polls_.size(), deadline.sooner(resume_at_).left_ms());
  asleep_.store(false);
  wake_event_.clear();
}

void TcpTransport::wake() noexcept {
  woken_.store(true);
  if (asleep_.load()) wake_event_.notify();
}

void TcpTransport::on_room(Rank rank) {
  if (rank == this->rank()) return;
  for (TcpPeer* const p : streams(rank)) p->may_resume.store(true);
  wake();
}

void TcpTransport::stop(TcpPeer& p, Rank cause, const Error& why) noexcept {
  p.out.stop(kAbortFrame, abort_body(cause, why.what));
  p.out.push();
  if (p.out.waiting()) monitor_wake_.notify();  // there may be no driver
}

void TcpTransport::send_abort(const Error& error) noexcept {
  for (const auto& p : peers_)
    if (!p->over.load()) stop(*p, error.rank, error);
}

void TcpTransport::on_failed(Rank rank) noexcept {
  if (rank == this->rank()) return;
  for (TcpPeer* const p : streams(rank))
    if (!p->over.exchange(true))  // else the peer ended it, and needs no frame
      stop(*p, kThisLink, mailbox_.failure(rank).value_or(Error{Kind::aborted, "the link was given up", kNoRank}));
}

}  // namespace cohort::net
