#include "cohort/base/piece.h"

#include <gtest/gtest.h>

namespace cohort {
namespace {

TEST(Piece, NamesOfTypesLeadBackToThem) {
  for (int i = 0; i < kDtypes; ++i) EXPECT_EQ(dtype_named(name_of(static_cast<Dtype>(i))), static_cast<Dtype>(i));
  EXPECT_EQ(name_of(Dtype::bf16), "bf16");
  EXPECT_EQ(name_of(Dtype::i64), "i64");
  EXPECT_EQ(name_of(Dtype::boolean), "bool");
}

TEST(Piece, UnknownTypesAreNotGuessed) {
  EXPECT_FALSE(dtype_named("float"));
  EXPECT_FALSE(dtype_named(""));
  EXPECT_EQ(name_of(static_cast<Dtype>(200)), "unknown");
  EXPECT_EQ(size_of(static_cast<Dtype>(200)), 0u);
}

TEST(Piece, SizesAreThoseOfTheElementsInMemory) {
  EXPECT_EQ(size_of(Dtype::f16), 2u);
  EXPECT_EQ(size_of(Dtype::bf16), 2u);
  EXPECT_EQ(size_of(Dtype::f32), sizeof(float));
  EXPECT_EQ(size_of(Dtype::f64), sizeof(double));
  EXPECT_EQ(size_of(Dtype::i8), 1u);
  EXPECT_EQ(size_of(Dtype::u8), 1u);
  EXPECT_EQ(size_of(Dtype::i16), 2u);
  EXPECT_EQ(size_of(Dtype::i32), 4u);
  EXPECT_EQ(size_of(Dtype::i64), 8u);
  EXPECT_EQ(size_of(Dtype::boolean), sizeof(bool));
}

TEST(Piece, APartOfItStartsAtItsElementOnTheSameDevice) {
  double numbers[8] = {};
  Piece whole = piece(std::span<double>(numbers));
  EXPECT_EQ(whole.device, Device::cpu);
  whole.device = {DeviceKind::cuda, 3};
  const Piece part = whole.part(3, 4);
  EXPECT_EQ(part.data, &numbers[3]);
  EXPECT_EQ(part.count, 4u);
  EXPECT_EQ(part.bytes(), 4 * sizeof(double));
  EXPECT_EQ(part.dtype, Dtype::f64);
  EXPECT_EQ(part.device, (Device{DeviceKind::cuda, 3}));
  EXPECT_NE(part.device, Device::cuda);  // whichever is the current one
}

TEST(ElementRange, OverlapsInWhatBothHold) {
  const ElementRange range{10, 5};
  EXPECT_EQ(range.last(), 15u);
  EXPECT_EQ(range.overlap({12, 9}), (ElementRange{12, 3}));
  EXPECT_EQ(range.overlap({0, 100}), range);
  EXPECT_EQ(range.overlap({15, 4}).count, 0u);
  EXPECT_EQ(range.overlap({2, 3}).count, 0u);
}

}  // namespace
}  // namespace cohort
