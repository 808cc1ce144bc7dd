#include "cohort/net/transport/mailbox.h"

#include <algorithm>
#include <cstring>

namespace cohort::net {
namespace {

constexpr std::size_t kSmallBytes = 4_KiB;  // copied under the lock: cheaper than pinning

void copy_bytes(Bytes to, ConstBytes from) {
  if (!from.empty()) std::memcpy(to.data(), from.data(), from.size());  // memcpy must not be given null, even for 0 bytes
}

}  // namespace

std::string tag_text(Tag tag) { return fmt::format("tag {}:{}", tag.channel, tag.number); }

// ---- the receiving side

Mailbox::Mailbox(Rank me, int ranks, std::uint64_t unexpected_bytes)
    : me_(me), unexpected_limit_(unexpected_bytes), queues_(static_cast<std::size_t>(ranks)) {}

std::size_t Mailbox::index(Rank peer) const {
  if (peer.value < 0 || peer.value >= ranks())
    throw_failure(Kind::usage, "no rank {} here: there are ranks 0 to {}", peer.value, ranks() - 1);
  return static_cast<std::size_t>(peer.value);
}

std::shared_ptr<Receive> Mailbox::post(Rank from, Tag tag, Bytes into) {
  auto receive = std::make_shared<Receive>(from, tag, into);
  std::shared_ptr<UnexpectedMessage> message;
  {
    const std::lock_guard lock(mutex_);
    PeerQueues& queues = queues_[index(from)];
    if (queues.error && !queues.polite) return receive->finish(queues.error), receive;
    const auto mine = [&](const auto& p) { return p->tag == tag && !p->receive; };
    const auto at = std::find_if(queues.unexpected_messages.begin(), queues.unexpected_messages.end(), mine);
    if (at == queues.unexpected_messages.end()) {
      if (queues.error) return receive->finish(queues.error), receive;
      queues.posted.push_back(receive);
      make_room(queues);
      return receive;
    }
    if (!(*at)->arrived) return (*at)->receive = receive, receive;
    message = take_unexpected(queues, static_cast<std::size_t>(at - queues.unexpected_messages.begin()));
  }
  if (message->length != into.size()) return receive->finish(wrong_length(*receive, message->length)), receive;
  copy_bytes(into, message->bytes);
  receive->finish({});
  return receive;
}

void Mailbox::cancel(const std::shared_ptr<Receive>& receive) {
  const std::lock_guard lock(mutex_);
  PeerQueues& queues = queues_[index(receive->from())];
  std::erase(queues.posted, receive);
  std::erase(queues.filling, receive);
  for (auto& message : queues.unexpected_messages)
    if (message->receive == receive) message->receive.reset();
  receive->cancel();
}

void Mailbox::drop(const std::shared_ptr<Receive>& receive) {
  const std::lock_guard lock(mutex_);
  if (receive->done()) return;
  PeerQueues& queues = queues_[index(receive->from())];
  auto& unexpected = queues.unexpected_messages;
  const auto half = std::find_if(unexpected.begin(), unexpected.end(), [&](const auto& message) { return message->receive == receive; });
  if (half != unexpected.end())
    take_unexpected(queues, static_cast<std::size_t>(half - unexpected.begin()))->dropped = true;
  else if (std::erase(queues.posted, receive) > 0)
    queues.dropped.push_back(receive->tag());
  else
    std::erase(queues.filling, receive);
  receive->cancel();
  receive->finish({});
}

std::optional<Message> Mailbox::take(TagRange range) {
  const std::lock_guard lock(mutex_);
  PeerQueues* best = nullptr;
  std::size_t best_at = 0;
  for (PeerQueues& queues : queues_) {
    const auto ready = [&](const auto& p) { return p->arrived && range.holds(p->tag); };
    const auto at = std::find_if(queues.unexpected_messages.begin(), queues.unexpected_messages.end(), ready);
    if (at == queues.unexpected_messages.end() || (best != nullptr && best->unexpected_messages[best_at]->order < (*at)->order)) continue;
    best = &queues;
    best_at = static_cast<std::size_t>(at - queues.unexpected_messages.begin());
  }
  if (best == nullptr) return std::nullopt;
  const auto message = take_unexpected(*best, best_at);
  return Message{message->from, message->tag, std::move(message->bytes)};
}

void Mailbox::discard(TagRange range) {
  const std::lock_guard lock(mutex_);
  for (PeerQueues& queues : queues_) {
    for (std::size_t at = 0; at < queues.unexpected_messages.size();) {
      if (range.holds(queues.unexpected_messages[at]->tag) && !queues.unexpected_messages[at]->receive)
        take_unexpected(queues, at)->dropped = true;
      else
        ++at;
    }
  }
}

void Mailbox::add_any_waiters(int change) {
  const std::lock_guard lock(mutex_);
  any_waiters_ += change;
  if (change > 0)
    for (PeerQueues& queues : queues_) make_room(queues);
}

// ---- the transport side

bool Mailbox::must_pause(const PeerQueues& queues, const ReceiveSlot& slot, ReadUrgency urgency, StreamId stream_id) const {
  if (slot.from_ == me_ || urgency == ReadUrgency::now || any_waiters_ > 0) return false;
  const auto behind_it = [&](const auto& receive) { return stream_id.carries(receive->tag()); };
  if (std::any_of(queues.posted.begin(), queues.posted.end(), behind_it)) return false;
  if (urgency == ReadUrgency::none && slot.tag_.number >= kCollectiveTags && slot.length_ >= kLargeBytes) return true;
  return slot.length_ > unexpected_limit_ || queues.unexpected > unexpected_limit_ - slot.length_;
}

std::optional<ReceiveSlot> Mailbox::arrive(Rank from, Tag tag, std::uint64_t length, ReadUrgency urgency, StreamId stream_id) {
  const std::lock_guard lock(mutex_);
  PeerQueues& queues = queues_[index(from)];
  ReceiveSlot slot;
  slot.from_ = from;
  slot.tag_ = tag;
  slot.length_ = length;
  if (queues.error) return slot;
  if (auto receive = match_posted(queues, tag)) {
    if (receive->into_.size() == length)
      queues.filling.push_back(slot.receive_ = std::move(receive));
    else
      receive->finish(wrong_length(*receive, length));
    return slot;
  }
  if (std::erase(queues.dropped, tag) > 0) return slot;
  if (must_pause(queues, slot, urgency, stream_id)) return queues.paused = true, std::nullopt;
  slot.unexpected_ = std::make_shared<UnexpectedMessage>();
  slot.unexpected_->from = from;
  slot.unexpected_->tag = tag;
  slot.unexpected_->length = length;
  slot.unexpected_->bytes.reserve(static_cast<std::size_t>(std::min(length, unexpected_limit_)));
  queues.unexpected += length;
  queues.unexpected_messages.push_back(slot.unexpected_);
  return slot;
}

void Mailbox::finish(ReceiveSlot&& slot) {
  std::shared_ptr<Receive> late;  // posted while the bytes were coming
  {
    const std::lock_guard lock(mutex_);
    PeerQueues& queues = queues_[index(slot.from_)];
    if (slot.receive_) {
      std::erase(queues.filling, slot.receive_);
      slot.receive_->finish({});
    }
    const auto& message = slot.unexpected_;
    if (!message || message->dropped) return;
    message->arrived = true;
    message->order = ++arrivals_;
    if (!message->receive) message->receive = match_posted(queues, slot.tag_);  // the one it was bound to may have been cancelled
    if (!message->receive) return;
    late = message->receive;
    take_unexpected(queues,
                    static_cast<std::size_t>(std::find(queues.unexpected_messages.begin(), queues.unexpected_messages.end(), message) -
                                             queues.unexpected_messages.begin()));
  }
  const bool fits = slot.unexpected_->length == late->into_.size();
  if (fits && late->pin()) {
    copy_bytes(late->into_, slot.unexpected_->bytes);
    late->unpin();
  }
  const std::lock_guard lock(mutex_);
  late->finish(fits ? std::nullopt : std::optional(wrong_length(*late, slot.unexpected_->length)));
}

bool Mailbox::deliver(Rank from, Tag tag, ConstBytes bytes) {
  if (bytes.size() <= kSmallBytes) {
    const std::lock_guard lock(mutex_);
    PeerQueues& queues = queues_[index(from)];
    if (queues.error) return true;
    if (const auto receive = match_posted(queues, tag)) {
      if (receive->into_.size() != bytes.size()) return receive->finish(wrong_length(*receive, bytes.size())), true;
      copy_bytes(receive->into_, bytes);
      return receive->finish({}), true;
    }
  }
  auto slot = arrive(from, tag, bytes.size());
  if (!slot) return false;
  slot->copy(bytes);
  finish(std::move(*slot));
  return true;
}

bool Mailbox::take_resume(Rank peer) {
  const std::lock_guard lock(mutex_);
  PeerQueues& queues = queues_[index(peer)];
  if (!queues.may_resume) return false;
  queues.may_resume = queues.paused = false;
  return true;
}

// ---- failure

bool Mailbox::fail(Rank peer, const Error& error, bool polite) {
  const std::lock_guard lock(mutex_);
  PeerQueues& queues = queues_[index(peer)];
  if (queues.error) return false;
  queues.error = error;
  queues.polite = polite;
  queues.failed = true;
  const auto end = [&](const std::shared_ptr<Receive>& receive) {
    if (!receive) return;
    receive->cancel();
    receive->finish(error);
  };
  for (const auto& receive : queues.posted) end(receive);
  queues.posted.clear();
  queues.dropped.clear();
  for (const auto& receive : std::exchange(queues.filling, {})) end(receive);
  for (std::size_t at = 0; at < queues.unexpected_messages.size();) {
    if (queues.unexpected_messages[at]->arrived) {
      ++at;
      continue;
    }
    const auto message = take_unexpected(queues, at);  // the rest of it will never come
    message->dropped = true;
    end(message->receive);
  }
  return true;
}

std::optional<Error> Mailbox::failure(Rank peer) const {
  if (!failed(peer)) return std::nullopt;
  const std::lock_guard lock(mutex_);
  return queues_[index(peer)].error;
}

std::optional<Error> Mailbox::any_failure() const {
  const std::lock_guard lock(mutex_);
  for (const PeerQueues& queues : queues_)
    if (queues.error) return queues.error;
  return std::nullopt;
}

// ---- small parts

std::shared_ptr<Receive> Mailbox::match_posted(PeerQueues& queues, Tag tag) {
  const auto at = std::find_if(queues.posted.begin(), queues.posted.end(), [&](const auto& r) { return r->tag() == tag; });
  if (at == queues.posted.end()) return nullptr;
  auto receive = *at;
  queues.posted.erase(at);
  return receive;
}

std::shared_ptr<UnexpectedMessage> Mailbox::take_unexpected(PeerQueues& queues, std::size_t at) {
  auto message = queues.unexpected_messages[at];
  queues.unexpected_messages.erase(queues.unexpected_messages.begin() + static_cast<std::ptrdiff_t>(at));
  queues.unexpected -= message->length;
  make_room(queues);
  return message;
}

Error Mailbox::wrong_length(const Receive& receive, std::uint64_t came) {
  return {Kind::corrupt,
          fmt::format("rank {} sent {} bytes where {} were expected ({}); both sides must agree on the length", receive.from().value, came,
                      receive.into_.size(), tag_text(receive.tag())),
          receive.from()};
}

}  // namespace cohort::net
