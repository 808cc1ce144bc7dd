#include "cohort/sync/coded_reduce.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "cohort/base/error.h"

namespace cohort::sync {

using codec::Mix;
using collective::Call;
using collective::Communicator;
using collective::Op;

struct CodedReduce::Round {
  Communicator& comm;
  Piece gradients, own;
  Op op;
  double scale;  // of the sum, where ranks add: 1, or 1 / ranks
  CodedStep step;
  Call call;
};

CodedReduce::CodedReduce(std::shared_ptr<const codec::Codec> codec, Layout layout, std::vector<std::size_t> edges, ReduceTo to,
                         Communicator& comm)
    : codec_(std::move(codec)),
      layout_(std::move(layout)),
      edges_(std::move(edges)),
      to_(to),
      ranks_(comm.size()),
      me_(comm.rank().value),
      by_owner_(codec_->mix() == Mix::hops || (codec_->mix() == Mix::add && to == ReduceTo::owners)) {
  const auto n = static_cast<std::size_t>(ranks_);
  if (edges_.size() != n + 1) throw_failure(Kind::bug, "coded reduce: {} edges for {} ranks", edges_.size(), n);
  for (std::size_t r = 0; r < n; ++r) bytes_.push_back(by_owner_ ? codec_->bound(layout_, range_of(r)) : r > 0 ? 0 : whole_bytes());
  starts_.resize(n + 1);
  std::partial_sum(bytes_.begin(), bytes_.end(), starts_.begin() + 1);
  out_ = comm.allocate(starts_.back());
  const std::size_t mine = bytes_[static_cast<std::size_t>(me_)];
  if (codec_->mix() == Mix::gather) in_ = comm.allocate(n * starts_.back());
  if (codec_->mix() == Mix::hops) in_ = comm.allocate(std::max(n * mine, starts_.back()));
  if (codec_->mix() == Mix::add && by_owner_) in_ = comm.allocate(mine);
  if (codec_->feedback()) sent_.emplace(layout_.count);
  if (codec_->feedback() && codec_->mix() == Mix::hops && to_ == ReduceTo::all) sum_.emplace(owned().count);
}

std::size_t CodedReduce::whole_bytes() const { return codec_->bound(layout_, layout_.all()); }

std::size_t CodedReduce::cost() const {
  const auto others = static_cast<std::size_t>(ranks_ - 1), all = starts_.back(), mine = bytes_[static_cast<std::size_t>(me_)];
  const std::size_t unit = size_of(codec_->payload());
  if (codec_->mix() == Mix::gather) return others * all;
  if (codec_->mix() == Mix::hops) return others * mine + (to_ == ReduceTo::all ? all - mine : 0);
  return by_owner_ ? others * mine : 2 * (all / unit) * others / (others + 1) * unit;
}

void CodedReduce::reduce(Communicator& comm, const Piece& gradients, const Piece& own, Op op, const CodedStep& step, const Call& call) {
  if (op != Op::sum && op != Op::average) throw_failure(Kind::usage, "a codec has sums and averages, no {}", name_of(op));
  if (comm.size() != ranks_ || comm.rank().value != me_)
    throw_failure(Kind::bug, "coded reduce: made for rank {} of {}, used by rank {} of {}", me_, ranks_, comm.rank().value, comm.size());
  Round round{comm, gradients, own, op, op == Op::average ? 1.0 / ranks_ : 1.0, step, call};
  const Piece values = sent_ ? sent_->begin(gradients, step.weight) : gradients;
  if (codec_->mix() == Mix::add) return reduce_add(round, values);
  if (codec_->mix() == Mix::gather) return reduce_gather(round, values);
  reduce_hops(round, values);
}

void CodedReduce::keep(const ElementRange& range) {
  if (sent_) sent_->keep(range);
  const ElementRange both = range.overlap(owned());
  if (sum_ && both.count > 0) sum_->keep({both.first - owned().first, both.count});
}

void CodedReduce::settle(bool committed) {
  if (sent_) sent_->settle(committed);
  if (sum_) sum_->settle(committed);
}

// Fills the payload's whole place: what encode() leaves is zero, as absorb() wants it.
void CodedReduce::encode(const Round& round, const Piece& values, const ElementRange& range, std::size_t slot, int leg) {
  std::byte* const to = static_cast<std::byte*>(out_.data()) + starts_[slot];
  const Bytes place(to, bytes_[slot]);
  const auto stream = static_cast<std::uint32_t>(me_ + leg * ranks_);
  const codec::Random random(round.step.seed, static_cast<std::uint64_t>(round.step.step), stream);
  const std::size_t used = codec_->encode({.layout = layout_, .range = range, .values = values, .random = random}, place);
  std::fill(place.begin() + static_cast<std::ptrdiff_t>(used), place.end(), std::byte{0});
}

// Every payload of this rank, and what it stands for noted; `gradients` are the scratch memory for that.
void CodedReduce::encode_all(const Round& round, const Piece& values) {
  const auto slots = static_cast<std::size_t>(by_owner_ ? ranks_ : 1);
  for (std::size_t s = 0; s < slots; ++s) encode(round, values, by_owner_ ? range_of(s) : layout_.all(), s, 0);
  if (!sent_) return;
  for (std::size_t s = 0; s < slots; ++s) {
    const ElementRange range = by_owner_ ? range_of(s) : layout_.all();
    absorb(range, range, payload(out_, starts_[s], bytes_[s]), round.gradients.part(range.first, range.count), 1);
  }
  sent_->note_sent(round.gradients);
}

void CodedReduce::reduce_add(Round& round, const Piece& values) {
  encode_all(round, values);
  const std::size_t unit = size_of(codec_->payload());
  const Piece payloads{out_.data(), starts_.back() / unit, codec_->payload()};
  if (!by_owner_) {
    round.comm.all_reduce(payloads, round.op, round.call);
    return absorb(layout_.all(), layout_.all(), payload(out_, 0, starts_.back()), round.gradients, 1);
  }
  std::vector<std::size_t> counts;
  for (const std::size_t bytes : bytes_) counts.push_back(bytes / unit);
  const std::size_t mine = bytes_[static_cast<std::size_t>(me_)];
  round.comm.reduce_scatter(payloads, {in_.data(), mine / unit, codec_->payload()}, round.op, round.call, counts);
  absorb(owned(), owned(), payload(in_, 0, mine), round.own, 1);
}

void CodedReduce::reduce_gather(Round& round, const Piece& values) {
  encode_all(round, values);
  const std::size_t each = starts_.back(), n = static_cast<std::size_t>(ranks_);
  round.comm.all_gather({out_.data(), each, Dtype::u8}, {in_.data(), n * each, Dtype::u8}, round.call);
  const bool all = to_ == ReduceTo::all;
  absorb(layout_.all(), all ? layout_.all() : owned(), payloads(in_, n, each), all ? round.gradients : round.own, round.scale);
}

void CodedReduce::reduce_hops(Round& round, const Piece& values) {
  encode_all(round, values);
  const std::size_t mine = bytes_[static_cast<std::size_t>(me_)], n = static_cast<std::size_t>(ranks_);
  const std::vector<std::size_t> same(n, mine);
  round.comm.all_to_all({out_.data(), starts_.back(), Dtype::u8}, {in_.data(), n * mine, Dtype::u8}, round.call, bytes_, same);
  const Piece sum = to_ == ReduceTo::all ? round.gradients.part(owned().first, owned().count) : round.own;
  absorb(owned(), owned(), payloads(in_, n, mine), sum, round.scale);
  if (to_ == ReduceTo::all) hand_out(round, sum);
}

// The second leg: `sum`, this rank's part of gradients, is encoded again; what that loses is this rank's to keep.
void CodedReduce::hand_out(Round& round, const Piece& sum) {
  const auto me = static_cast<std::size_t>(me_), n = static_cast<std::size_t>(ranks_);
  if (sum_) {
    const Piece with_residual = sum_->begin(sum, round.step.weight);
    if (sum.count > 0) std::memcpy(sum.data, with_residual.data, sum.bytes());
  }
  encode(round, round.gradients, owned(), me, 1);
  const Piece mine{static_cast<std::byte*>(out_.data()) + starts_[me], bytes_[me], Dtype::u8};
  round.comm.all_gather(mine, {in_.data(), starts_.back(), Dtype::u8}, round.call, bytes_);
  for (std::size_t r = 0; r < n; ++r)
    absorb(range_of(r), range_of(r), payload(in_, starts_[r], bytes_[r]), round.gradients.part(edges_[r], range_of(r).count), 1);
  if (sum_) sum_->note_sent(sum);
}

void CodedReduce::absorb(const ElementRange& range, const ElementRange& keep, const std::vector<ConstBytes>& payloads, const Piece& out,
                         double scale) const {
  codec_->absorb({.layout = layout_, .range = range, .keep = keep, .values = out, .scale = scale}, payloads);
}

std::vector<ConstBytes> CodedReduce::payloads(const collective::Region& region, std::size_t count, std::size_t each) {
  std::vector<ConstBytes> all;
  for (std::size_t k = 0; k < count; ++k) all.push_back(payload(region, k * each, each).front());
  return all;
}
std::vector<ConstBytes> CodedReduce::payload(const collective::Region& region, std::size_t first, std::size_t bytes) {
  return {ConstBytes(static_cast<const std::byte*>(region.data()) + first, bytes)};
}

}  // namespace cohort::sync
