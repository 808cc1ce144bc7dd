#include <algorithm>
#include <cmath>

#include "cohort/data/warp.h"

namespace cohort::data {
namespace {

bool whole(float value) { return std::abs(value) < 1e6F && value == std::floor(value); }

bool moves_whole_pixels(const Affine& m) {
  return (m.xx == 1 || m.xx == -1) && m.xy == 0 && m.yx == 0 && m.yy == 1 && whole(m.x) && whole(m.y);
}

}  // namespace

bool warp_whole(const float* in, float* out, const ImageShape& shape, const Affine& m) {
  if (!moves_whole_pixels(m)) return false;
  const bool mirrored = m.xx == -1;
  const std::int64_t height = shape.height, width = shape.width, down = static_cast<std::int64_t>(m.y);
  const std::int64_t first = static_cast<std::int64_t>(m.x) + (mirrored ? width - 1 : 0);  // where column 0 comes from
  const std::int64_t begin = std::clamp<std::int64_t>(mirrored ? first - width + 1 : -first, 0, width);
  const std::int64_t end = std::clamp<std::int64_t>(mirrored ? first + 1 : width - first, begin, width);
  for (std::int64_t c = 0; c < shape.channels; ++c)
    for (std::int64_t y = 0; y < height; ++y, out += width) {
      if (y + down < 0 || y + down >= height) {
        std::fill_n(out, width, 0.0F);
        continue;
      }
      const float* from = in + c * shape.plane() + (y + down) * width;
      std::fill_n(out, begin, 0.0F);
      if (mirrored)
        std::reverse_copy(from + first - end + 1, from + first - begin + 1, out + begin);
      else
        std::copy_n(from + first + begin, end - begin, out + begin);
      std::fill_n(out + end, width - end, 0.0F);
    }
  return true;
}

}  // namespace cohort::data
