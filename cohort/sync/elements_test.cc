#include "cohort/sync/elements.h"

#include <gtest/gtest.h>

#include <vector>

#include "cohort/base/failure_of.h"

namespace cohort::sync {
namespace {

template <class T>
Piece piece_of(std::vector<T>& values) {
  return {values.data(), values.size(), kDtypeOf<T>, Device::cpu};
}

TEST(Elements, SquaresAreSummedInDouble) {
  std::vector<float> big(1 << 20, 0.1F), zero(big.size(), 0), one{3, -4}, other{0, -2};
  const double square = static_cast<double>(0.1F) * static_cast<double>(0.1F);
  EXPECT_NEAR(squared_norm(piece_of(big)), square * static_cast<double>(big.size()), 1e-6) << "in float it would be off by hundreds";
  EXPECT_NEAR(squared_distance(piece_of(big), piece_of(zero)), squared_norm(piece_of(big)), 1e-9);
  EXPECT_EQ(squared_norm(piece_of(one)), 25);
  EXPECT_EQ(squared_distance(piece_of(one), piece_of(other)), 13);
  std::vector<double> precise{1e-9}, none;
  EXPECT_EQ(squared_norm(piece_of(precise)), 1e-9 * 1e-9);
  EXPECT_EQ(squared_norm(piece_of(none)), 0);
  EXPECT_EQ(failure_of([&] { squared_distance(piece_of(one), piece_of(precise)); }).kind, Kind::bug);
}

}  // namespace
}  // namespace cohort::sync
