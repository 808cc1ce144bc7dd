// Random words of many elements at once, by loops of every instruction set of base/isa.h: word i is random.words(i / 4)[i % 4].
// Threads: pure, any. Failure: none.
#pragma once
#include <cstddef>
#include <cstdint>

#include "cohort/codec/random.h"

namespace cohort::codec {

// first: a multiple of four. out: room for count, rounded up to a multiple of four.
void draw_words(const Random& random, std::uint64_t first, std::size_t count, std::uint32_t* out);

}  // namespace cohort::codec
