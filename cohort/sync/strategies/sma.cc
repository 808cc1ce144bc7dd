// Synchronous model averaging (KungFu, Mai et al. 2020): every step a rank's model is drawn towards the mean of all.
//   x_i <- (1 - a) x_i + a/n sum_j x_j  +  (update(x_i, g_i) - x_i)
// The models travel while backward runs, from a copy. A rank receives 2 P (n - 1) / n elements a step, as with all_reduce, and may go its
// own way for a while. Laws: mixing keeps the mean; without gradients the disagreement shrinks by 1 - a a step.
#include "cohort/sync/averaging.h"
#include "cohort/sync/elements.h"

namespace cohort::sync {
namespace {

class Sma final : public Averaging {
 public:
  explicit Sma(double alpha) : Averaging(1), alpha_(alpha) {}
  std::string_view name() const override { return "sma"; }
  SyncSchedule schedule(std::int64_t) const override {
    return {.commit = Scope::self, .exchanges_before = true, .exchanges_after = false, .ends_round = true};
  }
  void exchange_models(Bucket& bucket, const Wire& wire) override {
    const Piece drawn = bucket.slot(kExchangeSlot);
    copy(drawn, bucket.parameters());
    wire.average(bucket, drawn);
    subtract(drawn, drawn, bucket.parameters());
  }
  void mix_models(Bucket& bucket, const Decision&) override { add_scaled(bucket.parameters(), alpha_, bucket.slot(kExchangeSlot)); }

 private:
  const double alpha_;
};

const SpecSchema& schema() {
  static const SpecSchema schema{
      "sma",
      "every rank trains by itself, and every step its model is drawn towards the mean of all",
      {{.name = "alpha", .type = SpecParam::Type::real, .doc = "how far, of the way to the mean", .preset = "0.1", .low = 0, .high = 1}}};
  return schema;
}
std::unique_ptr<Strategy> build(const SpecValues& values) { return std::make_unique<Sma>(values.real("alpha")); }

}  // namespace

extern const StrategyRow row_sma{.name = "sma",
                                 .schema = schema,
                                 .make = build,
                                 .limit = "",
                                 .short_rounds = "sma(alpha=0.25)",
                                 .conserves = Conserves::consensus,
                                 .contraction = [](int) { return 0.75; }};

}  // namespace cohort::sync
