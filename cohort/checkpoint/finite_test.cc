#include "cohort/checkpoint/finite.h"

#include <gmock/gmock.h>

#include <cstring>
#include <limits>

#include "cohort/base/failure_of.h"
#include "cohort/checkpoint/samples.h"

namespace cohort::checkpoint {
namespace {

template <class T>
bool finite(Dtype dtype, const std::vector<T>& values) {
  return all_finite(dtype, std::as_bytes(std::span(values)));
}

constexpr float kMost = std::numeric_limits<float>::max(), kInf = std::numeric_limits<float>::infinity();

Saved save(const Store& store, std::int64_t step, const std::vector<float>& values) {
  const Shape shape{static_cast<std::int64_t>(values.size())};
  const TensorView weight{"weight", Dtype::f32, shape, std::as_bytes(std::span(values))};
  const TensorView mask{"mask", Dtype::f32, shape, std::as_bytes(std::span(values))};
  Manifest manifest;
  manifest.step = step;
  return store.save(manifest, std::vector<TensorFile>{{"model.safetensors", {mask, weight}}});
}

}  // namespace

TEST(Finite, OfEveryTypeInfAndNanAreFoundAndTheLargestValuesAreNot) {
  EXPECT_TRUE(finite<float>(Dtype::f32, {0, -kMost, kMost, std::numeric_limits<float>::denorm_min()}));
  for (const float bad : {kInf, -kInf, std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_FALSE(finite<float>(Dtype::f32, {0, 1, bad}));
    EXPECT_FALSE(finite<double>(Dtype::f64, {0, static_cast<double>(bad), 1}));
  }
  EXPECT_TRUE(finite<double>(Dtype::f64, {std::numeric_limits<double>::max()}));
  EXPECT_TRUE(finite<std::uint16_t>(Dtype::f16, {0x7bff, 0xfbff}));
  EXPECT_FALSE(finite<std::uint16_t>(Dtype::f16, {0xfc00}));
  EXPECT_TRUE(finite<std::uint16_t>(Dtype::bf16, {0x7f7f, 0xfc00}));
  EXPECT_FALSE(finite<std::uint16_t>(Dtype::bf16, {0x7fc0}));
  EXPECT_TRUE(finite<std::uint32_t>(Dtype::i32, {0xffffffff}));
}

TEST(Finite, TheNewestThatIsAcceptedServesAndTheOthersAreRefusedByName) {
  const MemoryDir folder;
  const Store store(folder.path());
  const std::size_t many = (1_MiB / sizeof(float)) + 3;  // the value lies in the second block
  std::vector<float> values(many, 1);
  save(store, 1, values);
  values.back() = kInf;
  const Saved bad = save(store, 2, values);
  const auto accept = [](const std::set<std::string>& names) {
    return [names](const Checkpoint& whole) {
      if (const auto name = first_not_finite(Contents(whole), "model", names)) throw_failure(Kind::corrupt, "{} is not finite", *name);
    };
  };
  EXPECT_EQ(first_not_finite(Contents(bad.checkpoint), "model", {"weight"}), "weight");
  const Newest newest = store.newest(accept({"weight"}));
  ASSERT_TRUE(newest.checkpoint);
  EXPECT_EQ(newest.checkpoint->manifest.step, 1);
  ASSERT_EQ(newest.refused.size(), 1U);
  EXPECT_EQ(newest.refused[0].path, bad.checkpoint.path);
  EXPECT_EQ(newest.refused[0].error.what, "weight is not finite");
  EXPECT_EQ(store.newest(accept({"other"})).checkpoint->manifest.step, 2) << "a mask of -inf is no parameter";
}

}  // namespace cohort::checkpoint
