#include "cohort/sync/coded_reduce.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

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
  if (codec_->mix() == Mix::gather) return others * (all + (codec_->variable() && all > 0 ? 8 : 0));
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

// The draws of ranks differ; what is encoded again is drawn by the element alone, whoever owns it: so cuts change no bits. Payloads that
// are added have the same draws.
codec::Random CodedReduce::random(const CodedStep& step, int leg) const {
  const int stream = codec_->mix() == Mix::add ? 0 : leg == 0 ? me_ : ranks_;
  return {step.seed, static_cast<std::uint64_t>(step.step), static_cast<std::uint32_t>(stream)};
}

// Fills the payload's whole place: what encode() leaves is zero, as absorb() wants it. Returns the bytes that encode() wrote.
std::size_t CodedReduce::encode(const Round& round, const Piece& values, const ElementRange& range, std::size_t slot, int leg) {
  std::byte* const to = static_cast<std::byte*>(out_.data()) + starts_[slot];
  const Bytes place(to, bytes_[slot]);
  const codec::Source source{.layout = layout_, .range = range, .values = values, .random = random(round.step, leg)};
  const std::size_t used = codec_->encode(source, place);
  std::fill(place.begin() + static_cast<std::ptrdiff_t>(used), place.end(), std::byte{0});
  return used;
}

// Every payload of this rank, and what it stands for noted; `gradients` are the scratch memory for that. Returns the bytes of the last one.
std::size_t CodedReduce::encode_all(const Round& round, const Piece& values) {
  const auto slots = static_cast<std::size_t>(by_owner_ ? ranks_ : 1);
  std::size_t used = 0;
  for (std::size_t s = 0; s < slots; ++s) used = encode(round, values, by_owner_ ? range_of(s) : layout_.all(), s, 0);
  if (!sent_) return used;
  for (std::size_t s = 0; s < slots; ++s) {
    const ElementRange range = by_owner_ ? range_of(s) : layout_.all();
    absorb(round, range, range, payload(out_, starts_[s], bytes_[s]), round.gradients.part(range.first, range.count), 1);
  }
  sent_->note_sent(round.gradients);
  return used;
}

void CodedReduce::reduce_add(Round& round, const Piece& values) {
  encode_all(round, values);
  const std::size_t unit = size_of(codec_->payload());
  const Piece payloads{out_.data(), starts_.back() / unit, codec_->payload()};
  if (!by_owner_) {
    round.comm.all_reduce(payloads, round.op, round.call);
    return absorb(round, layout_.all(), layout_.all(), payload(out_, 0, starts_.back()), round.gradients, 1);
  }
  std::vector<std::size_t> counts;
  for (const std::size_t bytes : bytes_) counts.push_back(bytes / unit);
  const std::size_t mine = bytes_[static_cast<std::size_t>(me_)];
  round.comm.reduce_scatter(payloads, {in_.data(), mine / unit, codec_->payload()}, round.op, round.call, counts);
  absorb(round, owned(), owned(), payload(in_, 0, mine), round.own, 1);
}

// What each rank's payload is long, where codecs let that differ.
std::vector<std::size_t> CodedReduce::lengths(const Round& round, std::size_t used) const {
  const auto n = static_cast<std::size_t>(ranks_);
  std::vector<std::size_t> counts(n, starts_.back());
  if (!codec_->variable() || starts_.back() == 0) return counts;
  auto own = static_cast<std::uint64_t>(used);
  std::vector<std::uint64_t> all(n);
  round.comm.all_gather({&own, 8, Dtype::u8}, {all.data(), 8 * n, Dtype::u8}, round.call);
  for (std::size_t r = 0; r < n; ++r) {
    if (all[r] > starts_.back())
      throw_failure(Kind::corrupt, "codec {}: rank {} says that its payload has {} bytes, where {} are the most", codec_->spec(), r, all[r],
                    starts_.back());
    counts[r] = all[r];
  }
  return counts;
}

void CodedReduce::reduce_gather(Round& round, const Piece& values) {
  const std::vector<std::size_t> counts = lengths(round, encode_all(round, values));
  const std::size_t total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  const Piece mine{out_.data(), counts[static_cast<std::size_t>(me_)], Dtype::u8};
  round.comm.all_gather(mine, {in_.data(), total, Dtype::u8}, round.call, counts);
  const bool all = to_ == ReduceTo::all;
  absorb(round, layout_.all(), all ? layout_.all() : owned(), payloads(in_, counts), all ? round.gradients : round.own, round.scale);
}

void CodedReduce::reduce_hops(Round& round, const Piece& values) {
  encode_all(round, values);
  const std::size_t me = static_cast<std::size_t>(me_), n = static_cast<std::size_t>(ranks_);
  const std::vector<std::size_t> same(n, bytes_[me]);
  round.comm.all_to_all({out_.data(), starts_.back(), Dtype::u8}, {in_.data(), n * bytes_[me], Dtype::u8}, round.call, bytes_, same);
  const bool all = to_ == ReduceTo::all;
  const Piece sum = all || codec_->votes() ? round.gradients.part(owned().first, owned().count) : round.own;
  absorb(round, owned(), owned(), payloads(in_, same), sum, round.scale);
  if (all) return hand_out(round, sum);
  if (!codec_->votes()) return;
  encode(round, round.gradients, owned(), me, 1);
  absorb(round, owned(), owned(), payload(out_, starts_[me], bytes_[me]), round.own, 1);
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
    absorb(round, range_of(r), range_of(r), payload(in_, starts_[r], bytes_[r]), round.gradients.part(edges_[r], range_of(r).count), 1);
  if (sum_) sum_->note_sent(sum);
}

void CodedReduce::absorb(const Round& round, const ElementRange& range, const ElementRange& keep, const std::vector<ConstBytes>& payloads,
                         const Piece& out, double scale) const {
  codec_->absorb({.layout = layout_, .range = range, .keep = keep, .values = out, .scale = scale, .random = random(round.step, 0)},
                 payloads);
}

std::vector<ConstBytes> CodedReduce::payloads(const collective::Region& region, const std::vector<std::size_t>& bytes) {
  std::vector<ConstBytes> all;
  std::size_t at = 0;
  for (const std::size_t own : bytes) all.push_back(payload(region, std::exchange(at, at + own), own).front());
  return all;
}
std::vector<ConstBytes> CodedReduce::payload(const collective::Region& region, std::size_t first, std::size_t bytes) {
  return {ConstBytes(static_cast<const std::byte*>(region.data()) + first, bytes)};
}

}  // namespace cohort::sync
