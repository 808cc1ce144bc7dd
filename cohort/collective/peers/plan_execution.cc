#include "cohort/collective/peers/plan_execution.h"

#include <utility>

namespace cohort::collective {

PlanExecution::PlanExecution(Peers& peers, std::span<const int> members, int flow, Piece data, const Reduction& how, Plan plan,
                             std::byte* scratch)
    : peers_(peers), members_(members), flow_(flow), data_(data), how_(how), plan_(std::move(plan)), scratch_(scratch) {}

// A send of that range which has not left yet.
PlanExecution::Outgoing* PlanExecution::in_the_way(Range range) {
  for (auto& out : outgoing_)
    if (out.range.first < range.last && range.first < out.range.last && !out.pending.poll()) return &out;
  return nullptr;
}

void PlanExecution::post_receive() {
  const Step& s = step();
  const Piece place = data_.part(s.recv.first, s.recv.size());
  auto* const to = reduces() ? scratch_ : static_cast<std::byte*>(place.data);
  incoming_ = peers_.recv(members_[static_cast<std::size_t>(s.from)], {to, place.bytes()}, flow_);
}

void PlanExecution::post_early() {
  posted_early_ = !plan_.empty() && reduces();
  if (posted_early_) post_receive();
}

void PlanExecution::begin_step() {
  const Step& s = step();
  if (receives() && !std::exchange(posted_early_, false)) post_receive();
  if (s.to >= 0 && s.send.size() > 0) {
    const Piece part = data_.part(s.send.first, s.send.size());
    const ConstBytes bytes{static_cast<const std::byte*>(part.data), part.bytes()};
    outgoing_.push_back({s.send, peers_.send(members_[static_cast<std::size_t>(s.to)], bytes, flow_)});
  }
  begun_ = true;
}

void PlanExecution::take() {
  if (reduces()) reduce_into(data_.part(step().recv.first, step().recv.size()), scratch_, how_, step().arrival);
  ++at_;
  begun_ = false;
}

// What we send of a place is out before something else is put there.
bool PlanExecution::advance() {
  while (at_ < plan_.size()) {
    if (!begun_) {
      if (receives() && !reduces() && in_the_way(step().recv) != nullptr) return false;
      begin_step();
    }
    if (!incoming_.poll()) return false;
    if (reduces() && in_the_way(step().recv) != nullptr) return false;
    peers_.finish(incoming_);  // done already: throws if it failed
    take();
  }
  for (auto& out : outgoing_)
    if (!out.pending.poll()) return false;
  for (auto& out : outgoing_) peers_.finish(out.pending);
  outgoing_.clear();
  return true;
}

net::Pending* PlanExecution::needed_next() {
  if (at_ < plan_.size() && begun_ && !incoming_.poll()) return &incoming_;
  if (at_ < plan_.size()) {
    Outgoing* const out = in_the_way(step().recv);
    return out == nullptr ? nullptr : &out->pending;
  }
  for (auto& out : outgoing_)
    if (!out.pending.poll()) return &out.pending;
  return nullptr;
}

void PlanExecution::wait(Seconds a_little) {
  net::Pending* const pending = needed_next();
  if (pending == nullptr) return;
  try {
    if (pending->wait_until(peers_.deadline().sooner(Deadline::in(a_little)))) return;
  } catch (const Failure&) {
    peers_.check_others();  // the root cause, where one is known
    throw;
  }
  if (peers_.failed() || peers_.deadline().passed()) peers_.finish(*pending);  // throws, and says what was waited for
}

}  // namespace cohort::collective
