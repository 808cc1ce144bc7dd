// Elastic averaging SGD (Zhang et al. 2015), synchronous: ranks explore around a centre that follows them.
//   x_i <- update(x_i, g_i)        every h steps:  x_i <- x_i - a (x_i - c),  c <- c + a sum_i (x_i - c),   a = beta / n
// both with the values of before. The job stands for the centre c, which all ranks hold. A rank receives 2 P (n - 1) / (n h) elements a
// step. Law: without gradients c + sum_i x_i does not change.
// With async=true, as the paper has it, every rank moves when it comes, and waits for nobody:
//   every h steps of rank i's own:  d = a (x_i - c),  x_i <- x_i - d,  c <- c + d
// with the centre of that moment, which ranks hold together (centre.h): its parts answer while their ranks compute. The same law.
#include <atomic>

#include "cohort/sync/averaging.h"
#include "cohort/sync/centre.h"
#include "cohort/sync/elements.h"

namespace cohort::sync {
namespace {

constexpr const char* kCentre = kCentreSlot;

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

class AsyncEasgd final : public Centred {
 public:
  AsyncEasgd(std::int64_t every, Seconds patience, double beta) : Centred(every, patience), beta_(beta) {}
  ~AsyncEasgd() override { stop(); }
  AsyncEasgd(const AsyncEasgd&) = delete;
  AsyncEasgd& operator=(const AsyncEasgd&) = delete;
  std::string_view name() const override { return "easgd"; }

 protected:
  void bring(const Bucket& bucket, const Range& part, const Piece& sent) const override {
    copy(sent, bucket.parameters().part(part.first, part.count));
  }
  void meet(Bucket& bucket, const Range& part, const Piece& values) override {
    const Piece centre = bucket.slot(kCentre).part(part.first, part.count);
    subtract(values, values, centre);
    scale(values, beta_ / ranks());
    add(centre, values);
  }
  void take(Bucket& bucket, const Range& part, const Piece&, const Piece& came) const override {
    const Piece x = bucket.parameters().part(part.first, part.count);
    subtract(x, x, came);
  }

 private:
  const double beta_;
};

const SpecSchema& schema() {
  using Type = SpecParam::Type;
  static const SpecSchema schema{
      "easgd",
      "every rank trains by itself, and every h steps it and a common centre move towards each other",
      {every_param("4"),
       {.name = "beta",
        .type = Type::real,
        .doc = "how far the centre moves to the mean of the ranks; a rank moves beta/n to the centre",
        .preset = "0.9",
        .low = 0,
        .high = 1},
       {.name = "async", .type = Type::boolean, .doc = "ranks meet the centre when they come, and wait for nobody", .preset = "false"},
       {.name = "patience",
        .type = Type::seconds,
        .doc = "with async, the longest that a rank waits for one that does not answer",
        .preset = "10s",
        .low = 0.001,
        .high = 3600}}};
  return schema;
}
std::unique_ptr<Strategy> build(const SpecValues& values) {
  if (values.boolean("async")) return std::make_unique<AsyncEasgd>(values.integer("h"), values.seconds("patience"), values.real("beta"));
  return std::make_unique<Easgd>(values.integer("h"), values.real("beta"));
}

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
