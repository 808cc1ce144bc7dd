#include "cohort/net/mailbox.h"

#include <algorithm>
#include <cstring>

namespace cohort::net {
namespace {

constexpr std::size_t kSmallBytes = 4_KiB;  // copied under the lock: cheaper than pinning

void copy_bytes(Bytes to, ConstBytes from) {
  if (!from.empty()) std::memcpy(to.data(), from.data(), from.size());  // memcpy of nothing may not see null
}

}  // namespace

std::string tag_text(Tag tag) { return fmt::format("tag {}:{}", tag.channel, tag.number); }

// ---- the receiving side

Mailbox::Mailbox(Rank me, int ranks, std::uint64_t unexpected_bytes)
    : me_(me), cap_(unexpected_bytes), boxes_(static_cast<std::size_t>(ranks)) {}

std::size_t Mailbox::index(Rank peer) const {
  if (peer.value < 0 || peer.value >= ranks())
    throw_failure(Kind::usage, "no rank {} here: there are ranks 0 to {}", peer.value, ranks() - 1);
  return static_cast<std::size_t>(peer.value);
}

std::shared_ptr<Receive> Mailbox::post(Rank from, Tag tag, Bytes into) {
  auto receive = std::make_shared<Receive>(from, tag, into);
  std::shared_ptr<Parcel> parcel;
  {
    const std::lock_guard lock(mutex_);
    Box& box = boxes_[index(from)];
    if (box.error && !box.polite) return receive->finish(box.error), receive;
    const auto mine = [&](const auto& p) { return p->tag == tag && !p->receive; };
    const auto at = std::find_if(box.parcels.begin(), box.parcels.end(), mine);
    if (at == box.parcels.end()) {
      if (box.error) return receive->finish(box.error), receive;
      box.posted.push_back(receive);
      make_room(box);
      return receive;
    }
    if (!(*at)->arrived) return (*at)->receive = receive, receive;
    parcel = take_parcel(box, static_cast<std::size_t>(at - box.parcels.begin()));
  }
  if (parcel->length != into.size()) return receive->finish(wrong_length(*receive, parcel->length)), receive;
  copy_bytes(into, parcel->bytes);
  receive->finish({});
  return receive;
}

void Mailbox::cancel(const std::shared_ptr<Receive>& receive) {
  const std::lock_guard lock(mutex_);
  Box& box = boxes_[index(receive->from())];
  std::erase(box.posted, receive);
  std::erase(box.landing, receive);
  for (auto& parcel : box.parcels)
    if (parcel->receive == receive) parcel->receive.reset();
  receive->cancel();
}

std::optional<Message> Mailbox::take(TagRange range) {
  const std::lock_guard lock(mutex_);
  Box* best = nullptr;
  std::size_t best_at = 0;
  for (Box& box : boxes_) {
    const auto ready = [&](const auto& p) { return p->arrived && range.holds(p->tag); };
    const auto at = std::find_if(box.parcels.begin(), box.parcels.end(), ready);
    if (at == box.parcels.end() || (best != nullptr && best->parcels[best_at]->order < (*at)->order)) continue;
    best = &box;
    best_at = static_cast<std::size_t>(at - box.parcels.begin());
  }
  if (best == nullptr) return std::nullopt;
  const auto parcel = take_parcel(*best, best_at);
  return Message{parcel->from, parcel->tag, std::move(parcel->bytes)};
}

void Mailbox::discard(TagRange range) {
  const std::lock_guard lock(mutex_);
  for (Box& box : boxes_) {
    for (std::size_t at = 0; at < box.parcels.size();) {
      if (range.holds(box.parcels[at]->tag) && !box.parcels[at]->receive)
        take_parcel(box, at)->dropped = true;
      else
        ++at;
    }
  }
}

void Mailbox::wanting_any(int change) {
  const std::lock_guard lock(mutex_);
  wanting_any_ += change;
  if (change > 0)
    for (Box& box : boxes_) make_room(box);
}

// ---- the transport side

bool Mailbox::must_pause(const Box& box, const Landing& landing, Haste haste, Strand strand) const {
  if (landing.from_ == me_ || haste == Haste::now || wanting_any_ > 0) return false;
  const auto behind_it = [&](const auto& receive) { return strand.carries(receive->tag()); };
  if (std::any_of(box.posted.begin(), box.posted.end(), behind_it)) return false;
  if (haste == Haste::none && landing.tag_.number >= kCollectiveTags && landing.length_ >= kLargeBytes) return true;
  return landing.length_ > cap_ || box.unexpected > cap_ - landing.length_;
}

std::optional<Landing> Mailbox::arrive(Rank from, Tag tag, std::uint64_t length, Haste haste, Strand strand) {
  const std::lock_guard lock(mutex_);
  Box& box = boxes_[index(from)];
  Landing landing;
  landing.from_ = from;
  landing.tag_ = tag;
  landing.length_ = length;
  if (box.error) return landing;
  if (auto receive = match_posted(box, tag)) {
    if (receive->into_.size() == length)
      box.landing.push_back(landing.receive_ = std::move(receive));
    else
      receive->finish(wrong_length(*receive, length));
    return landing;
  }
  if (must_pause(box, landing, haste, strand)) return box.paused = true, std::nullopt;
  landing.parcel_ = std::make_shared<Parcel>();
  landing.parcel_->from = from;
  landing.parcel_->tag = tag;
  landing.parcel_->length = length;
  landing.parcel_->bytes.reserve(static_cast<std::size_t>(std::min(length, cap_)));
  box.unexpected += length;
  box.parcels.push_back(landing.parcel_);
  return landing;
}

void Mailbox::landed(Landing&& landing) {
  std::shared_ptr<Receive> late;  // posted while the bytes were coming
  {
    const std::lock_guard lock(mutex_);
    Box& box = boxes_[index(landing.from_)];
    if (landing.receive_) {
      std::erase(box.landing, landing.receive_);
      landing.receive_->finish({});
    }
    const auto& parcel = landing.parcel_;
    if (!parcel || parcel->dropped) return;
    parcel->arrived = true;
    parcel->order = ++arrivals_;
    if (!parcel->receive) parcel->receive = match_posted(box, landing.tag_);  // the one it was bound to may have been cancelled
    if (!parcel->receive) return;
    late = parcel->receive;
    take_parcel(box, static_cast<std::size_t>(std::find(box.parcels.begin(), box.parcels.end(), parcel) - box.parcels.begin()));
  }
  const bool fits = landing.parcel_->length == late->into_.size();
  if (fits && late->pin()) {
    copy_bytes(late->into_, landing.parcel_->bytes);
    late->unpin();
  }
  const std::lock_guard lock(mutex_);
  late->finish(fits ? std::nullopt : std::optional(wrong_length(*late, landing.parcel_->length)));
}

bool Mailbox::deliver(Rank from, Tag tag, ConstBytes bytes) {
  if (bytes.size() <= kSmallBytes) {
    const std::lock_guard lock(mutex_);
    Box& box = boxes_[index(from)];
    if (box.error) return true;
    if (const auto receive = match_posted(box, tag)) {
      if (receive->into_.size() != bytes.size()) return receive->finish(wrong_length(*receive, bytes.size())), true;
      copy_bytes(receive->into_, bytes);
      return receive->finish({}), true;
    }
  }
  auto landing = arrive(from, tag, bytes.size());
  if (!landing) return false;
  landing->copy(bytes);
  landed(std::move(*landing));
  return true;
}

bool Mailbox::thaw(Rank peer) {
  const std::lock_guard lock(mutex_);
  Box& box = boxes_[index(peer)];
  if (!box.thawed) return false;
  box.thawed = box.paused = false;
  return true;
}

// ---- failure

bool Mailbox::fail(Rank peer, const Error& error, bool polite) {
  const std::lock_guard lock(mutex_);
  Box& box = boxes_[index(peer)];
  if (box.error) return false;
  box.error = error;
  box.polite = polite;
  box.failed = true;
  const auto end = [&](const std::shared_ptr<Receive>& receive) {
    if (!receive) return;
    receive->cancel();
    receive->finish(error);
  };
  for (const auto& receive : box.posted) end(receive);
  box.posted.clear();
  for (const auto& receive : std::exchange(box.landing, {})) end(receive);
  for (std::size_t at = 0; at < box.parcels.size();) {
    if (box.parcels[at]->arrived) {
      ++at;
      continue;
    }
    const auto parcel = take_parcel(box, at);  // the rest of it will never come
    parcel->dropped = true;
    end(parcel->receive);
  }
  return true;
}

std::optional<Error> Mailbox::failure(Rank peer) const {
  if (!failed(peer)) return std::nullopt;
  const std::lock_guard lock(mutex_);
  return boxes_[index(peer)].error;
}

std::optional<Error> Mailbox::any_failure() const {
  const std::lock_guard lock(mutex_);
  for (const Box& box : boxes_)
    if (box.error) return box.error;
  return std::nullopt;
}

// ---- small parts

std::shared_ptr<Receive> Mailbox::match_posted(Box& box, Tag tag) {
  const auto at = std::find_if(box.posted.begin(), box.posted.end(), [&](const auto& r) { return r->tag() == tag; });
  if (at == box.posted.end()) return nullptr;
  auto receive = *at;
  box.posted.erase(at);
  return receive;
}

std::shared_ptr<Parcel> Mailbox::take_parcel(Box& box, std::size_t at) {
  auto parcel = box.parcels[at];
  box.parcels.erase(box.parcels.begin() + static_cast<std::ptrdiff_t>(at));
  box.unexpected -= parcel->length;
  make_room(box);
  return parcel;
}

Error Mailbox::wrong_length(const Receive& receive, std::uint64_t came) {
  return {Kind::corrupt,
          fmt::format("rank {} sent {} bytes where {} were expected ({}); both sides must agree on the length", receive.from().value, came,
                      receive.into_.size(), tag_text(receive.tag())),
          receive.from()};
}

}  // namespace cohort::net
