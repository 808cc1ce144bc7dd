// The rows of loss_scale.h: each framework's defaults as its source has them.
#include <fmt/format.h>

#include <array>

#include "cohort/optim/scale_rule.h"

namespace cohort::optim {
namespace {

using Type = SpecParam::Type;

constexpr ScaleRule kNone{.name = "none", .about = "the loss as it is"};
constexpr ScaleRule kConstant{.name = "constant", .about = "one factor throughout", .init = 1024};
constexpr ScaleRule kTorch{.name = "torch", .about = "torch.amp.GradScaler", .init = 0x1p16, .window = 2000};
constexpr ScaleRule kDeepSpeed{
    .name = "deepspeed", .about = "DeepSpeed's DynamicLossScaler", .init = 0x1p16, .window = 1000, .hysteresis = 2, .min = 1, .late = true};

constexpr std::array<const ScaleRule*, 4> kRows{&kNone, &kConstant, &kTorch, &kDeepSpeed};

constexpr double kSmallest = 1e-30, kLargest = 1e30;  // of anything that multiplies or divides a loss in fp32

SpecParam number(std::string name, std::string doc, double preset, double low, double high) {
  return {
      .name = std::move(name), .type = Type::real, .doc = std::move(doc), .preset = fmt::format("{}", preset), .low = low, .high = high};
}

SpecParam count(std::string name, std::string doc, std::int64_t preset) {
  return {
      .name = std::move(name), .type = Type::integer, .doc = std::move(doc), .preset = fmt::format("{}", preset), .low = 1, .high = 1e12};
}

}  // namespace

std::span<const ScaleRule* const> scale_rules() { return kRows; }

SpecSchema scale_schema(const ScaleRule& rule) {
  std::vector<SpecParam> params;
  if (&rule != &kNone) params.push_back(number("init", "the first scale", rule.init, kSmallest, kLargest));
  if (rule.window > 0) {
    params.push_back(number("up", "factor of a growth", rule.up, 1, 1e6));
    params.push_back(number("down", "factor of a fall", rule.down, 1e-6, 1));
    params.push_back(count("window", "steps without overflow before it grows", rule.window));
  }
  if (rule.hysteresis > 0) {
    params.push_back(count("hysteresis", "overflows it takes to fall; full again after a growth", rule.hysteresis));
    params.push_back({"consecutive_hysteresis", Type::boolean, "full again after every step without overflow", "false"});
  }
  if (rule.min > 0)
    params.push_back(number("min", "the smallest scale, at which an overflow ends the run; 0: none", rule.min, 0, kLargest));
  return {std::string(rule.name), std::string(rule.about), std::move(params)};
}

}  // namespace cohort::optim
