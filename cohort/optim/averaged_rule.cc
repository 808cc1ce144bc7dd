#include "cohort/optim/averaged_rule.h"

#include <fmt/format.h>

#include <algorithm>

#include "cohort/optim/side.h"

namespace cohort::optim {
namespace {

// A rule that is prepared sees its own states of every tensor.
class InnerSide final : public Side {
 public:
  explicit InnerSide(Side& outer) : outer_(outer) {
    for (Slice s : outer.slices()) {
      s.state = s.state.first(s.state.size() - 1);
      slices_.push_back(s);
    }
  }
  int rank() const override { return outer_.rank(); }
  int ranks() const override { return outer_.ranks(); }
  const StepInfo& step() const override { return outer_.step(); }
  std::span<const TappedLayer> layers() override { return outer_.layers(); }
  double seen_scale() const override { return outer_.seen_scale(); }
  std::span<const Slice> slices() override { return slices_; }
  bool replicated() const override { return outer_.replicated(); }
  bool alone() const override { return outer_.alone(); }
  std::size_t tensors() const override { return outer_.tensors(); }
  std::span<const std::size_t> orders() const override { return outer_.orders(); }
  void sum(const Piece& values) override { outer_.sum(values); }
  void spread(std::span<const Job> jobs) override { outer_.spread(jobs); }
  const Algebra& algebra() const override { return outer_.algebra(); }
  BackgroundPool& background() override { return outer_.background(); }

 private:
  Side& outer_;
  std::vector<Slice> slices_;
};

}  // namespace

void AveragedRule::prepare(Side& side) {
  InnerSide inner(side);
  inner_->prepare(inner);
}

// With lr and weight_decay of its own in place of those that `of` has.
std::string AveragedRule::followed(const SpecValues& v) {
  Spec spec = v.spec("of");
  for (const char* name : {"lr", "weight_decay"}) {
    if (v.real(name) == 0) continue;
    std::erase_if(spec.params, [&](const auto& p) { return p.key == name; });
    spec.params.push_back({.key = name, .value = fmt::format("{}", v.real(name))});
  }
  return spec.to_string();
}

bool evaluates_average(std::string_view text) {
  const Spec spec = Spec::parse(text);
  const Spec::Param* const evaluate = spec.find("evaluate");
  return (spec.name == "ema" || spec.name == "swa") && (evaluate == nullptr || evaluate->value == "average");
}

std::vector<SpecParam> averaged_params() {
  return {{.name = "of", .type = SpecParam::Type::spec, .doc = "the rule that updates the parameters", .preset = "adamw"},
          {.name = "lr",
           .type = SpecParam::Type::real,
           .doc = "learning rate that schedules start from; 0: that of the rule",
           .preset = "0",
           .low = 0},
          weight_decay_param("0", "that of the rule, where it is not 0"),
          {.name = "evaluate",
           .type = SpecParam::Type::word,
           .doc = "what is evaluated, and predicted with: the average, or the last parameters",
           .preset = "average",
           .words = {"average", "last"}}};
}

}  // namespace cohort::optim
