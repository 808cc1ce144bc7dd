#include "cohort/sync/centre.h"

#include <algorithm>

#include "cohort/collective/plans/plan.h"
#include "cohort/sync/elements.h"

namespace cohort::sync {
namespace {

constexpr const char* kSent = "sent";
constexpr const char* kArrived = "arrived";
constexpr std::size_t kGrain = 16;  // elements: parts begin on a 64-byte boundary

}  // namespace

std::vector<SlotSpec> Centred::slots() const {
  return {{.name = kCentreSlot, .share = Share::each, .merge = Merge::drop, .begins = SlotSpec::Begins::parameters},
          {.name = kSent, .in_communicator = true, .kept = false},
          {.name = kArrived, .in_communicator = true, .kept = false}};
}

Range Centred::part_of(const Bucket& bucket, int owner) const {
  const auto part = collective::part_of(bucket.count(), ranks_, owner, kGrain);
  return {part.first, part.size()};
}

void Centred::open(Site& site) {
  ranks_ = site.comm.size();
  me_ = site.comm.rank().value;
  held_.resize(site.buckets.size());
  std::vector<RequestService::Form> forms(site.buckets.size());
  for (Bucket* bucket : site.buckets) {
    const auto index = static_cast<std::size_t>(bucket->index());
    held_[index].bucket = bucket;
    held_[index].requests.resize(static_cast<std::size_t>(ranks_));
    forms[index] = {part_of(*bucket, me_).count, bucket->type()};
  }
  begin_step();  // who is first may meet at once
  if (ranks_ == 1) return;
  std::vector<Rank> others;
  for (int r = 0; r < ranks_; ++r)
    if (r != me_) others.push_back(Rank{r});
  service_ = std::make_unique<RequestService>(
      site.comm.channel(), std::move(others), std::move(forms),
      [this](std::uint32_t index, const Piece& values) { return meet_here(held_[index], values); }, patience_);
}

bool Centred::meet_here(Held& held, const Piece& values) {
  const std::lock_guard lock(held.mutex);
  if (!held.open || !all_finite(values)) return false;
  meet(*held.bucket, part_of(*held.bucket, me_), values);
  return true;
}

void Centred::begin_step() {
  for (Held& held : held_) {
    const std::lock_guard lock(held.mutex);
    held.open = true;
  }
}

// All owners are asked, from the next rank on, so that not all begin with the same one; and its own part meets without a message.
void Centred::exchange_models(Bucket& bucket, const Wire&) {
  Held& held = held_[static_cast<std::size_t>(bucket.index())];
  take_answers(held, Deadline::in(Seconds{0}));  // of a round before
  const Piece sent = bucket.slot(kSent), arrived = bucket.slot(kArrived);
  const auto bring_part = [&](const Range& part) {
    const Piece values = sent.part(part.first, part.count);
    bring(bucket, part, values);
    return part.count > 0 && all_finite(values);
  };
  for (int turn = 1; turn < ranks_; ++turn) {
    const int owner = (me_ + turn) % ranks_;
    auto& request = held.requests[static_cast<std::size_t>(owner)];
    const Range part = part_of(bucket, owner);
    if (request || !bring_part(part)) continue;
    request = service_->ask(Rank{owner}, static_cast<std::uint32_t>(bucket.index()), sent.part(part.first, part.count),
                            arrived.part(part.first, part.count));
  }
  if (const Range own = part_of(bucket, me_); bring_part(own)) {
    const Piece values = arrived.part(own.first, own.count);
    copy(values, sent.part(own.first, own.count));
    held.met_own = meet_here(held, values);
  }
  const Deadline deadline = Deadline::in(patience_);
  for (const auto& request : held.requests)
    if (request) request->wait(deadline);
}

void Centred::mix_models(Bucket& bucket, const Decision&) {
  take_answers(held_[static_cast<std::size_t>(bucket.index())], Deadline::in(Seconds{0}));
}

void Centred::take_answers(Held& held, Deadline deadline) {
  Bucket& bucket = *held.bucket;
  const auto take_part = [&](const Range& part) {
    take(bucket, part, bucket.slot(kSent).part(part.first, part.count), bucket.slot(kArrived).part(part.first, part.count));
  };
  if (std::exchange(held.met_own, false)) take_part(part_of(bucket, me_));
  for (int owner = 0; owner < ranks_; ++owner) {
    auto& request = held.requests[static_cast<std::size_t>(owner)];
    if (!request) continue;
    const Outcome outcome = request->wait(deadline);
    if (outcome == Outcome::answered) take_part(part_of(bucket, owner));
    if (outcome != Outcome::pending) request.reset();
  }
}

void Centred::settle() {
  for (Held& held : held_) {
    {
      const std::lock_guard lock(held.mutex);
      held.open = false;
    }
    if (held.bucket != nullptr) take_answers(held, Deadline::in(Seconds{0}));
  }
}

// Every owner's part; nothing is added to what is not its own.
void Centred::consensus(Bucket& bucket, const Piece& into, const Wire& wire) {
  fill(into, 0);
  const Range own = part_of(bucket, me_);
  copy(into.part(own.first, own.count), bucket.slot(kCentreSlot).part(own.first, own.count));
  wire.sum(bucket, into);
}

void Centred::adopt(Bucket& bucket) {
  Held& held = held_[static_cast<std::size_t>(bucket.index())];
  const std::lock_guard lock(held.mutex);
  held.open = held.met_own = false;
  for (auto& request : held.requests) request.reset();
  begin_anew(bucket, slots());
}

std::vector<SpecParam> wait_params() {
  using Type = SpecParam::Type;
  return {{.name = "wait",
           .type = Type::word,
           .doc = "for whom a round waits: for all ranks, or for none (each meets the others' in a centre when it comes)",
           .preset = "all",
           .words = {"all", "none"}},
          {.name = "patience",
           .type = Type::seconds,
           .doc = "with wait=none, the longest that a round waits for a rank that does not answer",
           .preset = "10s",
           .low = 0.001,
           .high = 3600}};
}

}  // namespace cohort::sync
