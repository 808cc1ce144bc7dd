#include "cohort/nn/tensor.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <thread>

#include "cohort/net/transport/loopback.h"

namespace cohort::nn {
namespace {

using collective::Communicator;
using collective::Op;
using testing::HasSubstr;

// Runs the body once per rank, each on a thread of its own; the first exception of any rank comes out here.
void on_ranks(int ranks, const std::function<void(Communicator&)>& body) {
  auto meshes = net::loopback_world(ranks);
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(ranks));
  std::vector<std::jthread> threads;
  for (std::size_t r = 0; r < meshes.size(); ++r) {
    threads.emplace_back([&, r] {
      try {
        const auto comm = collective::open(std::move(meshes[r]), {.timeout = Seconds{20}});
        body(*comm);
      } catch (...) {
        errors[r] = std::current_exception();
      }
    });
  }
  threads.clear();
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.kind(), Kind::usage);
    return failure.what();
  }
  return "not refused";
}

TEST(Piece, IsTheTensorsOwnMemory) {
  const at::Tensor tensor = at::zeros({3, 5}, at::kBFloat16);
  const collective::Piece piece = nn::piece(tensor);
  EXPECT_EQ(piece.data, tensor.data_ptr());
  EXPECT_EQ(piece.count, 15U);
  EXPECT_EQ(piece.bytes(), tensor.nbytes());
}

TEST(Piece, TypesMapBothWays) {
  for (int i = 0; i < collective::kDtypes; ++i) {
    const auto dtype = static_cast<collective::Dtype>(i);
    EXPECT_EQ(dtype_of(scalar_type_of(dtype)), dtype);
    EXPECT_EQ(c10::elementSize(scalar_type_of(dtype)), collective::size_of(dtype));
  }
}

TEST(Piece, RefusesWhatItCannotCarryAndSaysWhatToDo) {
  EXPECT_THAT(refusal([] { piece(at::zeros({4, 6}).t()); }), HasSubstr("[6, 4] is not contiguous"));
  EXPECT_THAT(refusal([] { piece(at::zeros({4}, at::kComplexFloat)); }), HasSubstr("ComplexFloat"));
  EXPECT_THAT(refusal([] { piece(at::Tensor()); }), HasSubstr("undefined"));
  EXPECT_THAT(refusal([] { piece(at::empty({4}, at::kMeta)); }), HasSubstr("is on meta"));
}

TEST(Tensor, KeepsItsRegionAlive) {
  auto owner = std::make_shared<std::vector<float>>(8, 1.5F);
  const std::weak_ptr<std::vector<float>> watch = owner;
  float* data = owner->data();
  at::Tensor view = tensor(collective::Region(std::move(owner), data, 32), {2, 4}, at::kFloat);
  at::Tensor row = view[1];
  view.reset();
  EXPECT_FALSE(watch.expired());
  EXPECT_EQ(row.data_ptr(), data + 4);
  row.reset();
  EXPECT_TRUE(watch.expired());
}

TEST(Tensor, RefusesSizesTheRegionCannotHold) {
  const collective::Region region(nullptr, nullptr, 32);
  EXPECT_THAT(refusal([&] { tensor(region, {9}, at::kFloat); }), HasSubstr("takes 36 bytes, the region has 32"));
  EXPECT_THAT(refusal([&] { tensor(region, {-1}, at::kFloat); }), HasSubstr("negative"));
  EXPECT_THAT(refusal([&] { tensor(region, {1LL << 40, 1LL << 40}, at::kFloat); }), HasSubstr("more elements than memory"));
}

TEST(TensorVerbs, WorkForAWorldOfOne) {
  on_ranks(1, [](Communicator& comm) {
    const at::Tensor tensor = at::arange(5, at::kFloat);
    all_reduce(comm, tensor, Op::average);
    broadcast(comm, tensor, Rank{0});
    EXPECT_TRUE(at::allclose(tensor, at::arange(5, at::kFloat)));
    EXPECT_EQ(all_gather(comm, tensor).sizes(), at::IntArrayRef({1, 5}));
  });
}

TEST(TensorVerbs, AllReduceAveragesInPlaceWhereverTheMemoryIs) {
  on_ranks(3, [](Communicator& comm) {
    const float mine = static_cast<float>(comm.rank().value) * 3;
    const std::vector<at::Tensor> tensors{tensor(comm.allocate(1000), {10, 25}, at::kFloat), at::empty({7}, at::kDouble)};
    for (const at::Tensor& tensor : tensors) tensor.fill_(mine);
    all_reduce(comm, tensors, Op::average, {.name = "grads"});
    for (const at::Tensor& tensor : tensors) EXPECT_TRUE(at::allclose(tensor, at::full(tensor.sizes(), 3.0, tensor.options())));
  });
}

TEST(TensorVerbs, BroadcastAndAllGatherKeepShapes) {
  on_ranks(3, [](Communicator& comm) {
    const at::Tensor mine = at::full({2, 2}, comm.rank().value, at::kLong);
    const at::Tensor all = all_gather(comm, mine);
    ASSERT_EQ(all.sizes(), at::IntArrayRef({3, 2, 2}));
    for (int r = 0; r < 3; ++r) EXPECT_TRUE(all[r].eq(r).all().item<bool>());
    broadcast(comm, mine, Rank{2});
    EXPECT_TRUE(mine.eq(2).all().item<bool>());
  });
}

}  // namespace
}  // namespace cohort::nn
