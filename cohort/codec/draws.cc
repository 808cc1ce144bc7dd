#include "cohort/codec/draws.h"

#include "cohort/codec/loops.h"

namespace cohort::codec {
namespace {

struct Draw {
  Random random;
  std::uint64_t first;
  std::uint32_t* out;
  COHORT_INLINE void operator()(std::size_t i) const {
    const Words words = random.words(first + i);
    out[4 * i] = words[0];
    out[4 * i + 1] = words[1];
    out[4 * i + 2] = words[2];
    out[4 * i + 3] = words[3];
  }
};

}  // namespace

void draw_words(const Random& random, std::uint64_t first, std::size_t count, std::uint32_t* out) {
  for_each_index(Draw{random, first / 4, out}, (count + 3) / 4);
}

}  // namespace cohort::codec
