#include "cohort/nn/batch.h"

#include <gtest/gtest.h>

#include "cohort/base/failure_of.h"
#include "cohort/data/loader.h"

namespace cohort::nn {

TEST(BatchTensors, AreViewsThatKeepTheMemory) {
  const auto set = data::open_dataset("synthetic(shape=3x4x5, samples=10)");
  Tensors t;
  const float* at = nullptr;
  {
    data::Loader loader(set, {.share = {.batch = 6}});
    const data::Batch batch = loader.next(Deadline::in(20s));
    at = batch.pixels();
    t = tensors(batch);
  }
  EXPECT_EQ(t.inputs.sizes(), (at::IntArrayRef{6, 3, 4, 5}));
  EXPECT_EQ(t.labels.sizes(), (at::IntArrayRef{6}));
  EXPECT_EQ(t.inputs.scalar_type(), at::kFloat);
  EXPECT_EQ(t.inputs.const_data_ptr<float>(), at);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(at) % 64, 0u);
}

TEST(BatchTensors, CarryTokensWithALabelForEach) {
  data::Loader loader(data::open_dataset("synthetic(task=tokens, shape=7, samples=10)"), {.share = {.batch = 6}});
  const Tensors t = tensors(loader.next(Deadline::in(20s)));
  EXPECT_EQ(t.inputs.sizes(), (at::IntArrayRef{6, 7}));
  EXPECT_EQ(t.labels.sizes(), (at::IntArrayRef{6, 7}));
  EXPECT_EQ(t.inputs.scalar_type(), at::kLong);
}

TEST(BatchTensors, CarryFloatValuesAndTargets) {
  const std::vector<float> inputs{1, 2, 3, 4, 5, 6}, targets{7, 8};
  const auto set = std::make_shared<data::MemoryDataset>(data::Form{.input = data::Input::floats, .shape = {3}, .targets = 1}, "two",
                                                         data::bytes_of(inputs), std::vector<std::int64_t>{}, targets);
  data::Loader loader(set, {.share = {.batch = 2, .sampler = "in_order"}});
  const Tensors t = tensors(loader.next(Deadline::in(20s)));
  EXPECT_EQ(t.inputs.sizes(), (at::IntArrayRef{2, 3}));
  EXPECT_EQ(t.labels.sizes(), (at::IntArrayRef{2, 1}));
  EXPECT_EQ(t.labels.scalar_type(), at::kFloat);
  EXPECT_EQ(t.inputs[1][0].item<float>(), 4);
  EXPECT_EQ(t.labels[1][0].item<float>(), 8);
  at::Tensor fetched, labels;
  fetch(*set, {}, std::vector<std::int64_t>{1, 0}, fetched, labels);
  EXPECT_EQ(fetched[0][2].item<float>(), 6);
  EXPECT_EQ(labels[1][0].item<float>(), 7);
}

TEST(Fetch, FillsTheTensorsGivenAndMakesThemOnlyWhenTheyDoNotFit) {
  const auto set = data::open_dataset("synthetic(shape=1x2x2, samples=10)");
  at::Tensor inputs, labels;
  fetch(*set, {}, std::vector<std::int64_t>{3, 7}, inputs, labels);
  const void* at = inputs.data_ptr();
  EXPECT_EQ(labels.const_data_ptr<std::int64_t>()[1], 7);
  fetch(*set, {}, std::vector<std::int64_t>{4, 9}, inputs, labels);
  EXPECT_EQ(inputs.data_ptr(), at);
  EXPECT_EQ(labels.const_data_ptr<std::int64_t>()[0], 4);
  EXPECT_EQ(failure_of([&] { fetch(*set, {}, std::vector<std::int64_t>{10}, inputs, labels); }).kind, Kind::usage);
}

}  // namespace cohort::nn
