// Puts a black border of `pad` pixels around the image and cuts a window of the old size out of it, anywhere: the usual augmentation of
// CIFAR-10. The same pixels move as in shift(pixels=pad); here because papers and configurations call it so.
#include <fmt/format.h>

#include "cohort/data/transform.h"

namespace cohort::data {
namespace {

using Type = SpecParam::Type;

const SpecSchema& schema() {
  static const SpecSchema one{
      "crop",
      "a window of the same size from the image with a black border, at random",
      {{.name = "pad", .type = Type::integer, .doc = "width of the border", .preset = "4", .low = 0, .high = 10000}}};
  return one;
}

class Crop final : public Transform {
 public:
  explicit Crop(std::int64_t pad) : pad_(pad) {}
  std::string text() const override { return fmt::format("crop(pad={})", pad_); }
  Affine map(Rng& rng) const override {
    const std::int64_t top = rng.between(0, 2 * pad_);  // the window's corner in the image with its border
    const std::int64_t left = rng.between(0, 2 * pad_);
    return {.x = static_cast<float>(left - pad_), .y = static_cast<float>(top - pad_)};
  }

 private:
  std::int64_t pad_;
};

std::shared_ptr<const Transform> make(const SpecValues& v, const Dataset&) { return std::make_shared<Crop>(v.integer("pad")); }

}  // namespace

extern const TransformKind row_crop{.name = "crop", .about = "a random window of the bordered image", .schema = schema, .make = make};

}  // namespace cohort::data
