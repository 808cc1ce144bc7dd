// How one operation is filled, checked and timed: one method for every C++ implementation (bench/baselines/gloo_bench.py is the same in
// Python).
//
// Time: barrier, then each rank times `batch` operations back to back; a sample is the slowest rank's time divided by the batch.
// The batch makes a sample last about a millisecond, so that the barrier's own skew does not count; large operations have a batch of one.
// Data: element i of rank r is (i + 3r) mod 7, small whole numbers, so every type gives the exact result in any order of summation. All
// outputs are compared with it, and the checksum over all ranks' outputs is the same for every implementation. Timed operations run on
// zeros: a repeated in-place sum neither overflows nor turns denormal. Threads: pure functions and templates. Standard library only, so
// that implementations stay stand-alone programs.
#pragma once
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

namespace cohort::bench::measure {

inline constexpr int kPeriod = 7;
inline constexpr double kSampleSeconds = 1e-3;  // a batch lasts about this long
inline constexpr int kMaxBatch = 1000;
inline constexpr int kLeastSamples = 3;
inline constexpr int kMostSamples = 5000;

// What one rank puts in and gets out, in elements. `whole` is the operation's size: the largest buffer any rank holds.
struct Shape {
  std::string_view collective;
  std::string_view op;
  int rank = 0;
  int ranks = 1;
  std::size_t whole = 0;
  bool logical = false;  // bool elements: 0 or 1, sum means or

  std::size_t block() const { return whole / static_cast<std::size_t>(ranks); }
  bool reduces() const { return collective == "all_reduce" || collective == "reduce_scatter" || collective == "reduce"; }
  bool in_place() const { return collective == "all_reduce" || collective == "broadcast" || collective == "send"; }
  std::size_t in_count() const {
    if (collective == "barrier") return 0;
    if (collective == "all_gather" || collective == "gather") return block();
    return collective == "scatter" && rank != 0 ? 0 : whole;
  }
  std::size_t out_count() const {
    if (in_place()) return in_count();
    if (collective == "reduce_scatter" || collective == "scatter") return block();
    if (collective == "reduce" || collective == "gather") return rank == 0 ? whole : 0;
    return collective == "barrier" ? 0 : whole;
  }
};

// Whole elements of a buffer of `bytes`, at least one; collectives with a block per rank round up to even blocks. The bytes reported are
// these.
inline std::size_t whole_elements(std::string_view collective, std::size_t bytes, std::size_t element_bytes, int ranks) {
  if (collective == "barrier") return 0;
  const auto n = std::max<std::size_t>(1, bytes / element_bytes);
  const auto p = static_cast<std::size_t>(ranks);
  const bool blocks = collective == "reduce_scatter" || collective == "all_gather" || collective == "gather" || collective == "scatter" ||
                      collective == "all_to_all";
  return blocks ? (n + p - 1) / p * p : n;
}

inline std::int64_t input_value(const Shape& s, int rank, std::size_t i) {
  const int base = static_cast<int>((i + 3 * static_cast<std::size_t>(rank)) % kPeriod);
  if (s.logical) return base < 3 ? 1 : 0;
  if (s.op == "product") return 1 + base % 2;
  return s.op == "average" ? base * s.ranks : base;
}

inline std::int64_t reduced_value(const Shape& s, std::size_t i) {
  std::int64_t total = input_value(s, 0, i);
  for (int r = 1; r < s.ranks; ++r) {
    const std::int64_t v = input_value(s, r, i);
    if (s.op == "min")
      total = std::min(total, v);
    else if (s.op == "max")
      total = std::max(total, v);
    else if (s.op == "product")
      total = static_cast<std::int64_t>(static_cast<std::uint64_t>(total) * static_cast<std::uint64_t>(v));  // wraps, as integers do
    else
      total += v;
  }
  if (s.logical) return total != 0 ? 1 : 0;
  return s.op == "average" ? total / s.ranks : total;
}

// Element i of this rank's output.
inline std::int64_t output_value(const Shape& s, std::size_t i) {
  const auto b = std::max<std::size_t>(1, s.block());
  const auto me = static_cast<std::size_t>(s.rank);
  if (s.collective == "all_reduce" || s.collective == "reduce") return reduced_value(s, i);
  if (s.collective == "reduce_scatter") return reduced_value(s, me * b + i);
  if (s.collective == "all_gather" || s.collective == "gather") return input_value(s, static_cast<int>(i / b), i % b);
  if (s.collective == "all_to_all") return input_value(s, static_cast<int>(i / b), me * b + i % b);
  if (s.collective == "scatter") return input_value(s, 0, me * b + i);
  return s.collective == "send" && s.rank > 1 ? input_value(s, s.rank, i) : input_value(s, 0, i);  // broadcast, send: rank 0's
}

template <class T>
void fill_input(const Shape& s, T* data) {
  T cycle[kPeriod];
  for (std::size_t i = 0; i < kPeriod; ++i) cycle[i] = static_cast<T>(input_value(s, s.rank, i));
  for (std::size_t i = 0, k = 0; i < s.in_count(); ++i, k = k + 1 == kPeriod ? 0 : k + 1) data[i] = cycle[k];
}

struct Verdict {
  std::size_t wrong = 0;  // elements that differ
  std::size_t first = 0;  // where the first one stands
  std::uint32_t checksum = 0;
};

template <class T>
Verdict check_output(const Shape& s, const T* data) {
  std::int64_t cycle[kPeriod];
  for (std::size_t i = 0; i < kPeriod; ++i) cycle[i] = reduced_value(s, i);
  const auto offset = s.collective == "reduce_scatter" ? static_cast<std::size_t>(s.rank) * s.block() : 0;
  Verdict v;
  for (std::size_t i = 0; i < s.out_count(); ++i) {
    const auto exact = s.reduces() ? cycle[(i + offset) % kPeriod] : output_value(s, i);
    const auto want = static_cast<double>(static_cast<T>(exact));  // sums of small integers wrap in small types
    const auto got = static_cast<double>(data[i]);
    // 1/n is not exact in every type, and a 16-bit float counts exactly to 256 only.
    const double slack =
        s.op == "average" ? 1.0 + 0.01 * std::abs(want) : (sizeof(T) == 2 && std::abs(want) > 256 ? 0.05 * std::abs(want) : 0.0);
    if (!(std::abs(got - want) <= slack) && v.wrong++ == 0) v.first = i;
    v.checksum += static_cast<std::uint32_t>(static_cast<std::int64_t>(got)) * static_cast<std::uint32_t>(i % 127 + 1);
  }
  return v;
}

struct Summary {
  double median_us = 0;
  double low_us = 0;   // 10th percentile of the samples
  double high_us = 0;  // 90th
  int repeats = 0;
  int batch = 1;
};

inline double percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double at = share * static_cast<double>(values.size() - 1);
  const auto lower = static_cast<std::size_t>(at);
  const auto upper = std::min(lower + 1, values.size() - 1);
  return values[lower] + (at - static_cast<double>(lower)) * (values[upper] - values[lower]);
}

