#include "cohort/sync/testing.h"

namespace cohort::sync {
namespace {

TEST(AllReduce, SumsOrAveragesEveryGradientOfTheBucket) {
  for (const auto* spec : {"all_reduce(op=sum)", "all_reduce"})
    collective::run_ranks(4, [spec](collective::Communicator& comm) {
      Bucket bucket(0, {{.name = "w", .shape = {3}}, {.name = "b", .shape = {20}}}, Dtype::f32, comm);
      fill(bucket.gradients(), comm.rank().value);
      const auto strategy = make(spec);
      strategy->reduce_gradients(bucket, {.comm = &comm});
      const float expected = strategy->averages() ? 1.5F : 6.0F;
      for (const Member& m : bucket.members())
        for (std::size_t i = 0; i < m.count; ++i) EXPECT_EQ(static_cast<float*>(bucket.gradients().data)[m.first + i], expected);
    });
}

}  // namespace
}  // namespace cohort::sync
