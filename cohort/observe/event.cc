#include "cohort/observe/event.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "cohort/net/frame/frame.h"
#include "cohort/observe/text.h"

namespace cohort::observe {
namespace {

void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

template <class T>
void put_fixed(std::string& out, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) out += static_cast<char>(value >> (8 * i) & 0xFFU);
}

enum Wire : unsigned { kVarint = 0, kDouble = 1, kBytes = 2, kFloat = 5 };
void put_key(std::string& out, unsigned field, Wire wire) { put_varint(out, field << 3 | wire); }

void put(std::string& out, unsigned field, double value) {
  put_key(out, field, kDouble);
  put_fixed(out, std::bit_cast<std::uint64_t>(value));
}
void put(std::string& out, unsigned field, float value) {
  put_key(out, field, kFloat);
  put_fixed(out, std::bit_cast<std::uint32_t>(value));
}
void put(std::string& out, unsigned field, std::int64_t value) {
  put_key(out, field, kVarint);
  put_varint(out, static_cast<std::uint64_t>(value));
}
void put(std::string& out, unsigned field, std::string_view bytes) {
  put_key(out, field, kBytes);
  put_varint(out, bytes.size());
  out += bytes;
}
void put(std::string& out, unsigned field, std::span<const double> packed) {
  put_key(out, field, kBytes);
  put_varint(out, packed.size() * sizeof(double));
  for (const double value : packed) put_fixed(out, std::bit_cast<std::uint64_t>(value));
}

std::string event_at(Moment at) {
  std::string out;
  put(out, 1, at.wall);
  put(out, 2, at.step);
  return out;
}

// value: the fields of Summary.Value after its tag.
std::string summary_event(Moment at, std::string_view tag, std::string_view value) {
  std::string inner;
  put(inner, 1, std::string_view(valid_utf8(tag)));  // a protobuf string that is no UTF-8 makes readers drop the event
  inner += value;
  std::string summary;
  put(summary, 1, std::string_view(inner));
  std::string out = event_at(at);
  put(out, 5, std::string_view(summary));
  return out;
}

const std::vector<double>& bucket_limits() {
  static const auto limits = [] {
    std::vector<double> positive;
    for (double edge = 1e-12; edge < 1e20; edge *= 1.1) positive.push_back(edge);
    positive.push_back(std::numeric_limits<double>::max());
    std::vector<double> all;
    for (auto edge = positive.rbegin(); edge != positive.rend(); ++edge) all.push_back(-*edge);
    all.push_back(0);
    all.insert(all.end(), positive.begin(), positive.end());
    return all;
  }();
  return limits;
}

}  // namespace

Histogram histogram_of(std::span<const float> values) {
  const auto& limits = bucket_limits();
  std::vector<double> counts(limits.size());
  Histogram h;
  for (const float single : values) {
    const double v = single;
    if (!std::isfinite(v)) {
      ++h.nonfinite;
      continue;
    }
    h.min = h.count == 0 ? v : std::min(h.min, v);
    h.max = h.count == 0 ? v : std::max(h.max, v);
    h.count += 1;
    h.sum += v;
    h.sum_squares += v * v;
    counts[static_cast<std::size_t>(std::lower_bound(limits.begin(), limits.end(), v) - limits.begin())] += 1;
  }
  const auto filled = [](double n) { return n > 0; };
  const auto first = std::find_if(counts.begin(), counts.end(), filled);
  if (first == counts.end()) return h;
  const auto last = std::find_if(counts.rbegin(), counts.rend(), filled).base();
  // One empty bucket before the first: its limit is where the first one starts.
  const auto from = first - counts.begin() - (first == counts.begin() ? 0 : 1);
  h.limits.assign(limits.begin() + from, limits.begin() + (last - counts.begin()));
  h.counts.assign(counts.begin() + from, last);
  return h;
}

std::string file_version_event(double wall) {
  std::string out;
  put(out, 1, wall);
  put(out, 3, std::string_view("brain.Event:2"));
  std::string source;
  put(source, 1, std::string_view("cohort.observe"));
  put(out, 10, std::string_view(source));
  return out;
}

std::string session_start_event(Moment at) {
  std::string log;
  put(log, 1, std::int64_t{1});  // SessionLog.START
  std::string out = event_at(at);
  put(out, 7, std::string_view(log));
  return out;
}

std::string scalar_event(Moment at, std::string_view tag, double value) {
  std::string field;
  put(field, 2, static_cast<float>(value));
  return summary_event(at, tag, field);
}

std::string histogram_event(Moment at, std::string_view tag, const Histogram& h) {
  std::string histo;
  put(histo, 1, h.min);
  put(histo, 2, h.max);
  put(histo, 3, h.count);
  put(histo, 4, h.sum);
  put(histo, 5, h.sum_squares);
  put(histo, 6, std::span<const double>(h.limits));
  put(histo, 7, std::span<const double>(h.counts));
  std::string field;
  put(field, 5, std::string_view(histo));
  return summary_event(at, tag, field);
}

std::string image_event(Moment at, std::string_view tag, const Image& image) {
  std::string inner;
  put(inner, 1, std::int64_t{image.height});
  put(inner, 2, std::int64_t{image.width});
  put(inner, 3, std::int64_t{image.channels});
  put(inner, 4, std::string_view(encode_png(image)));
  std::string field;
  put(field, 4, std::string_view(inner));
  return summary_event(at, tag, field);
}

std::uint32_t masked_crc(std::string_view bytes) { return std::rotr(net::crc32c(std::as_bytes(std::span(bytes))), 15) + 0xa282ead8U; }

std::string record_of(std::string_view payload) {
  std::string out;
  put_fixed(out, std::uint64_t{payload.size()});
  put_fixed(out, masked_crc(out));
  out += payload;
  put_fixed(out, masked_crc(payload));
  return out;
}

}  // namespace cohort::observe
