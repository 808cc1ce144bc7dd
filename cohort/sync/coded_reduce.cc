#include "cohort/sync/coded_reduce.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "cohort/base/error.h"
#include "cohort/codec/measure.h"

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
      by_owner_(codec_->mix() == Mix::hops || (codec_->mix() == Mix::add && codec_->rounds() == 1 && to == ReduceTo::owners)) {
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
  if (codec_->feedback()) sent_.emplace(layout_.count, codec_->momentum());
  places_.push_back(0);
  for (const TensorPlace& t : layout_.tensors) places_.push_back(places_.back() + memory_of(*codec_, t));
  memory_.resize(places_.back());
  next_memory_.resize(places_.back());
  if (codec_->feedback() && codec_->mix() == Mix::hops && to_ == ReduceTo::all) sum_.emplace(owned().count);
}

std::size_t CodedReduce::whole_bytes() const { return codec_->bound(layout_, layout_.all()); }

std::size_t CodedReduce::cost() const {
  const auto others = static_cast<std::size_t>(ranks_ - 1), all = starts_.back(), mine = bytes_[static_cast<std::size_t>(me_)];
  const std::size_t unit = size_of(codec_->payload()), lengths = codec_->variable() && all > 0 ? others * 8 : 0;
  if (codec_->mix() == Mix::gather) return others * all + lengths;
  if (codec_->mix() == Mix::hops) return others * mine + lengths + (to_ == ReduceTo::all ? all - mine + lengths : 0);
  if (by_owner_) return others * mine;
  std::size_t bytes = 0;
  for (int r = 0; r < codec_->rounds(); ++r)
    bytes += 2 * (codec_->round_bytes(r, layout_, layout_.all()) / unit) * others / (others + 1) * unit;
  return bytes;
}

void CodedReduce::reduce(Communicator& comm, const Piece& gradients, const Piece& own, Op op, const CodedStep& step, const Call& call) {
  if (op != Op::sum && op != Op::average) throw_failure(Kind::usage, "a codec has sums and averages, no {}", name_of(op));
  if (comm.size() != ranks_ || comm.rank().value != me_)
    throw_failure(Kind::bug, "coded reduce: made for rank {} of {}, used by rank {} of {}", me_, ranks_, comm.rank().value, comm.size());
  Round round{comm, gradients, own, op, op == Op::average ? 1.0 / ranks_ : 1.0, step, call};
  if (codec_->momentum()) clip(gradients, op, step.unit);
  const Piece values = sent_ ? sent_->begin(gradients, step.weight, step.unit) : gradients;
  if (codec_->rounds() > 1) return reduce_rounds(round, values);
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
  if (std::exchange(remembered_, false) && committed) memory_.swap(next_memory_);
}

void CodedReduce::agree_on_memory(Communicator& comm, const Call& call) {
  if (!remembers()) return;
  std::uint64_t hash = 0xcbf29ce484222325ULL;  // FNV-1a
  for (const float x : memory_) hash = (hash ^ std::bit_cast<std::uint32_t>(x)) * 0x100000001b3ULL;
  const auto own = static_cast<std::int64_t>(hash >> 1);
  std::int64_t least[] = {own, -own};
  comm.all_reduce(collective::piece(std::span<std::int64_t>(least)), Op::min, call);
  if (least[0] != -least[1]) std::fill(memory_.begin(), memory_.end(), 0.0F);
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
  const codec::Source source{
      .layout = layout_, .range = range, .values = values, .random = random(round.step, leg), .step = round.step.step};
  const std::size_t used = codec_->encode(source, place);
  std::fill(place.begin() + static_cast<std::ptrdiff_t>(used), place.end(), std::byte{0});
  return used;
}

