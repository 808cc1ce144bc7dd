#include "cohort/collective/types.h"

#include <gtest/gtest.h>

namespace cohort::collective {
namespace {

TEST(Types, NamesLeadBackToTheirValues) {
  for (int i = 0; i < kOps; ++i) EXPECT_EQ(op_named(name_of(static_cast<Op>(i))), static_cast<Op>(i));
  for (int i = 0; i <= static_cast<int>(Collective::recv); ++i)
    EXPECT_EQ(collective_named(name_of(static_cast<Collective>(i))), static_cast<Collective>(i));
}

TEST(Types, NamesAreTheFieldsWords) {
  EXPECT_EQ(name_of(Op::average), "average");
  EXPECT_EQ(name_of(Op::product), "product");
  EXPECT_EQ(name_of(Collective::all_reduce), "all_reduce");
  EXPECT_EQ(name_of(Collective::barrier), "barrier");
  EXPECT_EQ(name_of(Collective::recv), "recv");
}

TEST(Types, UnknownNamesAndValuesAreNotGuessed) {
  EXPECT_FALSE(op_named("Sum"));
  EXPECT_FALSE(collective_named(""));
  EXPECT_EQ(name_of(static_cast<Op>(200)), "unknown");
  EXPECT_EQ(name_of(static_cast<Collective>(200)), "unknown");
}

TEST(Types, OnlyTheAverageOfTruthValuesHasNoMeaning) {
  for (int d = 0; d < kDtypes; ++d)
    for (int o = 0; o < kOps; ++o) {
      const auto dtype = static_cast<Dtype>(d);
      const auto op = static_cast<Op>(o);
      EXPECT_EQ(reducible(dtype, op), !(dtype == Dtype::boolean && op == Op::average)) << name_of(dtype) << " " << name_of(op);
    }
}

}  // namespace
}  // namespace cohort::collective
