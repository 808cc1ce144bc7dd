// DiLoCo (Douillard et al. 2023): h steps of one's own, then a step of an outer optimizer on what all have moved.
//   x_i <- update(x_i, g_i)        every h steps:  d = 1/n sum_i (a - x_i),  a <- outer(a, d),  x_i <- a
// The outer rule is SGD with Nesterov momentum. The job stands for the anchor a. A rank receives 2 P (n - 1) / (n h) elements a step, and
// keeps the anchor and its momentum. Laws: with an outer rate of 1 and no outer momentum it is local_sgd, to rounding; with h = 1 and plain
// SGD inside it is then all_reduce.
// With wait=none no round waits for a rank that is late or lost: each moves the anchor when it comes (unwaited_outer.h).
#include "cohort/sync/averaging.h"
#include "cohort/sync/elements.h"
#include "cohort/sync/outer_step.h"
#include "cohort/sync/unwaited_outer.h"

namespace cohort::sync {
namespace {

class DiLoCo final : public Averaging {
 public:
  explicit DiLoCo(const SpecValues& values) : Averaging(values.integer("h")), outer_(values) {}
  std::string_view name() const override { return "diloco"; }
  std::vector<SlotSpec> slots() const override {
    auto all = Averaging::slots();
    for (const SlotSpec& slot : outer_.slots()) all.push_back(slot);
    return all;
  }
  void exchange_models(Bucket& bucket, const Wire& wire) override {
    subtract(bucket.slot(kExchangeSlot), bucket.slot(kAnchorSlot), bucket.parameters());
    wire.average(bucket, bucket.slot(kExchangeSlot));
  }
  void mix_models(Bucket& bucket, const Decision&) override {
    outer_.update(bucket, bucket.slot(kExchangeSlot), {0, bucket.count()});
    copy(bucket.parameters(), bucket.slot(kAnchorSlot));
  }
  void consensus(Bucket& bucket, const Piece& into, const Wire&) override { copy(into, bucket.slot(kAnchorSlot)); }
  void adopt(Bucket& bucket) override { outer_.adopt(bucket); }

 private:
  const OuterStep outer_;
};

const SpecSchema& schema() {
  static const SpecSchema schema = [] {
    std::vector<SpecParam> params{every_param("100")};
    for (SpecParam& p : OuterStep::params()) params.push_back(std::move(p));
    for (SpecParam& p : wait_params()) params.push_back(std::move(p));
    return SpecSchema{"diloco", "every rank trains by itself, and every h steps an outer optimizer makes a step along what all have moved",
                      params};
  }();
  return schema;
}
std::unique_ptr<Strategy> build(const SpecValues& values) {
  if (values.word("wait") == "all") return std::make_unique<DiLoCo>(values);
  return make_unwaited({.name = "diloco",
                        .every = values.integer("h"),
                        .patience = values.seconds("patience"),
                        .lr = values.real("lr"),
                        .momentum = values.real("momentum"),
                        .nesterov = values.boolean("nesterov")});
}

}  // namespace

// The outer momentum goes on at an inner rate of 0, and is one on a single rank too.
extern const StrategyRow row_diloco{.name = "diloco",
                                    .schema = schema,
                                    .make = build,
                                    .limit = "diloco(h=1, lr=1, momentum=0)",
                                    .short_rounds = "diloco(h=2)",
                                    .contraction = [](int) { return 0.0; },
                                    .plain_alone = false};

}  // namespace cohort::sync