// Every payload of this rank, and what it stands for noted; `gradients` are the scratch memory for that. Returns the bytes of each.
std::vector<std::size_t> CodedReduce::encode_all(const Round& round, const Piece& values) {
  const auto slots = static_cast<std::size_t>(by_owner_ ? ranks_ : 1);
  std::vector<std::size_t> used;
  for (std::size_t s = 0; s < slots; ++s) used.push_back(encode(round, values, by_owner_ ? range_of(s) : layout_.all(), s, 0));
  if (!sent_) return used;
  for (std::size_t s = 0; s < slots; ++s) {
    const ElementRange range = by_owner_ ? range_of(s) : layout_.all();
    absorb(round, range, range, payload(out_, starts_[s], bytes_[s]), round.gradients.part(range.first, range.count), 1);
  }
  sent_->note_sent(round.gradients);
  return used;
}

// Every rank's share of what the ranks send is 1 / ranks of the norm's square (Lin et al. 2018): N tensors of independent noise, each
// clipped to clip / sqrt(N) of what it adds to the result, are clipped to `clip` together. A norm that is not finite is left for the vote.
void CodedReduce::clip(const Piece& gradients, Op op, double unit) const {
  const double threshold = codec_->momentum()->clip;
  if (threshold == 0) return;
  const double n = ranks_, most = threshold / unit * (op == Op::average ? std::sqrt(n) : 1 / std::sqrt(n));
  for (const TensorPlace& t : layout_.tensors) {
    auto* const g = static_cast<float*>(gradients.data) + t.first;
    const double norm = std::sqrt(codec::sum_of_squares(g, t.count));
    if (!std::isfinite(norm) || norm <= most) continue;
    for (std::size_t i = 0; i < t.count; ++i) g[i] = static_cast<float>(static_cast<double>(g[i]) * (most / norm));
  }
}

