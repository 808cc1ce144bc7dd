// For tests of kernels: runs of elements that are here and on the first GPU.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "cohort/cuda/runtime.h"

namespace cohort {

inline constexpr Device kGpu{DeviceKind::cuda, 0};

template <class T>
std::vector<T> noise(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<T> values(count);
  for (T& x : values) x = static_cast<T>(normal(random));
  return values;
}

// A copy on the GPU; skew: elements by which it lies behind a boundary.
template <class T>
class OnGpu {
 public:
  explicit OnGpu(const std::vector<T>& values, std::size_t skew = 0)
      : memory_(cuda::allocate((values.size() + skew) * sizeof(T), kGpu)), skew_(skew), count_(values.size()) {
    cuda::copy(data(), values.data(), count_ * sizeof(T), kGpu);
    cuda::synchronize(kGpu);
  }
  T* data() const { return static_cast<T*>(memory_.get()) + skew_; }
  Piece piece() const { return {data(), count_, kDtypeOf<T>, kGpu}; }
  std::vector<T> values() const {
    std::vector<T> all(count_);
    cuda::copy(all.data(), data(), count_ * sizeof(T), kGpu);
    cuda::synchronize(kGpu);
    return all;
  }

 private:
  std::shared_ptr<void> memory_;
  std::size_t skew_, count_;
};

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

}  // namespace cohort
