// What happens to images between the data set and the model, as a list of specs:
//   const auto train = Transforms::parse("flip, crop(pad=4), normalise", *training_set);
//   const auto test = train.for_evaluation();                      // the same normalisation, nothing random
// The random ones are maps of the plane; in the order written they make one map, so that pixels move and are interpolated once. One last
// pass scales bytes to [0, 1], or as normalise says.
// Float values have no plane: of the transforms only those whose table entry says `floats` take them, which is normalise; without it they
// stay as they are.
// A random transform draws from a Rng of (seed, epoch, sample index): the same image whatever rank, thread or batch makes it.
// Owner: values, cheap to copy. Threads: any, everything is const. Failure: Kind::usage.
// To add one: transforms/<word>.cc with `row_<word>`, the word in transforms/CMakeLists.txt, and transforms/<word>_test.cc.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/spec.h"
#include "cohort/data/dataset.h"
#include "cohort/data/pixels.h"
#include "cohort/data/random.h"

namespace cohort::data {

// The last pass, for each channel. Of bytes: out = byte * times + plus. Of floats: out = (value - minus) * times, because a mean far from
// zero would cancel digits in a product and a sum.
struct Scale {
  std::vector<float> times, plus, minus{};
};

class Transform {
 public:
  virtual ~Transform() = default;
  virtual std::string text() const = 0;                                // the effective spec: nothing left to measure
  virtual Affine map(Rng& /*rng*/) const { return {}; }                // draws where the pixels go
  virtual std::optional<Scale> scale() const { return std::nullopt; }  // not random: the last pass
};

struct TransformKind {
  std::string_view name, about;
  const SpecSchema& (*schema)();
  std::shared_ptr<const Transform> (*make)(const SpecValues& values, const Dataset& training);
  bool floats = false;  // takes float values too
};

std::span<const TransformKind* const> transform_rows();

// One for each thread that makes batches.
struct TransformScratch {
  Scratch bytes;
  std::vector<float> images[2];
};

class Transforms {
 public:
  Transforms() = default;  // bytes to [0, 1]
  static Transforms parse(std::string_view list, const Dataset& training);
  Transforms for_evaluation() const;
  bool empty() const { return random_.empty() && !scaling_; }
  std::string text() const;  // parse() takes it back and measures nothing: what a checkpoint keeps

  void make(const std::uint8_t* pixels, float* out, const ImageShape& shape, Rng rng, TransformScratch& transform_scratch) const;
  void make_floats(const std::uint8_t* values, float* out, std::span<const std::int64_t> shape) const;  // a Sample's of Input::floats

 private:
  std::vector<std::shared_ptr<const Transform>> random_;
  std::shared_ptr<const Transform> scaling_;
  std::optional<Scale> scale_;
};

}  // namespace cohort::data
