#include "cohort/base/isa.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "cohort/base/error.h"

namespace cohort {
namespace {

std::vector<Isa> runnable() {
  std::vector<Isa> isas{Isa::plain};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) isas.push_back(Isa::avx2);
#endif
  return isas;
}

std::atomic<Isa>& chosen() {
  static std::atomic<Isa> isa{runnable_isas().back()};
  return isa;
}

}  // namespace

std::string_view name_of(Isa isa) { return isa == Isa::avx2 ? "avx2" : "plain"; }

std::span<const Isa> runnable_isas() {
  static const std::vector<Isa> isas = runnable();
  return isas;
}

Isa current_isa() { return chosen().load(std::memory_order_relaxed); }

void use_isa(Isa isa) {
  const auto isas = runnable_isas();
  if (std::find(isas.begin(), isas.end(), isa) == isas.end())
    throw_failure(Kind::usage, "{} instructions do not run on this processor; the widest that do are {}", name_of(isa),
                  name_of(isas.back()));
  chosen().store(isa, std::memory_order_relaxed);
}

}  // namespace cohort
