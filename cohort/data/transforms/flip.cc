// Mirrors left and right, one time out of two (or as `chance` says).
#include <fmt/format.h>

#include "cohort/data/transform.h"

namespace cohort::data {
namespace {

using Type = SpecParam::Type;

const SpecSchema& schema() {
  static const SpecSchema one{"flip",
                              "left and right change places, at random",
                              {{.name = "chance", .type = Type::real, .doc = "how often", .preset = "0.5", .low = 0, .high = 1}}};
  return one;
}

class Flip final : public Transform {
 public:
  explicit Flip(double chance) : chance_(chance) {}
  std::string text() const override { return fmt::format("flip(chance={})", chance_); }
  Affine map(Rng& rng) const override { return rng.uniform() < chance_ ? Affine{.xx = -1} : Affine{}; }

 private:
  double chance_;
};

std::shared_ptr<const Transform> make(const SpecValues& v, const Dataset&) { return std::make_shared<Flip>(v.real("chance")); }

}  // namespace

extern const TransformKind row_flip{.name = "flip", .about = "mirrors at random", .schema = schema, .make = make};

}  // namespace cohort::data
