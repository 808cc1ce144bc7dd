// Which instructions the passes over memory run with. The best that the processor has, unless set otherwise; the bits never depend on it.
// AVX-512 was tried and left out: on slices in the L2 of an AMD EPYC sgd took 0 to 15 % less time, adam 5 to 50 % more; on larger slices
// memory is the limit.
// Owner: the process. Threads: any; use_isa() is for tests and measurements, before others run.
// To add one: an enumerator, its row in isa.cc, its clones in optim/elementwise.h, optim/measure.cc, codec/loops.h and
// codec/measure.cc.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

namespace cohort {

enum class Isa : std::uint8_t { plain, avx2 };
std::string_view name_of(Isa isa);

std::span<const Isa> runnable_isas();  // on this processor, the widest last
Isa current_isa();
void use_isa(Isa isa);  // Kind::usage where it does not run

// Clones of a function for an instruction set: the attribute stays on the clone, so nothing shared is compiled with wider instructions than
// every processor has. What a clone calls must be COHORT_INLINE, else it would stay narrow.
#define COHORT_INLINE [[gnu::always_inline]] inline
#if defined(__x86_64__)
#define COHORT_FOR_AVX2 [[gnu::target("avx2")]]
#else  // never chosen there
#define COHORT_FOR_AVX2
#endif

}  // namespace cohort
