// Some elements of every tensor, with their places; what topk, threshold and significant share. A codec says which: those above a
// magnitude, at most `share` of a tensor's d elements, k = max(1, floor(share d)). A payload: for every tensor the number of its entries,
// their places (u32, ascending), their values (fp32), little-endian: 4 + 8 k bytes at most. x - C(x) is exact. A NaN counts as largest.
// Where a range cuts a tensor, the choice is still that of the whole, and the payload has what of it is in the range.
#pragma once
#include <bit>
#include <cstring>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/codec/blocks.h"
#include "cohort/codec/codec_row.h"

namespace cohort::codec {

static_assert(std::endian::native == std::endian::little, "payloads are little-endian");

inline std::uint32_t magnitude(float x) { return std::bit_cast<std::uint32_t>(x) & 0x7fffffffu; }  // ordered as |x| is, NaN above all

inline std::uint32_t word_at(const std::byte* p) {
  std::uint32_t word = 0;
  std::memcpy(&word, p, sizeof word);
  return word;
}

// Sent: what is above `least`, and the first `ties` that are equal to it.
struct Threshold {
  std::uint32_t least = 0;
  std::size_t ties = 0;
};

// The k-th largest by its digits, 11, 11 and 9 bits: each pass counts the values of one digit among those that share the ones before.
inline Threshold largest(const float* x, std::size_t count, std::size_t k) {
  if (k == count) return {0, count};
  std::uint32_t prefix = 0;
  std::size_t left = k;  // of those that share the prefix
  for (const auto& [shift, bits] : {std::pair{20, 11}, {9, 11}, {0, 9}}) {
    std::array<std::size_t, 2048> counts{};
    const std::size_t last = (std::size_t{1} << bits) - 1;
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint32_t m = magnitude(x[i]);
      if (m >> (shift + bits) == prefix) ++counts[(m >> shift) & last];
    }
    std::size_t digit = last;
    for (; counts[digit] < left; --digit) left -= counts[digit];
    prefix = (prefix << bits) | static_cast<std::uint32_t>(digit);
  }
  return {prefix, left};
}

// The one that sends less.
inline Threshold narrower(const Threshold& a, const Threshold& b) {
  if (a.least != b.least) return a.least > b.least ? a : b;
  return {a.least, std::min(a.ties, b.ties)};
}

// The entries of one tensor in a payload.
struct Entries {
  const std::byte* places = nullptr;
  std::size_t count = 0;
  std::size_t place(std::size_t i) const { return word_at(places + 4 * i); }
  float value(std::size_t i) const { return std::bit_cast<float>(word_at(places + 4 * (count + i))); }
};

class SparseCodec : public Codec {
 public:
  SparseCodec(double share, bool feedback) : share_(share), feedback_(feedback) {}
  Mix mix() const override { return Mix::gather; }
  bool feedback() const override { return feedback_; }
  std::size_t bound(const Layout& layout, const Range& range) const override {
    std::size_t bytes = 0;
    for (const TensorPlace& t : layout.tensors) bytes += most_bytes(t, range);
    return bytes;
  }

 protected:
  std::size_t most_kept(std::size_t count) const { return most_kept(count, share_); }
  static std::size_t most_kept(std::size_t count, double share) {
    return std::min(count, std::max<std::size_t>(1, static_cast<std::size_t>(share * static_cast<double>(count))));
  }
  double least_share(const Layout& layout) const { return least_share(layout, share_); }
  static double least_share(const Layout& layout, double share) {  // the smallest k / d
    double least = 1;
    for (const TensorPlace& t : layout.tensors)
      if (t.count > 0) least = std::min(least, static_cast<double>(most_kept(t.count, share)) / static_cast<double>(t.count));
    return least;
  }

 private:
  virtual double share_at(std::int64_t /*step*/) const { return share_; }                   // at most `share`
  virtual Threshold choose(const float* x, std::size_t count, std::size_t most) const = 0;  // of a tensor, `most` elements at most

  static constexpr std::size_t kEntryBytes = 8;
  std::size_t most_entries(const TensorPlace& t, const Range& range) const {  // in any step
    return std::min(most_kept(t.count), t.range().overlap(range).count);
  }
  std::size_t most_bytes(const TensorPlace& t, const Range& range) const {
    return t.range().overlap(range).count == 0 ? 0 : 4 + kEntryBytes * most_entries(t, range);
  }

