// What holds on every machine; what runs on a GPU is tested in tests/gpu.
#include "cohort/cuda/runtime.h"

#include <gmock/gmock.h>

#include <thread>

#include "cohort/base/failure_of.h"
#include "cohort/cuda/elements.h"

namespace cohort::cuda {
namespace {

TEST(CudaRuntime, AStreamIsTheThreadsOwnUntilItsScopeEnds) {
  int one = 0, two = 0;
  EXPECT_EQ(current_stream(), nullptr);
  {
    const OnStream outer(&one);
    {
      const OnStream inner(&two);
      EXPECT_EQ(current_stream(), &two);
      std::thread([] { EXPECT_EQ(current_stream(), nullptr); }).join();
    }
    EXPECT_EQ(current_stream(), &one);
  }
  EXPECT_EQ(current_stream(), nullptr);
}

TEST(CudaRuntime, SaysWhatToDoExactlyWhereThereIsNoGpuToUse) {
  EXPECT_EQ(why_unavailable().empty(), available());
  EXPECT_EQ(devices() > 0, available());
  const Error error = failure_of([] { throw_unavailable("a model on cuda:0"); });
  EXPECT_EQ(error.kind, Kind::usage);
  EXPECT_THAT(error.what, testing::StartsWith("a model on cuda:0: " + why_unavailable()));
}

TEST(CudaRuntime, AllocatesAZeroedPlaceOrRefuses) {
  constexpr Device kFirst{DeviceKind::cuda, 0};
  constexpr std::size_t kCount = 1000;
  if (!available()) {
    EXPECT_EQ(failure_of([&] { allocate(kCount, kFirst); }).kind, Kind::usage);
    EXPECT_EQ(failure_of([&] { allocate_pinned(kCount); }).kind, Kind::usage);
    return;
  }
  const auto there = allocate(kCount, kFirst);
  std::vector<unsigned char> here(kCount, 1);
  copy(here.data(), there.get(), kCount, kFirst);
  synchronize(kFirst);
  EXPECT_THAT(here, testing::Each(0));
}

TEST(CudaRuntime, CopiesOnlyBetweenPiecesThatAreAlike) {
  std::vector<float> a(3), b(4);
  EXPECT_EQ(failure_of([&] { copy(piece(std::span(a)), piece(std::span(b))); }).kind, Kind::bug);
}

}  // namespace
}  // namespace cohort::cuda
