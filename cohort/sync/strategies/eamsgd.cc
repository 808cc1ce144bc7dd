// EAMSGD (Zhang, Choromanska, LeCun 2015): elastic averaging with Nesterov's momentum on every rank.
//   v_i <- m v_i + (update(y_i, g_i) - y_i),   x_i <- x_i + v_i        y_i = x_i + m v_i: the parameters, at which gradients are taken
//   every h steps:  x_i <- x_i - a (x_i - c),  c <- c + a sum_i (x_i - c)        a = beta / n, both with the values of before
// The momentum is the strategy's, so the optimizer is sgd without one, as in the paper; and unlike easgd with sgd(nesterov=true) it is x
// that is drawn, not the point ahead of it. The job stands for the centre c. A rank receives 2 P (n - 1) / (n h) elements a step, and
// keeps x, v and c. A step whose gradient is not finite is one of momentum alone. Laws: with momentum=0 it is easgd, to rounding; without
// gradients and momentum c + sum_i x_i does not change.
#include "cohort/sync/averaging.h"
#include "cohort/sync/elements.h"

namespace cohort::sync {
namespace {

constexpr const char* kPosition = "position";  // x
constexpr const char* kVelocity = "velocity";  // v
constexpr const char* kCentre = "centre";      // c

class Eamsgd final : public Averaging {
 public:
  Eamsgd(std::int64_t every, double beta, double momentum) : Averaging(every), beta_(beta), momentum_(momentum) {}
  std::string_view name() const override { return "eamsgd"; }
  std::vector<SlotSpec> slots() const override {
    using Begins = SlotSpec::Begins;
    auto all = Averaging::slots();
    all.push_back({.name = kPosition, .share = Share::each, .merge = Merge::drop, .begins = Begins::parameters});
    all.push_back({.name = kVelocity, .share = Share::each, .merge = Merge::drop});
    all.push_back({.name = kCentre, .begins = Begins::parameters});
    return all;
  }
  SyncSchedule schedule(std::int64_t step) const override {
    SyncSchedule due = Averaging::schedule(step);
    due.exchanges_after = true;  // momentum, in every step
    return due;
  }
  void open(Site& site) override { ranks_ = site.comm.size(); }

  void exchange_models(Bucket& bucket, const Wire& wire) override {
    const Piece scratch = bucket.slot(kExchangeSlot), x = bucket.slot(kPosition), v = bucket.slot(kVelocity);
    look_ahead(bucket, scratch);
    subtract(scratch, bucket.parameters(), scratch);
    scale(v, momentum_);
    add(v, scratch);
    add(x, v);
    look_ahead(bucket, bucket.parameters());
    if (wire.number % every() != 0) return;
    subtract(scratch, x, bucket.slot(kCentre));
    wire.sum(bucket, scratch);
  }
  void mix_models(Bucket& bucket, const Decision&) override {
    const double alpha = beta_ / ranks_;
    lerp(bucket.slot(kPosition), alpha, bucket.slot(kCentre));
    add_scaled(bucket.slot(kCentre), alpha, bucket.slot(kExchangeSlot));
    look_ahead(bucket, bucket.parameters());
  }
  void consensus(Bucket& bucket, const Piece& into, const Wire&) override { copy(into, bucket.slot(kCentre)); }
  void adopt(Bucket& bucket) override {
    copy(bucket.slot(kCentre), bucket.parameters());
    begin_anew(bucket, slots());
  }

 private:
  void look_ahead(const Bucket& bucket, const Piece& into) const {
    copy(into, bucket.slot(kPosition));
    add_scaled(into, momentum_, bucket.slot(kVelocity));
  }

  const double beta_, momentum_;
  int ranks_ = 1;
};

const SpecSchema& schema() {
  using Type = SpecParam::Type;
  static const SpecSchema schema{
      "eamsgd",
      "easgd with Nesterov's momentum on every rank; with an optimizer that has none",
      {every_param("4"),
       {.name = "beta",
        .type = Type::real,
        .doc = "how far the centre moves to the mean of the ranks; a rank moves beta/n to the centre",
        .preset = "0.9",
        .low = 0,
        .high = 1},
       {.name = "momentum", .type = Type::real, .doc = "of every rank", .preset = "0.9", .low = 0, .high = 0.9999}}};
  return schema;
}
std::unique_ptr<Strategy> build(const SpecValues& values) {
  return std::make_unique<Eamsgd>(values.integer("h"), values.real("beta"), values.real("momentum"));
}

}  // namespace

extern const StrategyRow row_eamsgd{.name = "eamsgd",
                                    .schema = schema,
                                    .make = build,
                                    .limit = "",
                                    .short_rounds = "eamsgd(h=2, beta=0.5, momentum=0.5)",
                                    .conserves = Conserves::ranks_and_centre,
                                    .contraction = [](int ranks) { return 1 - 0.5 / ranks; },
                                    .whole_steps = false,
                                    .plain_alone = false};

}  // namespace cohort::sync
