// out = (pixel / 255 - mean) / std, for each channel; of float values (value - mean) / std, for each feature: an entry of their first
// size (of 12 columns a column, of 3x500 one of the 3 signals). `normalise` alone measures mean and std on the training set, once.
#include <fmt/ranges.h>

#include <cmath>
#include <cstring>

#include "cohort/base/error.h"
#include "cohort/base/text.h"
#include "cohort/data/transform.h"

namespace cohort::data {
namespace {

using Type = SpecParam::Type;
constexpr std::int64_t kMostMeasured = 100'000;  // samples, evenly spread; means of more differ in no digit that matters

const SpecSchema& schema() {
  static const SpecSchema one{"normalise",
                              "mean 0 and standard deviation 1 in each channel or feature",
                              {{.name = "mean",
                                .type = Type::text,
                                .doc = "of pixels in [0, 1] or of float values: one number, one for each channel (0.49/0.48/0.45), or auto",
                                .preset = "auto"},
                               {.name = "std", .type = Type::text, .doc = "likewise", .preset = "auto"}}};
  return one;
}

struct Moments {
  std::vector<float> mean, std;
};

// Sums of bytes are exact integers: every rank measures the same.
Moments measure(const Dataset& set) {
  const auto channels = static_cast<std::size_t>(set.form().shape[0]);
  const auto plane = static_cast<std::size_t>(set.form().elements()) / channels;
  const std::int64_t every = (set.size() + kMostMeasured - 1) / kMostMeasured;
  std::vector<std::uint64_t> sums(channels), squares(channels);
  std::uint64_t pixels = 0;
  Scratch scratch;
  for (std::int64_t i = 0; i < set.size(); i += every, pixels += plane) {
    const std::uint8_t* at = set.sample(i, scratch).input;
    for (std::size_t c = 0; c < channels; ++c, at += plane) {
      std::uint64_t sum = 0, square = 0;
      for (std::size_t p = 0; p < plane; ++p) {
        const std::uint64_t value = at[p];
        sum += value;
        square += value * value;
      }
      sums[c] += sum;
      squares[c] += square;
    }
  }
  Moments m;
  for (std::size_t c = 0; c < channels; ++c) {
    const double mean = static_cast<double>(sums[c]) / static_cast<double>(pixels) / 255;
    const double variance = static_cast<double>(squares[c]) / static_cast<double>(pixels) / (255.0 * 255) - mean * mean;
    m.mean.push_back(static_cast<float>(mean));
    m.std.push_back(variance > 1e-12 ? static_cast<float>(std::sqrt(variance)) : 1.0F);  // one colour: nothing to divide by
  }
  return m;
}

// f(feature, value) for the measured samples, in order: every rank adds up in the same order.
template <class F>
void each_value(const Dataset& set, F f) {
  const auto features = static_cast<std::size_t>(set.form().shape[0]);
  const std::size_t each = static_cast<std::size_t>(set.form().elements()) / features;
  const std::int64_t every = (set.size() + kMostMeasured - 1) / kMostMeasured;
  Scratch scratch;
  std::vector<float> values(features * each);
  for (std::int64_t i = 0; i < set.size(); i += every) {
    std::memcpy(values.data(), set.sample(i, scratch).input, values.size() * sizeof(float));
    for (std::size_t k = 0; k < values.size(); ++k) f(k / each, static_cast<double>(values[k]));
  }
}

// In two passes: squares of values far from zero would leave nothing of a small variance.
Moments measure_floats(const Dataset& set) {
  const auto features = static_cast<std::size_t>(set.form().shape[0]);
  const std::int64_t every = (set.size() + kMostMeasured - 1) / kMostMeasured;
  const auto count = static_cast<double>((set.size() + every - 1) / every * (set.form().elements() / set.form().shape[0]));
  std::vector<double> mean(features), square(features);
  each_value(set, [&](std::size_t f, double value) { mean[f] += value / count; });
  each_value(set, [&](std::size_t f, double value) { square[f] += (value - mean[f]) * (value - mean[f]) / count; });
  Moments m;
  for (std::size_t f = 0; f < features; ++f) {
    const double std = std::sqrt(square[f]);
    const bool varies = std > 1e-7 * std::abs(mean[f]) && std > 1e-30;  // less is what rounding leaves of a constant
    m.mean.push_back(static_cast<float>(mean[f]));
    m.std.push_back(varies ? static_cast<float>(std) : 1.0F);
  }
  return m;
}

std::vector<float> numbers(const std::string& text, std::size_t channels, std::string_view name) {
  std::vector<float> all;
  for (const std::string_view part : split(text, '/')) all.push_back(static_cast<float>(parse_real(part)));
  if (all.size() == 1) all.resize(channels, all[0]);
  if (all.size() != channels)
    throw_failure(Kind::usage, "normalise: {}={} has {} numbers, the samples have {} channels or features", name, text, all.size(),
                  channels);
  return all;
}

class Normalise final : public Transform {
 public:
  Normalise(Moments m, bool floats) : moments_(std::move(m)), floats_(floats) {}

  std::string text() const override {
    return fmt::format("normalise(mean={}, std={})", fmt::join(moments_.mean, "/"), fmt::join(moments_.std, "/"));
  }
  std::optional<Scale> scale() const override {
    Scale s;
    for (std::size_t c = 0; c < moments_.mean.size(); ++c) {
      s.times.push_back(1 / ((floats_ ? 1 : 255) * moments_.std[c]));
      s.plus.push_back(-moments_.mean[c] / moments_.std[c]);
      s.minus.push_back(moments_.mean[c]);
    }
    return s;
  }

 private:
  Moments moments_;
  bool floats_;
};

std::shared_ptr<const Transform> make(const SpecValues& v, const Dataset& training) {
  const auto channels = static_cast<std::size_t>(training.form().shape[0]);
  const std::string &mean = v.text("mean"), &std = v.text("std");
  const bool floats = training.form().input == Input::floats;
  Moments m;
  if (mean == "auto" || std == "auto") m = floats ? measure_floats(training) : measure(training);
  if (mean != "auto") m.mean = numbers(mean, channels, "mean");
  if (std != "auto") m.std = numbers(std, channels, "std");
  for (const float s : m.std)
    if (!(s > 0)) throw_failure(Kind::usage, "normalise: std={} cannot be; a standard deviation is above 0", std);
  return std::make_shared<Normalise>(std::move(m), floats);
}

}  // namespace

extern const TransformKind row_normalise{
    .name = "normalise", .about = "mean 0, standard deviation 1", .schema = schema, .make = make, .floats = true};

}  // namespace cohort::data
