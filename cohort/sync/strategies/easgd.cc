// Elastic averaging SGD (Zhang et al. 2015), synchronous: ranks explore around a centre that follows them.
//   x_i <- update(x_i, g_i)        every h steps:  x_i <- x_i - a (x_i - c),  c <- c + a sum_i (x_i - c),   a = beta / n
// both with the values of before. The job stands for the centre c, which all ranks hold. A rank receives 2 P (n - 1) / (n h) elements a
// step. Law: without gradients c + sum_i x_i does not change.
#include <atomic>

#include "cohort/sync/averaging.h"
#include "cohort/sync/elements.h"

namespace cohort::sync {
namespace {

constexpr const char* kCentre = "centre";

class Easgd final : public Averaging {
 public:
  Easgd(std::int64_t every, double beta) : Averaging(every), beta_(beta) {}
  std::string_view name() const override { return "easgd"; }
  std::vector<SlotSpec> slots() const override {
    auto all = Averaging::slots();
    all.push_back({.name = kCentre, .begins = SlotSpec::Begins::parameters});
    return all;
  }
  void exchange_models(Bucket& bucket, const Wire& wire) override {
    subtract(bucket.slot(kExchangeSlot), bucket.parameters(), bucket.slot(kCentre));
    wire.sum(bucket, bucket.slot(kExchangeSlot));
    ranks_ = wire.comm->size();
  }
  void mix_models(Bucket& bucket, const Decision&) override {
    const double alpha = beta_ / ranks_;
    lerp(bucket.parameters(), alpha, bucket.slot(kCentre));
    add_scaled(bucket.slot(kCentre), alpha, bucket.slot(kExchangeSlot));
  }
  void consensus(Bucket& bucket, const Piece& into, const Wire&) override { copy(into, bucket.slot(kCentre)); }
  void adopt(Bucket& bucket) override { copy(bucket.slot(kCentre), bucket.parameters()); }

 private:
  const double beta_;
  std::atomic<int> ranks_{1};  // lanes write it, all the same
};

const SpecSchema& schema() {
  static const SpecSchema schema{"easgd",
                                 "every rank trains by itself, and every h steps it and a common centre move towards each other",
                                 {every_param("4"),
                                  {.name = "beta",
                                   .type = SpecParam::Type::real,
                                   .doc = "how far the centre moves to the mean of the ranks; a rank moves beta/n to the centre",
                                   .preset = "0.9",
                                   .low = 0,
                                   .high = 1}}};
  return schema;
}
std::unique_ptr<Strategy> build(const SpecValues& values) { return std::make_unique<Easgd>(values.integer("h"), values.real("beta")); }

}  // namespace

// The centre pulls a single rank, too.
extern const StrategyRow row_easgd{.name = "easgd",
                                   .schema = schema,
                                   .make = build,
                                   .limit = "",
                                   .short_rounds = "easgd(h=2, beta=0.5)",
                                   .conserves = Conserves::ranks_and_centre,
                                   .contraction = [](int ranks) { return 1 - 0.5 / ranks; },
                                   .plain_alone = false};

}  // namespace cohort::sync