struct Budget {
  double seconds = 0.3;
  int repeats = 0;  // 0: as many as the seconds allow
};

// run(): one operation. barrier(). slowest(double*, n): each element becomes its maximum over the ranks, so that all ranks decide alike.
template <class Run, class Barrier, class Slowest>
Summary time_operation(const Budget& budget, Run run, Barrier barrier, Slowest slowest) {
  using Clock = std::chrono::steady_clock;
  const auto seconds_of = [&](int operations) {
    barrier();
    const auto start = Clock::now();
    for (int i = 0; i < operations; ++i) run();
    return std::chrono::duration<double>(Clock::now() - start).count() / operations;
  };
  run();  // faults pages in, fills caches, opens connections
  double each = 0;
  for (int tries = 1; tries <= kMaxBatch; tries *= 4) {
    each = seconds_of(tries);
    slowest(&each, 1);
    if (each * tries > kSampleSeconds) break;
  }
  each = std::max(each, 1e-9);
  Summary s;
  s.batch = std::clamp(static_cast<int>(kSampleSeconds / each), 1, kMaxBatch);
  const double wanted = budget.seconds / (each * s.batch);
  s.repeats = budget.repeats > 0 ? budget.repeats : static_cast<int>(std::clamp<double>(wanted, kLeastSamples, kMostSamples));
  std::vector<double> samples(static_cast<std::size_t>(s.repeats));
  for (double& sample : samples) sample = seconds_of(s.batch) * 1e6;
  slowest(samples.data(), samples.size());
  s.median_us = percentile(samples, 0.5);
  s.low_us = percentile(samples, 0.1);
  s.high_us = percentile(samples, 0.9);
  return s;
}

}  // namespace cohort::bench::measure
