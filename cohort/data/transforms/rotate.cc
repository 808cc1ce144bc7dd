// Turns the image around its centre by an angle uniform in [-degrees, degrees], bilinear; what comes in is black.
#include <fmt/format.h>

#include <cmath>

#include "cohort/data/transform.h"

namespace cohort::data {
namespace {

using Type = SpecParam::Type;

const SpecSchema& schema() {
  static const SpecSchema one{
      "rotate",
      "turns around the centre, at random",
      {{.name = "degrees", .type = Type::real, .doc = "furthest, to either side", .preset = "10", .low = 0, .high = 180}}};
  return one;
}

class Rotate final : public Transform {
 public:
  explicit Rotate(double degrees) : degrees_(degrees) {}
  std::string text() const override { return fmt::format("rotate(degrees={})", degrees_); }
  Affine map(Rng& rng) const override {
    const double angle = rng.uniform(-degrees_, degrees_) * 3.14159265358979323846 / 180;
    const auto cosine = static_cast<float>(std::cos(angle)), sine = static_cast<float>(std::sin(angle));
    return {cosine, sine, -sine, cosine};
  }

 private:
  double degrees_;
};

std::shared_ptr<const Transform> make(const SpecValues& v, const Dataset&) { return std::make_shared<Rotate>(v.real("degrees")); }

}  // namespace

extern const TransformKind row_rotate{.name = "rotate", .about = "turns around the centre, at random", .schema = schema, .make = make};

}  // namespace cohort::data
