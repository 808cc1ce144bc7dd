// Moves the image by whole pixels, up to `pixels` in each direction; what comes in is black.
#include <fmt/format.h>

#include "cohort/data/transform.h"

namespace cohort::data {
namespace {

using Type = SpecParam::Type;

const SpecSchema& schema() {
  static const SpecSchema one{
      "shift",
      "moves by whole pixels, at random",
      {{.name = "pixels", .type = Type::integer, .doc = "furthest, in each direction", .preset = "2", .low = 0, .high = 10000}}};
  return one;
}

class Shift final : public Transform {
 public:
  explicit Shift(std::int64_t pixels) : pixels_(pixels) {}
  std::string text() const override { return fmt::format("shift(pixels={})", pixels_); }
  Affine map(Rng& rng) const override {
    const std::int64_t down = rng.between(-pixels_, pixels_);
    const std::int64_t right = rng.between(-pixels_, pixels_);
    return {.x = static_cast<float>(-right), .y = static_cast<float>(-down)};
  }

 private:
  std::int64_t pixels_;
};

std::shared_ptr<const Transform> make(const SpecValues& v, const Dataset&) { return std::make_shared<Shift>(v.integer("pixels")); }

}  // namespace

extern const TransformKind row_shift{.name = "shift", .about = "moves by whole pixels, at random", .schema = schema, .make = make};

}  // namespace cohort::data
