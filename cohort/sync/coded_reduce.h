// Gradients reduced by way of a codec: what crosses the wire are payloads, and what a codec does not send stays here (codec/feedback.h).
//   Mix::add     all-reduce of payloads                                     to owners: reduce-scatter of a payload for each owner
//                a codec of several rounds: one all-reduce each             to owners: the same, and keeps its own part
//   Mix::gather  all-gather of payloads (of their lengths first, where      to owners: the same, and keeps its own part
//                these differ); everybody adds all of them
//   Mix::hops    all-to-all: owners add their part, encode the sum, and     to owners: the first leg only
//                all-gather it (lengths first, likewise); what the second
//                encoding loses is the owner's to keep. A codec that votes: owners take C of their sum, in both columns
// All ranks end with the same bits. cost() are the bytes a rank receives, which Communicator::moved() counts.
// Owner: who owns the bucket; its memory is the communicator's, taken once. Threads: one at a time. Failure: the communicator's, and
// Kind::corrupt for payloads that no codec gives; the residuals are as they were until settle(true). Other ranks: another CodedReduce,
// which takes the residuals by Feedback::restore().
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "cohort/codec/codec.h"
#include "cohort/codec/feedback.h"
#include "cohort/collective/communicator.h"

namespace cohort::sync {

enum class ReduceTo { all, owners };

struct CodedStep {
  double weight = 1;       // what a unit of the gradient moves a parameter by: learning rate / loss scale (codec/feedback.h)
  double unit = 1;         // the second part of that: 1 / loss scale
  std::uint64_t seed = 0;  // of the job, for codecs that draw
  std::int64_t step = 0;
};

class CodedReduce {
 public:
  // edges: rank r owns the elements [edges[r], edges[r + 1]) of the layout; cut() of ownership.h. comm: for sizes and memory.
  CodedReduce(std::shared_ptr<const codec::Codec> codec, Layout layout, std::vector<std::size_t> edges, ReduceTo to,
              collective::Communicator& comm);

  // Collective. gradients: the whole layout, fp32. They become the sum or average (to all), or hold nothing afterwards and the own part
  // lies in `own` (to owners; it may be that part of gradients).
  void reduce(collective::Communicator& comm, const Piece& gradients, const Piece& own, collective::Op op, const CodedStep& step,
              const collective::Call& call = {});
  void settle(bool committed);           // after every step: the verdict of its vote; again, or without a reduce(): no harm
  void keep(const ElementRange& range);  // before it: these elements of the layout are not updated, so nothing of them counts as sent

  std::size_t cost() const;  // bytes this rank receives in one reduce(), at most where the codec says variable()
  bool votes() const { return codec_->votes(); }
  codec::Feedback* sent() { return sent_ ? &*sent_ : nullptr; }  // what this rank did not send of its gradients
  // What the codec keeps of a tensor of the layout for the next step, the same on all ranks; it may be written. No elements: nothing.
  Piece memory(std::size_t tensor) { return piece(std::span(memory_)).part(places_[tensor], places_[tensor + 1] - places_[tensor]); }
  bool remembers() const { return !memory_.empty(); }
  // Collective: where ranks do not have the same memory, as when one of them has just come, all begin anew.
  void agree_on_memory(collective::Communicator& comm, const collective::Call& call = {});
  Shape memory_shape(std::size_t tensor) const { return codec_->memory(layout_.tensors[tensor]); }
  codec::Feedback* sum() { return sum_ ? &*sum_ : nullptr; }  // what it did not send of the sum it owns
  ElementRange owned() const { return range_of(static_cast<std::size_t>(me_)); }

 private:
  struct Round;  // what one reduce() hands from leg to leg
  ElementRange range_of(std::size_t rank) const { return {edges_[rank], edges_[rank + 1] - edges_[rank]}; }
  std::size_t whole_bytes() const;
  codec::Random random(const CodedStep& step, int leg) const;
  std::size_t encode(const Round& round, const Piece& values, const ElementRange& range, std::size_t slot, int leg);
  std::vector<std::size_t> encode_all(const Round& round, const Piece& values);
  std::vector<std::size_t> lengths(const Round& round, std::size_t used, const std::vector<std::size_t>& most) const;
  std::vector<std::size_t> checked(const std::vector<std::uint64_t>& said, const std::vector<std::size_t>& most) const;
  std::vector<std::size_t> exchange(const Round& round, const std::vector<std::size_t>& used);
  void reduce_add(Round& round, const Piece& values);
  void reduce_rounds(Round& round, const Piece& values);
  void clip(const Piece& gradients, collective::Op op, double unit) const;
  void reduce_gather(Round& round, const Piece& values);
  void reduce_hops(Round& round, const Piece& values);
  void hand_out(Round& round, const Piece& sum);
  void absorb(const Round& round, const ElementRange& range, const ElementRange& keep, const std::vector<ConstBytes>& payloads,
              const Piece& out, double scale) const;
  static std::vector<ConstBytes> payload(const collective::Region& region, std::size_t first, std::size_t bytes);
  static std::vector<ConstBytes> payloads(const collective::Region& region, const std::vector<std::size_t>& bytes);

  const std::shared_ptr<const codec::Codec> codec_;  // shared: all buckets of a job use one
  const Layout layout_;
  const std::vector<std::size_t> edges_;  // by rank, one more than ranks
  const ReduceTo to_;
  const int ranks_, me_;
  const bool by_owner_;                      // a payload for each owner, or one of the whole
  std::vector<std::size_t> bytes_, starts_;  // of each owner's payload
  collective::Region out_, in_;              // payloads that leave, payloads that came
  std::optional<codec::Feedback> sent_, sum_;
  std::vector<std::size_t> places_;          // of each tensor's part of memory_
  std::vector<float> memory_, next_memory_;  // of the committed steps, and of the one under way
  bool remembered_ = false;                  // the latter is there
};

}  // namespace cohort::sync
