#include "cohort/collective/kernels/kernels.h"

#include <array>
#include <atomic>
#include <limits>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/collective/kernels/instruction_sets.h"
#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace cohort::collective {
namespace {

// A factor that is NaN loses its payload, so that every instruction set passes the same one on.
double canonical(double factor) { return factor == factor ? factor : -std::numeric_limits<double>::quiet_NaN(); }

template <void (*run)(const KernelArgs&)>
void reduce(const Reduction& how, std::span<const void* const> sources, std::span<void* const> targets, std::size_t count) {
  if (how.op == Op::average)
    throw_failure(Kind::bug, "kernels: average is no element-wise operation; pass sum with post = 1/{}", sources.size());
  if (sources.empty()) throw_failure(Kind::bug, "kernels: a reduction of {} elements needs at least one source", count);
  if (sources.size() > kMostSources)
    throw_failure(Kind::usage, "kernels: {} sources; at most {} can be reduced in one call", sources.size(), kMostSources);
  if (count == 0 || targets.empty()) return;
  // Pointers to void and to char have one representation.
  run({how.dtype, how.op, canonical(how.pre), canonical(how.post), reinterpret_cast<const char* const*>(sources.data()), sources.size(),
       reinterpret_cast<char* const*>(targets.data()), targets.size(), count});
}

template <void (*run)(Dtype, char*, std::size_t, double)>
void scale(Dtype dtype, void* data, std::size_t count, double factor) {
  if (count > 0) run(dtype, static_cast<char*>(data), count, canonical(factor));
}

#if defined(COHORT_X86_KERNELS)
bool has_f16c() {  // not every compiler's __builtin_cpu_supports knows f16c
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
bool has_avx2() { return __builtin_cpu_supports("avx2") && has_f16c(); }
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512dq");
}
#endif

std::vector<Kernels> runnable() {
  std::vector<Kernels> rows{{"plain", &reduce<plain::reduce>, &scale<plain::scale>}};
#if defined(COHORT_X86_KERNELS)
  if (has_avx2()) rows.push_back({"avx2", &reduce<avx2::reduce>, &scale<avx2::scale>});
  if (has_avx512()) rows.push_back({"avx512", &reduce<avx512::reduce>, &scale<avx512::scale>});
#endif
  return rows;
}

std::atomic<const Kernels*> chosen{nullptr};

}  // namespace

std::span<const Kernels> runnable_kernels() {
  static const std::vector<Kernels> rows = runnable();
  return rows;
}

const Kernels& kernels() {
  const Kernels* override = chosen.load(std::memory_order_acquire);
  return override != nullptr ? *override : runnable_kernels().back();
}

void use_kernels(std::string_view name) {
  if (name.empty()) return chosen.store(nullptr, std::memory_order_release);
  std::string known;
  for (const Kernels& row : runnable_kernels()) {
    if (row.name == name) return chosen.store(&row, std::memory_order_release);
    known += fmt::format("{}{}", known.empty() ? "" : ", ", row.name);
  }
  throw_failure(Kind::usage, "kernels: no set called \"{}\" runs on this processor; choose one of {}", name, known);
}

}  // namespace cohort::collective
