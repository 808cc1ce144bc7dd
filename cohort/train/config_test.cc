// Settings that do not go together are refused before ranks start, with the reason and what to do instead.
#include "cohort/train/config.h"

#include <gmock/gmock.h>

#include <functional>

#include "cohort/base/failure_of.h"

namespace cohort::train {
namespace {

using testing::HasSubstr;

TrainConfig on_gpu() {
  TrainConfig config;
  config.device = "cuda";
  return config;
}

std::string why_refused(const std::function<void(TrainConfig&)>& change) {
  TrainConfig config = on_gpu();
  change(config);
  const Error error = failure_of([&] { check(config); });
  EXPECT_EQ(error.kind, Kind::usage);
  return error.what;
}

TEST(ConfigOfAGpu, TakesWhatTrainsThere) {
  for (const char* sync : {"all_reduce", "zero(stage=1)", "zero(stage=2)", "zero(stage=3)", "zero(stage=2, offload=host)"})
    for (const char* device : {"cuda", "cuda:0", "cuda:11"}) {
      TrainConfig config = on_gpu();
      config.sync = sync;
      config.device = device;
      EXPECT_NO_THROW(check(config)) << sync << " " << device;
    }
  TrainConfig offloaded = on_gpu();
  offloaded.sync = "zero(stage=2, offload=host)";
  offloaded.optimizer = "adafactor";
  EXPECT_NO_THROW(check(offloaded)) << "the host updates";
}

TEST(ConfigOfAGpu, RefusesWhatIsOfTheHostWithTheReason) {
  EXPECT_THAT(why_refused([](TrainConfig& c) { c.sync = "local_sgd"; }), HasSubstr("take all_reduce or zero, or device=cpu"));
  EXPECT_THAT(why_refused([](TrainConfig& c) { c.sync = "diloco"; }), HasSubstr("sync=diloco with device=cuda"));
  EXPECT_THAT(why_refused([](TrainConfig& c) { c.sync = "ps"; }), HasSubstr("sync=ps with device=cuda"));
  EXPECT_THAT(why_refused([](TrainConfig& c) { c.sync = "zero(stage=1, buddy=true)"; }), HasSubstr("leave buddy=true out"));
  EXPECT_THAT(why_refused([](TrainConfig& c) { c.sync = "zero(stage=2, offload=\"file:/tmp\")"; }), HasSubstr("take offload=host"));
  EXPECT_THAT(why_refused([](TrainConfig& c) { c.codec = "int8"; }), HasSubstr("codec=int8 with device=cuda"));
  EXPECT_THAT(why_refused([](TrainConfig& c) { c.engine.comm_dtype = Precision::bf16; }), HasSubstr("comm_dtype=fp32"));
  EXPECT_THAT(why_refused([](TrainConfig& c) { c.optimizer = "muon"; }), HasSubstr("take one of single elements"));
  EXPECT_THAT(why_refused([](TrainConfig& c) { c.optimizer = "shampoo"; }), HasSubstr("optimizer=shampoo with device=cuda"));
  EXPECT_THAT(why_refused([](TrainConfig& c) { c.sync_batch_norm = true; }), HasSubstr("sync_batch_norm is for the CPU"));
  EXPECT_THAT(why_refused([](TrainConfig& c) { c.device = "cuda:x"; }), HasSubstr("none of cpu, cuda, cuda:0"));
}

}  // namespace
}  // namespace cohort::train
