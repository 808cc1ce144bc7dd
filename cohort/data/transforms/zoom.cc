// Makes the image larger or smaller around its centre by a factor uniform in [1 - percent/100, 1 + percent/100], bilinear.
#include <fmt/format.h>

#include "cohort/data/transform.h"

namespace cohort::data {
namespace {

using Type = SpecParam::Type;

const SpecSchema& schema() {
  static const SpecSchema one{
      "zoom",
      "larger or smaller, at random",
      {{.name = "percent", .type = Type::real, .doc = "furthest, smaller or larger", .preset = "10", .low = 0, .high = 90}}};
  return one;
}

class Zoom final : public Transform {
 public:
  explicit Zoom(double percent) : percent_(percent) {}
  std::string text() const override { return fmt::format("zoom(percent={})", percent_); }
  Affine map(Rng& rng) const override {
    const double factor = 1 + rng.uniform(-percent_, percent_) / 100;
    const auto back = static_cast<float>(1 / factor);  // a pixel twice as far out comes from half as far
    return {back, 0, 0, back};
  }

 private:
  double percent_;
};

std::shared_ptr<const Transform> make(const SpecValues& v, const Dataset&) { return std::make_shared<Zoom>(v.real("percent")); }

}  // namespace

extern const TransformKind row_zoom{.name = "zoom", .about = "larger or smaller, at random", .schema = schema, .make = make};

}  // namespace cohort::data