// Round by round: what this rank sends of each is kept as well, for what its own payload stands for.
void CodedReduce::reduce_rounds(Round& round, const Piece& values) {
  const std::size_t unit = size_of(codec_->payload());
  auto* const sums = static_cast<std::byte*>(out_.data());
  std::size_t at = 0;
  for (int r = 0; r < codec_->rounds(); ++r) {
    const std::size_t bytes = codec_->round_bytes(r, layout_, layout_.all());
    const codec::Source source{.layout = layout_,
                               .range = layout_.all(),
                               .values = values,
                               .random = random(round.step, 0),
                               .step = round.step.step,
                               .round = r,
                               .before = ConstBytes(sums, at),
                               .memory = memory_};
    codec_->encode(source, Bytes(sums + at, bytes));
    if (sent_ && r + 1 == codec_->rounds()) {
      absorb(round, layout_.all(), layout_.all(), payload(out_, 0, at + bytes), round.gradients, 1);
      sent_->note_sent(round.gradients);
    }
    round.comm.all_reduce({sums + at, bytes / unit, codec_->payload()}, round.op, round.call);
    at += bytes;
  }
  codec_->remember(layout_, ConstBytes(sums, at), next_memory_);
  remembered_ = true;
  const bool all = to_ == ReduceTo::all;
  absorb(round, layout_.all(), all ? layout_.all() : owned(), payload(out_, 0, at), all ? round.gradients : round.own, 1);
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

// How long the payload is that comes from each rank, where codecs let that differ; the most that there may be from each.
std::vector<std::size_t> CodedReduce::lengths(const Round& round, std::size_t used, const std::vector<std::size_t>& most) const {
  if (!codec_->variable() || starts_.back() == 0) return most;
  const auto n = static_cast<std::size_t>(ranks_);
  auto own = static_cast<std::uint64_t>(used);
  std::vector<std::uint64_t> all(n);
  round.comm.all_gather({&own, 8, Dtype::u8}, {all.data(), 8 * n, Dtype::u8}, round.call);
  return checked(all, most);
}

std::vector<std::size_t> CodedReduce::checked(const std::vector<std::uint64_t>& said, const std::vector<std::size_t>& most) const {
  for (std::size_t r = 0; r < said.size(); ++r)
    if (said[r] > most[r])
      throw_failure(Kind::corrupt, "codec {}: rank {} says that its payload has {} bytes, where {} are the most", codec_->spec(), r,
                    said[r], most[r]);
  return {said.begin(), said.end()};
}

void CodedReduce::reduce_gather(Round& round, const Piece& values) {
  const std::vector<std::size_t> most(static_cast<std::size_t>(ranks_), starts_.back());
  const std::vector<std::size_t> counts = lengths(round, encode_all(round, values).front(), most);
  const std::size_t total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  const Piece mine{out_.data(), counts[static_cast<std::size_t>(me_)], Dtype::u8};
  round.comm.all_gather(mine, {in_.data(), total, Dtype::u8}, round.call, counts);
  const bool all = to_ == ReduceTo::all;
  absorb(round, layout_.all(), all ? layout_.all() : owned(), payloads(in_, counts), all ? round.gradients : round.own, round.scale);
}

void CodedReduce::reduce_hops(Round& round, const Piece& values) {
  const std::size_t me = static_cast<std::size_t>(me_);
  const std::vector<std::size_t> came = exchange(round, encode_all(round, values));
  const bool all = to_ == ReduceTo::all;
  const Piece sum = all || codec_->votes() ? round.gradients.part(owned().first, owned().count) : round.own;
  absorb(round, owned(), owned(), payloads(in_, came), sum, round.scale);
  if (all) return hand_out(round, sum);
  if (!codec_->votes()) return;
  encode(round, round.gradients, owned(), me, 1);
  absorb(round, owned(), owned(), payload(out_, starts_[me], bytes_[me]), round.own, 1);
}

// Every rank's payloads to their owners; returns how long those are that came, one behind the other.
std::vector<std::size_t> CodedReduce::exchange(const Round& round, const std::vector<std::size_t>& used) {
  const std::size_t me = static_cast<std::size_t>(me_), n = static_cast<std::size_t>(ranks_);
  std::vector<std::size_t> leave = bytes_, come(n, bytes_[me]);
  if (codec_->variable() && starts_.back() > 0) {
    std::vector<std::uint64_t> own(used.begin(), used.end()), said(n);
    round.comm.all_to_all({own.data(), 8 * n, Dtype::u8}, {said.data(), 8 * n, Dtype::u8}, round.call);
    come = checked(said, come);
    leave = used;
    auto* const out = static_cast<std::byte*>(out_.data());
    std::size_t at = 0;
    for (std::size_t r = 0; r < n; at += used[r++]) std::memmove(out + at, out + starts_[r], used[r]);
  }
  const auto sum = [](const std::vector<std::size_t>& bytes) { return std::accumulate(bytes.begin(), bytes.end(), std::size_t{0}); };
  round.comm.all_to_all({out_.data(), sum(leave), Dtype::u8}, {in_.data(), sum(come), Dtype::u8}, round.call, leave, come);
  return come;
}

// The second leg: `sum`, this rank's part of gradients, is encoded again; what that loses is this rank's to keep.
void CodedReduce::hand_out(Round& round, const Piece& sum) {
  const auto me = static_cast<std::size_t>(me_), n = static_cast<std::size_t>(ranks_);
  if (sum_) {
    const Piece with_residual = sum_->begin(sum, round.step.weight);
    if (sum.count > 0) std::memcpy(sum.data, with_residual.data, sum.bytes());
  }
  const std::vector<std::size_t> counts = lengths(round, encode(round, round.gradients, owned(), me, 1), bytes_);
  const Piece mine{static_cast<std::byte*>(out_.data()) + starts_[me], counts[me], Dtype::u8};
  const std::size_t total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  round.comm.all_gather(mine, {in_.data(), total, Dtype::u8}, round.call, counts);
  const std::vector<ConstBytes> parts = payloads(in_, counts);
  for (std::size_t r = 0; r < n; ++r)
    absorb(round, range_of(r), range_of(r), {parts[r]}, round.gradients.part(edges_[r], range_of(r).count), 1);
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
