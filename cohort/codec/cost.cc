#include "cohort/codec/cost.h"

#include <time.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "cohort/base/bytes.h"
#include "cohort/codec/feedback.h"
#include "cohort/codec/measure.h"

namespace cohort::codec {
namespace {

constexpr std::size_t kMostPayloads = 8;  // decoded at once; the time of more follows in proportion

// Two numbers of the Box-Muller transform from one draw: the same noise for every codec.
void fill_noise(std::span<float> values, std::uint64_t bucket) {
  const Random random(1, bucket);
  for (std::size_t i = 0; i < values.size(); i += 2) {
    const Words words = random.words(i / 2);
    const double radius = std::sqrt(-2 * std::log((static_cast<double>(words[0]) + 1) * 0x1p-32));
    const double angle = 2 * std::numbers::pi * static_cast<double>(words[1]) * 0x1p-32;
    values[i] = static_cast<float>(1e-3 * radius * std::cos(angle));
    if (i + 1 < values.size()) values[i + 1] = static_cast<float>(1e-3 * radius * std::sin(angle));
  }
}

// Of this thread on its core: what others do on a busy machine is not the codec's.
double core_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

template <class Body>
double least_seconds(int repeats, const Body& body) {
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < repeats; ++i) {
    const double start = core_seconds();
    body();
    least = std::min(least, core_seconds() - start);
  }
  return least;
}

struct Times {
  double encode = 0, decode = 0, decode_all = 0, keep = 0;  // one payload, one of every rank, the residual
  double lost = 0, given = 0;                               // squares
  double payload = 0;
};

Times measure(const Codec& codec, const Layout& layout, std::uint64_t number, int ranks, int repeats) {
  std::vector<float> values(layout.count), out(layout.count);
  for (const TensorPlace& t : layout.tensors) fill_noise(std::span(values).subspan(t.first, t.count), (number << 20) + t.first);
  std::vector<std::byte> payload(codec.bound(layout, layout.all()));
  std::size_t used = 0;
  Times times;
  times.encode = least_seconds(
      repeats, [&] { used = codec.encode({.layout = layout, .range = layout.all(), .values = piece(std::span(values))}, payload); });
  const auto decode = [&](std::size_t count) {
    const std::vector<ConstBytes> payloads(count, ConstBytes(payload).first(used));
    return least_seconds(repeats, [&] {
      codec.absorb({.layout = layout, .range = layout.all(), .keep = layout.all(), .values = piece(std::span(out))}, payloads);
    });
  };
  const std::size_t n = static_cast<std::size_t>(ranks), some = std::min(n, kMostPayloads);
  times.decode_all = n > 1 && codec.mix() != Mix::add ? decode(some) : 0;
  times.decode = decode(1);
  if (n > some && codec.mix() != Mix::add)
    times.decode_all += (times.decode_all - times.decode) * static_cast<double>(n - some) / static_cast<double>(some - 1);
  times.payload = static_cast<double>(used);
  if (codec.feedback()) {
    Feedback feedback(layout.count, codec.momentum());
    times.keep = least_seconds(repeats, [&] {
      feedback.begin(piece(std::span(values)), 1);
      feedback.note_sent(piece(std::span(out)));
      feedback.settle(true);
    });
  }
  for (std::size_t i = 0; i < values.size(); ++i) out[i] = values[i] - out[i];
  times.lost = sum_of_squares(out.data(), out.size());
  times.given = sum_of_squares(values.data(), values.size());
  return times;
}

double elements_of(std::span<const Layout> buckets) {
  double count = 0;
  for (const Layout& layout : buckets)
    for (const TensorPlace& t : layout.tensors) count += static_cast<double>(t.count);
  return count;
}

}  // namespace

Cost cost_of_none(std::span<const Layout> buckets, int ranks) {
  const double elements = elements_of(buckets);
  return {.codec = "none",
          .elements = elements,
          .bytes = 2 * 4 * elements * (ranks - 1) / ranks,
          .legs = 2 * static_cast<double>(buckets.size()),
          .payload = 4 * elements};
}

Cost measure_cost(const Codec& codec, std::span<const Layout> buckets, int ranks, int repeats) {
  Cost cost{.codec = codec.spec(), .elements = elements_of(buckets), .legs = 0};
  double lost = 0, given = 0;
  const double n = ranks, lengths = codec.variable() ? 1 : 0;
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    const Times t = measure(codec, buckets[i], i, ranks, repeats);
    const bool gather = codec.mix() == Mix::gather, hops = codec.mix() == Mix::hops;
    const auto bound = static_cast<double>(codec.bound(buckets[i], buckets[i].all()));
    cost.bytes += gather ? (n - 1) * (bound + 8 * lengths) : 2 * bound * (n - 1) / n + (hops ? 16 * (n - 1) * lengths : 0);
    cost.legs += gather ? 1 + lengths : 2 * codec.rounds() + 2 * lengths;
    // hops: what a rank owns, 1 / n of the elements, comes n times and is encoded once more
    cost.compute += t.encode + (gather ? t.decode_all : hops ? (t.decode_all + t.encode) / n + t.decode : t.decode);
    if (codec.feedback()) cost.compute += t.decode + t.keep;
    cost.encode += t.encode;
    cost.decode += t.decode;
    cost.payload += t.payload;
    lost += t.lost;
    given += t.given;
  }
  cost.error = given > 0 ? std::sqrt(lost / given) : 0;
  return cost;
}

double crossover(const Cost& codec, const Cost& other) {
  const double saved = other.bytes - codec.bytes, spent = codec.compute - other.compute;
  if (saved <= 0) return spent < 0 && saved == 0 ? std::numeric_limits<double>::infinity() : 0;
  return spent <= 0 ? std::numeric_limits<double>::infinity() : saved / spent;
}

const Cost& cheapest(std::span<const Cost> all, double bytes_a_second, double latency) {
  return *std::min_element(all.begin(), all.end(), [&](const Cost& a, const Cost& b) {
    return a.seconds(bytes_a_second, latency) < b.seconds(bytes_a_second, latency);
  });
}

std::vector<Layout> bucket_layouts(std::span<const TensorPlace> tensors, std::size_t bucket_bytes) {
  std::vector<Layout> buckets;
  for (const TensorPlace& t : tensors) {
    if (buckets.empty() || 4 * (buckets.back().count + t.count) > bucket_bytes) buckets.emplace_back();
    Layout& to = buckets.back();
    to.tensors.push_back({t.name, to.count, t.count, t.shape});
    to.count = round_up(to.count + t.count, 16);
  }
  return buckets;
}

}  // namespace cohort::codec
