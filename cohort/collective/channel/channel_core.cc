#include "cohort/collective/channel/channel_core.h"

#include <fmt/format.h>

#include <utility>

#include "cohort/net/transport/transport_base.h"

namespace cohort::collective {
namespace {

std::string why_late(const Transfer& t) {
  if (t.stage == Transfer::Stage::moving)
    return fmt::format("its bytes are on the way, and rank {} has not {} them all", t.peer, t.sends ? "taken" : "sent");
  if (t.sends) return fmt::format("rank {} has posted no receive for it, or does not wait in its channel", t.peer);
  return fmt::format("no message has come for it; does rank {} send with this tag?", t.peer);
}

}  // namespace

std::string Transfer::text() const {
  return fmt::format("{} of {} bytes {} rank {} (tag {})", sends ? "send" : "recv", data.bytes(), sends ? "to" : "from", peer, tag);
}

ChannelCore::ChannelCore(std::shared_ptr<net::PeerLinks> links, const std::vector<Rank>& members, int me, std::uint32_t channel,
                         std::shared_ptr<MovedCounters> counters)
    : links_(std::move(links)),
      me_(me),
      channel_(channel),
      counters_(std::move(counters)),
      rank_of_(static_cast<std::size_t>(links_->size()), -1),
      peers_(members.size()) {
  for (std::size_t r = 0; r < members.size(); ++r) {
    peers_[r].rank = static_cast<int>(r);
    peers_[r].member = members[r];
    rank_of_[static_cast<std::size_t>(members[r].value)] = static_cast<int>(r);
  }
}

ChannelCore::~ChannelCore() {
  for (Peer& peer : peers_)
    for (Outgoing& record : peer.outbox) record.sending.detach();
  links_->discard({channel_, 0, ~0u});
}

ChannelCore::TransferPtr ChannelCore::begin(bool sends, Rank peer, std::uint32_t tag, Piece data) {
  const auto* const what = sends ? "send" : "recv";
  if (peer.value < 0 || peer.value >= size())
    throw_failure(Kind::usage, "peer channel: {}: rank {} is not one of 0 .. {}", what, peer.value, size() - 1);
  if (data.device != Device::cpu)
    throw_failure(Kind::usage, "peer channel: {}: messages lie in CPU memory; copy the data to the host first", what);
  if (data.data == nullptr && data.count > 0) throw_failure(Kind::usage, "peer channel: {}: null pointer with a count above zero", what);
  return TransferPtr(new Transfer{shared_from_this(), sends, peer.value, tag, data});
}

std::shared_ptr<Transfer> ChannelCore::send(Rank to, std::uint32_t tag, Piece data) {
  auto transfer = begin(true, to, tag, data);
  const std::lock_guard lock(mutex_);
  Peer& peer = peers_[static_cast<std::size_t>(to.value)];
  if (peer.lost) return end(*transfer, peer.lost), transfer;
  launch(peer, transfer);
  return transfer;
}

std::shared_ptr<Transfer> ChannelCore::recv(Rank from, std::uint32_t tag, Piece data) {
  auto transfer = begin(false, from, tag, data);
  const std::lock_guard lock(mutex_);
  post(peers_[static_cast<std::size_t>(from.value)], transfer);
  return transfer;
}

// ---- waiting

bool ChannelCore::over(Transfer& t) {
  if (t.stage == Transfer::Stage::moving && t.done()) settle(t);
  return t.stage == Transfer::Stage::ended;
}

void ChannelCore::check_interrupted() const {
  if (interrupted_.load()) throw Interrupted{{Kind::aborted, "peer channel: its waits were interrupted on this rank", Rank{me_}}};
}

// Takes the records that have come. Failures are asked for first: what a leaving peer sent before it left still counts.
void ChannelCore::progress(int waiting) {
  bool changed = false;
  {
    const std::lock_guard lock(mutex_);
    std::vector<std::pair<Peer*, Error>> failed;
    for (Peer& peer : peers_)
      if (!peer.lost)
        if (auto error = links_->failure(peer.member)) failed.emplace_back(&peer, std::move(*error));
    while (const auto message = links_->try_next({channel_, 0, kCollectiveTags - 1})) {
      const int from = rank_of_[static_cast<std::size_t>(message->from.value)];
      if (from < 0) continue;
      Peer& peer = peers_[static_cast<std::size_t>(from)];
      or_lose(peer, [&] { handle(peer, *message); });
      changed = true;
    }
    for (const auto& [peer, error] : failed) {
      lose(*peer, error);
      if (!net::aborted_by(peer->member, error)) continue;
      for (Peer& other : peers_) lose(other, error);  // docs/adr/0005: no rank goes on after an abort
    }
    changed = changed || !failed.empty();
  }
  if (changed && waiters_.load() > waiting) links_->wake_waiters();  // what another thread waits for may have ended here
}

bool ChannelCore::await(const std::function<bool()>& done, Deadline deadline) {
  bool ended = false;
  std::exception_ptr failed;  // out of memory: the links must not see it
  const auto look = [&]() noexcept {
    try {
      progress(1);
      const std::lock_guard lock(mutex_);
      return (ended = done()) || interrupted_.load();
    } catch (...) {
      failed = std::current_exception();
      return true;
    }
  };
  waiters_.fetch_add(1);
  if (!look()) links_->await(look, deadline);
  waiters_.fetch_sub(1);
  if (failed) std::rethrow_exception(failed);
  check_interrupted();
  return ended;
}

std::optional<Error> ChannelCore::wait(Transfer& t, Deadline deadline) {
  await([&] { return over(t); }, deadline);
  const std::lock_guard lock(mutex_);
  if (over(t)) return t.error;
  throw Failure{{Kind::timeout,
                 fmt::format("peer channel: rank {} waited past its deadline for a {}: {}; wait again, or destroy the Pending to end it",
                             me_, t.text(), why_late(t)),
                 Rank{t.peer}}};
}

bool ChannelCore::poll(Transfer& t) {
  const auto ended = [&] {
    progress(0);
    const std::lock_guard lock(mutex_);
    return over(t);
  };
  return ended() || (links_->poll_once(), ended());
}

std::size_t ChannelCore::wait_any(const std::vector<Transfer*>& transfers, Deadline deadline) {
  const std::size_t n = transfers.size();
  const std::size_t first = next_found_.load(std::memory_order_relaxed);
  std::size_t found = n;
  const auto look = [&] {
    for (std::size_t i = 0; i < n && found == n; ++i) {
      Transfer* const t = transfers[(first + i) % n];
      if (t != nullptr && over(*t)) found = (first + i) % n;
    }
    return found < n;
  };
  if (await(look, deadline)) {
    next_found_.store(found + 1, std::memory_order_relaxed);
    return found;
  }
  constexpr std::size_t kNamed = 3;
  std::string names;
  std::size_t under_way = 0;
  for (const Transfer* const t : transfers)
    if (t != nullptr && ++under_way <= kNamed) names += (names.empty() ? "" : ", ") + t->text();
  throw_failure(Kind::timeout,
                "peer channel: rank {} waited past its deadline for any of {} calls ({}{}); do those ranks wait in their channels?", me_,
                under_way, names, under_way > kNamed ? ", .." : "");
}

// ---- the end

void ChannelCore::give_up(Transfer& t) noexcept try {
  net::Pending announcing, moving;
  {
    const std::lock_guard lock(mutex_);
    if (over(t)) return;
    Peer& peer = peers_[static_cast<std::size_t>(t.peer)];
    if (t.stage == Transfer::Stage::moving) {
      announcing = std::move(t.announcing);
      moving = std::move(t.net);
      if (!t.sends) peer.granted.erase(t.id);
    } else if (t.sends) {
      peer.offered.erase(t.id);
      tell(peer, {.kind = Record::Kind::withdraw, .tag = t.tag, .id = t.id});
    } else if (const auto queue = peer.posted.find(t.tag); queue != peer.posted.end()) {
      std::erase_if(queue->second, [&](const TransferPtr& one) { return one.get() == &t; });
      if (queue->second.empty()) peer.posted.erase(queue);
    }
    t.stage = Transfer::Stage::ended;
  }
  announcing.detach();
  moving.detach();  // without mutex_: it may wait, and another thread's progress with it
} catch (...) {     // out of memory: the peer will not hear of it, its own deadline ends its wait
}

std::optional<Error> ChannelCore::lost(Rank rank) const {
  if (rank.value < 0 || rank.value >= size())
    throw_failure(Kind::usage, "peer channel: lost: rank {} is not one of 0 .. {}", rank.value, size() - 1);
  const std::lock_guard lock(mutex_);
  const Peer& peer = peers_[static_cast<std::size_t>(rank.value)];
  return peer.lost ? peer.lost : links_->failure(peer.member);
}

void ChannelCore::interrupt() noexcept {
  interrupted_.store(true);
  links_->wake_waiters();
}

void ChannelCore::close() noexcept try {
  {
    const std::lock_guard lock(mutex_);
    const Error closed{Kind::usage, "the channel was closed on this rank before the call ended", Rank{me_}};
    for (Peer& peer : peers_) {
      const auto offered = std::exchange(peer.offered, {});
      for (const auto& [id, t] : offered) {
        end(*t, closed);
        tell(peer, {.kind = Record::Kind::withdraw, .tag = t->tag, .id = id});
      }
      if (peer.rank != me_) tell(peer, {.kind = Record::Kind::close});
      lose(peer, closed);
    }
  }
  links_->wake_waiters();
} catch (...) {  // out of memory: as in give_up()
}

}  // namespace cohort::collective
