#include "cohort/collective/types.h"

#include <gtest/gtest.h>

namespace cohort::collective {
namespace {

TEST(Types, NamesLeadBackToTheirValues) {
  for (int i = 0; i < kDtypes; ++i) EXPECT_EQ(dtype_named(name_of(static_cast<Dtype>(i))), static_cast<Dtype>(i));
  for (int i = 0; i < kOps; ++i) EXPECT_EQ(op_named(name_of(static_cast<Op>(i))), static_cast<Op>(i));
  for (int i = 0; i <= static_cast<int>(Collective::recv); ++i)
    EXPECT_EQ(collective_named(name_of(static_cast<Collective>(i))), static_cast<Collective>(i));
}

TEST(Types, NamesAreTheFieldsWords) {
  EXPECT_EQ(name_of(Dtype::bf16), "bf16");
  EXPECT_EQ(name_of(Dtype::i64), "i64");
  EXPECT_EQ(name_of(Dtype::boolean), "bool");
  EXPECT_EQ(name_of(Op::average), "average");
  EXPECT_EQ(name_of(Op::product), "product");
  EXPECT_EQ(name_of(Collective::all_reduce), "all_reduce");
  EXPECT_EQ(name_of(Collective::barrier), "barrier");
  EXPECT_EQ(name_of(Collective::recv), "recv");
}

TEST(Types, UnknownNamesAndValuesAreNotGuessed) {
  EXPECT_FALSE(dtype_named("float"));
  EXPECT_FALSE(op_named("Sum"));
  EXPECT_FALSE(collective_named(""));
  EXPECT_EQ(name_of(static_cast<Dtype>(200)), "unknown");
  EXPECT_EQ(name_of(static_cast<Op>(200)), "unknown");
  EXPECT_EQ(name_of(static_cast<Collective>(200)), "unknown");
  EXPECT_EQ(size_of(static_cast<Dtype>(200)), 0u);
}

TEST(Types, SizesAreThoseOfTheElementsInMemory) {
  EXPECT_EQ(size_of(Dtype::f16), 2u);
  EXPECT_EQ(size_of(Dtype::bf16), 2u);
  EXPECT_EQ(size_of(Dtype::f32), sizeof(float));
  EXPECT_EQ(size_of(Dtype::f64), sizeof(double));
  EXPECT_EQ(size_of(Dtype::i8), 1u);
  EXPECT_EQ(size_of(Dtype::u8), 1u);
  EXPECT_EQ(size_of(Dtype::i32), 4u);
  EXPECT_EQ(size_of(Dtype::i64), 8u);
  EXPECT_EQ(size_of(Dtype::boolean), sizeof(bool));
}

TEST(Types, OnlyTheAverageOfTruthValuesHasNoMeaning) {
  for (int d = 0; d < kDtypes; ++d)
    for (int o = 0; o < kOps; ++o) {
      const auto dtype = static_cast<Dtype>(d);
      const auto op = static_cast<Op>(o);
      EXPECT_EQ(reducible(dtype, op), !(dtype == Dtype::boolean && op == Op::average)) << name_of(dtype) << " " << name_of(op);
    }
}

TEST(Types, APartOfAPieceStartsAtItsElement) {
  double numbers[8] = {};
  const Piece part = piece(std::span<double>(numbers)).part(3, 4);
  EXPECT_EQ(part.data, &numbers[3]);
  EXPECT_EQ(part.count, 4u);
  EXPECT_EQ(part.bytes(), 4 * sizeof(double));
  EXPECT_EQ(part.dtype, Dtype::f64);
}

}  // namespace
}  // namespace cohort::collective
