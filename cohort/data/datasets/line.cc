// Points near a line, for linear regression from a seed:
//   x ~ U(low, high),  y = slope (x + e) + intercept,  e ~ N(mu, sd^2)
// Least squares finds the slope and, as the noise has a mean, the intercept + slope mu.
#include <cmath>
#include <numbers>

#include "cohort/base/error.h"
#include "cohort/data/dataset.h"
#include "cohort/data/random.h"

namespace cohort::data {
namespace {

using Type = SpecParam::Type;
enum Stream : std::uint64_t { kTrain, kTest };

SpecParam number(std::string name, std::string doc, std::string preset, double low = -1e9) {
  return {.name = std::move(name), .type = Type::real, .doc = std::move(doc), .preset = std::move(preset), .low = low, .high = 1e9};
}

const SpecSchema& schema() {
  static const SpecSchema one{
      "line",
      "points near a line, to regress on",
      {number("slope", "of the line", "2"),
       number("intercept", "of the line", "1"),
       number("low", "least x", "0"),
       number("high", "largest x", "10"),
       number("mu", "mean of the noise in x", "0"),
       number("sd", "its standard deviation", "1", 0),
       {.name = "samples", .type = Type::integer, .doc = "points", .preset = "1000", .low = 1, .high = 1e8},
       {.name = "seed", .type = Type::integer, .doc = "the same seed, the same points", .preset = "0", .low = 0},
       {.name = "split", .type = Type::word, .doc = "test: other points", .preset = "train", .words = {"train", "test"}}}};
  return one;
}

// Box and Muller 1958.
double normal(Rng& rng) {
  const double radius = std::sqrt(-2 * std::log(1 - rng.uniform()));
  return radius * std::cos(2 * std::numbers::pi * rng.uniform());
}

std::shared_ptr<const Dataset> open(const SpecValues& v) {
  if (v.real("high") <= v.real("low")) throw_failure(Kind::usage, "line: low={} is not below high={}", v.real("low"), v.real("high"));
  const std::uint64_t stream = v.word("split") == "train" ? kTrain : kTest;
  std::vector<float> x, y;
  for (std::int64_t i = 0; i < v.integer("samples"); ++i) {
    Rng rng(static_cast<std::uint64_t>(v.integer("seed")), stream, static_cast<std::uint64_t>(i));
    const double at = rng.uniform(v.real("low"), v.real("high"));
    x.push_back(static_cast<float>(at));
    y.push_back(static_cast<float>(v.real("slope") * (at + v.real("mu") + v.real("sd") * normal(rng)) + v.real("intercept")));
  }
  Form form{.input = Input::floats, .shape = {1}, .targets = 1, .names = {"y"}, .columns = {"x"}, .fill = {0}};
  return std::make_shared<MemoryDataset>(std::move(form), "line", bytes_of(x), std::vector<std::int64_t>{}, std::move(y));
}

}  // namespace

extern const DatasetKind row_line{.name = "line", .about = "points near a line, to regress on", .schema = schema, .open = open};

}  // namespace cohort::data
