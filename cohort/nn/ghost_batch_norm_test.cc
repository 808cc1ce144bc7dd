#include "cohort/nn/ghost_batch_norm.h"

#include <gmock/gmock.h>

#include "cohort/base/failure_of.h"

namespace cohort::nn {
namespace {

TEST(GhostBatchNorm, IsBatchNormOnOneGhostAfterAnother) {
  at::set_num_threads(1);
  torch::manual_seed(3);
  GhostBatchNorm ghosts(3, 4);
  torch::nn::BatchNorm2d plain(3);
  const at::Tensor x = torch::randn({11, 3, 2, 5}), factor = torch::randn({11, 3, 2, 5});  // ghosts of 4, 4 and 3
  at::Tensor one = x.clone().requires_grad_(true), other = x.clone().requires_grad_(true);
  const at::Tensor y = ghosts(one);
  (y * factor).sum().backward();
  std::vector<at::Tensor> parts;
  for (const at::Tensor& part : other.split(4)) parts.push_back(plain(part));
  const at::Tensor wanted = at::cat(parts);
  (wanted * factor).sum().backward();
  EXPECT_TRUE(at::allclose(y, wanted, 1e-6, 1e-6));
  EXPECT_TRUE(at::allclose(one.grad(), other.grad(), 1e-5, 1e-6));
  EXPECT_TRUE(at::allclose(ghosts->weight.grad(), plain->weight.grad(), 1e-5, 1e-6));
  EXPECT_TRUE(at::allclose(ghosts->running_mean, plain->running_mean, 1e-6, 1e-7)) << "moved once for each ghost";
  EXPECT_TRUE(at::allclose(ghosts->running_var, plain->running_var, 1e-6, 1e-7));
  EXPECT_FALSE(at::allclose(ghosts(x), plain(x), 1e-3, 1e-3)) << "and is not that of the whole batch";
  ghosts->eval(), plain->eval();
  plain->running_mean.copy_(ghosts->running_mean), plain->running_var.copy_(ghosts->running_var);
  EXPECT_TRUE(at::equal(ghosts(x), plain(x)));
}

TEST(GhostBatchNorm, RefusesAGhostOfOneValueAChannel) {
  GhostBatchNorm ghosts(3, 4);
  EXPECT_THAT(failure_of([&] { ghosts(torch::randn({5, 3, 1, 1})); }).what, testing::HasSubstr("has no variance"));
  EXPECT_TRUE(ghosts->running_var.isfinite().all().item<bool>());
  ghosts->eval();
  EXPECT_TRUE(ghosts(torch::randn({5, 3, 1, 1})).isfinite().all().item<bool>());
}

}  // namespace
}  // namespace cohort::nn
