// Post-local SGD (Lin et al. 2020): synchronous at first, while the model moves fast; local SGD afterwards.
//   up to `start` steps  g = 1/n sum_i g_i, x <- update(x, g)        then, as local_sgd:  x_i <- update(x_i, g_i), averaged every h steps
// Laws: until `start` it is all_reduce, bit for bit; the bytes of a step fall by h there.
#include "cohort/sync/averaging.h"
#include "cohort/sync/elements.h"

namespace cohort::sync {
namespace {

class PostLocalSgd final : public Averaging {
 public:
  PostLocalSgd(std::int64_t every, std::int64_t start) : Averaging(every), start_(start) {}
  std::string_view name() const override { return "post_local_sgd"; }
  SyncSchedule schedule(std::int64_t step) const override {
    if (step <= start_) return {.commit = Scope::world};
    return Averaging::schedule(step - start_);
  }
  void reduce_gradients(Bucket& bucket, const Wire& wire) override { wire.reduce(bucket, collective::Op::average); }
  void exchange_models(Bucket& bucket, const Wire& wire) override {
    copy(bucket.slot(kExchangeSlot), bucket.parameters());
    wire.average(bucket, bucket.slot(kExchangeSlot));
  }
  void mix_models(Bucket& bucket, const Decision&) override { copy(bucket.parameters(), bucket.slot(kExchangeSlot)); }

 private:
  const std::int64_t start_;
};

const SpecSchema& schema() {
  static const SpecSchema schema{"post_local_sgd",
                                 "gradients are averaged for the first steps, then as local_sgd",
                                 {every_param("8"),
                                  {.name = "start",
                                   .type = SpecParam::Type::integer,
                                   .doc = "steps with averaged gradients; as many as the learning rate needs to its first fall",
                                   .preset = "500",
                                   .low = 0,
                                   .high = 1e15}}};
  return schema;
}
std::unique_ptr<Strategy> build(const SpecValues& values) {
  return std::make_unique<PostLocalSgd>(values.integer("h"), values.integer("start"));
}

}  // namespace

extern const StrategyRow row_post_local_sgd{.name = "post_local_sgd",
                                            .schema = schema,
                                            .make = build,
                                            .limit = "post_local_sgd(start=1000000)",
                                            .short_rounds = "post_local_sgd(h=2, start=2)",
                                            .conserves = Conserves::consensus,
                                            .contraction = [](int) { return 0.0; }};

}  // namespace cohort::sync