  std::size_t write(const Source& source, Bytes out) const override {
    std::byte* to = out.data();
    for (const TensorPlace& t : source.layout.tensors) {
      const Range part = t.range().overlap(source.range);
      if (part.count == 0) continue;
      const std::size_t most = most_kept(t.count, share_at(source.step));
      to = write(t, part, static_cast<const float*>(source.values.data) + t.first, most, to);
    }
    return static_cast<std::size_t>(to - out.data());
  }
  std::byte* write(const TensorPlace& t, const Range& part, const float* x, std::size_t most, std::byte* to) const {
    if (t.count > UINT32_MAX) throw_failure(Kind::usage, "codec {}: {} has {} elements, 2^32 - 1 are the most", spec(), t.name, t.count);
    const Threshold sent = choose(x, t.count, most);
    std::vector<std::uint32_t> places;
    places.reserve(std::min(most, part.count));
    std::size_t ties = sent.ties;
    for (std::size_t i = 0; i < part.last() - t.first; ++i) {
      const std::uint32_t m = magnitude(x[i]);
      const bool chosen = m > sent.least || (m == sent.least && ties > 0 && ties-- > 0);
      if (chosen && t.first + i >= part.first) places.push_back(static_cast<std::uint32_t>(i));
    }
    const auto count = static_cast<std::uint32_t>(places.size());
    std::memcpy(to, &count, 4);
    if (count > 0) std::memcpy(to + 4, places.data(), std::size_t{4} * count);
    to += 4 + std::size_t{4} * count;
    for (const std::uint32_t place : places) to = static_cast<std::byte*>(std::memcpy(to, x + place, 4)) + 4;
    return to;
  }

  void read(const Target& target, std::span<const ConstBytes> payloads) const override {
    std::vector<std::vector<Entries>> all;  // by payload, by tensor
    for (const ConstBytes payload : payloads) all.push_back(parsed(target, payload));
    std::vector<std::size_t> next(payloads.size());  // entry of the current tensor, by payload
    std::size_t tensor = SIZE_MAX;
    auto* const values = static_cast<float*>(target.values.data);
    for_each_block(target.layout, target.keep, [&](const Block& block) {
      if (block.tensor != tensor) {
        tensor = block.tensor;
        for (std::size_t k = 0; k < all.size(); ++k) next[k] = first_from(all[k][tensor], block.first);
      }
      const auto decode = [&](std::size_t k, float* x) {
        const Entries& entries = all[k][tensor];
        std::fill_n(x, block.count, 0.0F);
        for (; next[k] < entries.count && entries.place(next[k]) < block.first + block.count; ++next[k])
          x[entries.place(next[k]) - block.first] = entries.value(next[k]);
      };
      add_payloads(payloads.size(), block.count, target.scale, decode, values + (block.at - target.keep.first));
    });
  }
  static std::size_t first_from(const Entries& entries, std::size_t place) {
    std::size_t low = 0, high = entries.count;
    while (low < high) {
      const std::size_t middle = low + (high - low) / 2;
      if (entries.place(middle) < place) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

  // Every place is in its tensor's part of the range and behind the one before; what follows is zero.
  std::vector<Entries> parsed(const Target& target, ConstBytes payload) const {
    std::vector<Entries> tensors;
    std::size_t at = 0;
    for (const TensorPlace& t : target.layout.tensors) {
      Entries& entries = tensors.emplace_back();
      const Range part = t.range().overlap(target.range);
      if (part.count == 0) continue;
      if (payload.size() - at < 4) refuse(t, "ends too early");
      entries = {payload.data() + at + 4, word_at(payload.data() + at)};
      if (entries.count > most_entries(t, target.range)) refuse(t, "has too many entries");
      if (payload.size() - at - 4 < kEntryBytes * entries.count) refuse(t, "ends too early");
      for (std::size_t i = 0, from = part.first - t.first; i < entries.count; from = entries.place(i++) + 1)
        if (entries.place(i) < from || entries.place(i) >= part.last() - t.first) refuse(t, "has entries outside, twice or out of order");
      at += 4 + kEntryBytes * entries.count;
    }
    for (; at < payload.size(); ++at)
      if (payload[at] != std::byte{0}) throw_failure(Kind::corrupt, "codec {}: byte {} of a payload is behind its end", spec(), at);
    return tensors;
  }
  [[noreturn]] void refuse(const TensorPlace& t, std::string_view why) const {
    throw_failure(Kind::corrupt, "codec {}: the payload of {} {}", spec(), t.name, why);
  }

  const double share_;
  const bool feedback_;
};

inline SpecParam entries_feedback() {
  return {.name = "feedback", .type = SpecParam::Type::boolean, .doc = "keep what is not sent, and send it later", .preset = "true"};
}
inline SpecParam entries_cap() {
  return {.name = "cap",
          .type = SpecParam::Type::real,
          .doc = "share of a tensor's elements that is sent at most",
          .preset = "0.1",
          .low = 0,
          .high = 1};
}

}  // namespace cohort::codec
