#include "cohort/collective/peers/execute_plan.h"

#include <algorithm>
#include <array>
#include <deque>

namespace cohort::collective {
namespace {

// Over tcp 256 KiB were up to 20 % slower than 1 MiB; 2 MiB are 3 to 7 % faster where there are enough of them to fill a link of several
// sockets, and 10 % slower where there are not; 4 MiB no faster. The whole vector decides, which is as long on all ranks.
std::size_t segment_bytes(std::size_t whole) { return whole < 16_MiB ? 1_MiB : 2_MiB; }

ConstBytes bytes_in(Piece data, Range range) {
  const Piece part = data.part(range.first, range.size());
  return {static_cast<const std::byte*>(part.data), part.bytes()};
}

Range segment_of(Range range, std::size_t index, std::size_t each) {
  const std::size_t first = std::min(range.last, range.first + index * each);
  return {first, std::min(range.last, first + each)};
}

// One segment on its way to us. The executor posts a few ahead of the one it waits for, also across steps, so that messages arrive in
// posted receives: an unexpected message is copied twice.
struct Arriving {
  int from = -1;
  Range range;
  Arrival arrival = Arrival::copy;
  std::size_t step = 0, index = 0;  // the index-th segment of that step
};

class PlanExecutor {
 public:
  PlanExecutor(Peers& peers, Piece data, const Reduction& how, const Plan& plan)
      : peers_(peers), data_(data), how_(how), plan_(plan), each_(segment_bytes(data.bytes()) / size_of(data.dtype)) {
    for (std::size_t s = 0; s < plan.size(); ++s)
      for (std::size_t i = 0; plan[s].from >= 0 && i < segments(plan[s].recv); ++i)
        arriving_.push_back({plan[s].from, segment_of(plan[s].recv, i, each_), plan[s].arrival, s, i});
  }

  void run() {
    std::size_t at = 0;
    for (std::size_t s = 0; s < plan_.size(); ++s) {
      std::size_t sent = 0;
      for (; at < arriving_.size() && arriving_[at].step == s; ++at) {
        post_ahead(at);
        while (sent < arriving_[at].index + kAhead && sent < sends(s)) send(plan_[s], sent++);
        take(at);
      }
      while (sent < sends(s)) send(plan_[s], sent++);
    }
    for (auto& out : outgoing_) peers_.finish(out.pending);
  }

 private:
  static constexpr std::size_t kAhead = 4;  // segments
  struct Outgoing {
    Range range;
    net::Pending pending;
  };

  // Segments in turn, so that links of several sockets carry them side by side; both ends count alike.
  static int flow(std::size_t segment) { return static_cast<int>(segment % kFlows); }
  static bool overlap(Range a, Range b) { return a.first < b.last && b.first < a.last; }
  std::size_t segments(Range range) const { return (range.size() + each_ - 1) / each_; }
  std::size_t sends(std::size_t step) const { return plan_[step].to < 0 ? 0 : segments(plan_[step].send); }
  std::byte* scratch(std::size_t i) {
    const std::size_t segment = segment_bytes(data_.bytes());
    return peers_.scratch(kAhead * segment) + i % kAhead * segment;
  }

  void send(const Step& step, std::size_t index) {
    const Range range = segment_of(step.send, index, each_);
    outgoing_.push_back({range, peers_.send(step.to, bytes_in(data_, range), flow(index))});
  }

  // A segment that is copied into place is posted ahead of its step only when nothing before it reads or writes that place. In its own step
  // a send of that place may still wait for its receiver's word: what comes back was made from it, so it has been read.
  bool may_post(std::size_t i, std::size_t at) const {
    const Arriving& a = arriving_[i];
    if (a.arrival != Arrival::copy || a.step == arriving_[at].step) return true;
    for (const Outgoing& out : outgoing_)
      if (overlap(out.range, a.range)) return false;
    for (std::size_t s = arriving_[at].step; s < a.step; ++s)
      if ((plan_[s].to >= 0 && overlap(plan_[s].send, a.range)) || (plan_[s].from >= 0 && overlap(plan_[s].recv, a.range))) return false;
    return true;
  }

  void post_ahead(std::size_t at) {
    while (published_control_block_ < std::min(arriving_.size(), at + kAhead) &&
           (published_control_block_ == at || may_post(published_control_block_, at))) {
      const Arriving& a = arriving_[published_control_block_];
      const Piece part = data_.part(a.range.first, a.range.size());
      auto* const to = a.arrival == Arrival::copy ? static_cast<std::byte*>(part.data) : scratch(published_control_block_);
      incoming_.push_back(peers_.recv(a.from, {to, part.bytes()}, flow(a.index)));
      ++published_control_block_;
    }
  }

  // Waits for a segment and reduces it; what we send of that place is out before we change it.
  void take(std::size_t at) {
    const Arriving& a = arriving_[at];
    peers_.finish(incoming_.front());
    incoming_.pop_front();
    if (a.arrival == Arrival::copy) return;
    std::erase_if(outgoing_, [&](Outgoing& out) { return overlap(out.range, a.range) && (peers_.finish(out.pending), true); });
    reduce_into(data_.part(a.range.first, a.range.size()), scratch(at), how_, a.arrival);
  }

  Peers& peers_;
  const Piece data_;
  const Reduction& how_;
  const Plan& plan_;
  const std::size_t each_;
  std::vector<Arriving> arriving_;  // every segment, in plan order
  std::deque<net::Pending> incoming_;
  std::size_t published_control_block_ = 0;
  std::vector<Outgoing> outgoing_;
};

}  // namespace

void reduce_into(Piece mine, void* theirs, const Reduction& how, Arrival arrival) {
  std::array<const void*, 2> sources{mine.data, theirs};
  if (arrival == Arrival::theirs_left) std::swap(sources[0], sources[1]);
  void* const target = mine.data;
  kernels().reduce({how.dtype, how.op, 1.0, 1.0}, sources, {&target, 1}, mine.count);
}

void execute_plan(Peers& peers, Piece data, const Reduction& how, const Plan& plan) {
  if (how.pre != 1.0) kernels().scale(data.dtype, data.data, data.count, how.pre);
  PlanExecutor executor(peers, data, how, plan);
  peers.or_abort([&] { executor.run(); });
  if (how.post != 1.0) kernels().scale(data.dtype, data.data, data.count, how.post);
}

}  // namespace cohort::collective
