// DiLoCo (Douillard et al. 2023): h steps of one's own, then a step of an outer optimizer on what all have moved.
//   x_i <- update(x_i, g_i)        every h steps:  d = 1/n sum_i (a - x_i),  a <- outer(a, d),  x_i <- a
// The outer rule is SGD with Nesterov momentum. The job stands for the anchor a. A rank receives 2 P (n - 1) / (n h) elements a step, and
// keeps the anchor and its momentum. Laws: with an outer rate of 1 and no outer momentum it is local_sgd, to rounding; with h = 1 and plain
// SGD inside it is then all_reduce.
#include <fmt/format.h>

#include "cohort/sync/averaging.h"
#include "cohort/sync/elements.h"

namespace cohort::sync {
namespace {

constexpr const char* kAnchor = "anchor";
constexpr const char* kMomentum = "outer_momentum";
constexpr std::int64_t kLaterStep = 2;  // SGD only asks whether there is momentum from before; there is, and it begins as zeros

class DiLoCo final : public Averaging {
 public:
  DiLoCo(std::int64_t every, double rate, double momentum, bool nesterov)
      : Averaging(every),
        outer_(optim::make(fmt::format("sgd(lr={}, momentum={}, nesterov={})", rate, momentum, nesterov && momentum > 0))) {}
  std::string_view name() const override { return "diloco"; }
  std::vector<SlotSpec> slots() const override {
    auto all = Averaging::slots();
    all.push_back({.name = kAnchor, .begins = SlotSpec::Begins::parameters});
    if (!outer_->state_names().empty()) all.push_back({.name = kMomentum});
    return all;
  }
  void exchange_models(Bucket& bucket, const Wire& wire) override {
    subtract(bucket.slot(kExchangeSlot), bucket.slot(kAnchor), bucket.parameters());
    wire.average(bucket, bucket.slot(kExchangeSlot));
  }
  void mix_models(Bucket& bucket, const Decision&) override {
    const Piece anchor = bucket.slot(kAnchor), delta = bucket.slot(kExchangeSlot);
    std::vector<void*> state;
    if (bucket.has_slot(kMomentum)) state.push_back(bucket.slot(kMomentum).data);
    outer_->update({.param = anchor.data, .grad = delta.data, .state = state, .count = anchor.count, .dtype = anchor.dtype},
                   {.step = kLaterStep, .lr = outer_->default_lr()});
    copy(bucket.parameters(), anchor);
  }
  void consensus(Bucket& bucket, const Piece& into, const Wire&) override { copy(into, bucket.slot(kAnchor)); }
  void adopt(Bucket& bucket) override {
    copy(bucket.slot(kAnchor), bucket.parameters());
    if (bucket.has_slot(kMomentum)) fill(bucket.slot(kMomentum), 0);
  }

 private:
  const std::unique_ptr<optim::Optimizer> outer_;
};

const SpecSchema& schema() {
  using Type = SpecParam::Type;
  static const SpecSchema schema{
      "diloco",
      "every rank trains by itself, and every h steps an outer optimizer makes a step along what all have moved",
      {every_param("100"),
       {.name = "lr", .type = Type::real, .doc = "rate of the outer SGD", .preset = "0.7", .low = 0, .high = 1e6},
       {.name = "momentum", .type = Type::real, .doc = "of the outer SGD", .preset = "0.9", .low = 0, .high = 1},
       {.name = "nesterov", .type = Type::boolean, .doc = "of the outer momentum", .preset = "true"}}};
  return schema;
}
std::unique_ptr<Strategy> build(const SpecValues& values) {
  return std::make_unique<DiLoCo>(values.integer("h"), values.real("lr"), values.real("momentum"), values.boolean("nesterov"));
}

}  // namespace

extern const StrategyRow row_diloco{.name = "diloco", .schema = schema, .make = build, .limit = "diloco(h=1, lr=1, momentum=0)"};

}  // namespace cohort::sync
