// The passes over memory of relu_pool.h: pairs of rows become one, and one becomes a pair. No torch here.
//   places   which of the four numbers it was: 0 1 above, 2 3 below; 4: none was above zero. kPlacePad bytes more than there are places,
//            because wide reads end behind the last one
// Rows first .. end of what is pooled, counted over all images; a column or row that is left over takes no part and gets zeros.
// Threads: any, on rows of their own. Failure: none.
#pragma once
#include <cstdint>

namespace cohort::nn {

constexpr std::int64_t kPlacePad = 8;

struct PoolShape {
  std::int64_t height = 0, width = 0;  // of an image
  std::int64_t pairs() const { return height / 2; }
  std::int64_t out() const { return width / 2; }
  // Where the upper row of a pair begins.
  std::int64_t top(std::int64_t pair) const { return (pair / pairs() * height + pair % pairs() * 2) * width; }
};

struct PoolRows {
  const float* x;
  float* y;
  std::uint8_t* places;
};
struct UnpoolRows {
  const float* out;
  const std::uint8_t* places;
  float* x;
};

void pool_rows(const PoolRows& rows, const PoolShape& shape, std::int64_t first, std::int64_t end);
void unpool_rows(const UnpoolRows& rows, const PoolShape& shape, std::int64_t first, std::int64_t end);

// The same eight at a time, where the processor can (AVX2).
bool has_avx2_rows();
void pool_rows_wide(const PoolRows& rows, const PoolShape& shape, std::int64_t first, std::int64_t end);
void unpool_rows_wide(const UnpoolRows& rows, const PoolShape& shape, std::int64_t first, std::int64_t end);

}  // namespace cohort::nn
