// Borrowed memory. Whoever hands out a Bytes says until when it stays valid.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace cohort {

using Bytes = std::span<std::byte>;
using ConstBytes = std::span<const std::byte>;

inline constexpr std::size_t operator""_KiB(unsigned long long n) { return n << 10; }
inline constexpr std::size_t operator""_MiB(unsigned long long n) { return n << 20; }
inline constexpr std::size_t operator""_GiB(unsigned long long n) { return n << 30; }

template <class T>
ConstBytes bytes_of(const T& value) {
  return std::as_bytes(std::span<const T, 1>(&value, 1));
}
template <class T>
Bytes writable_bytes_of(T& value) {
  return std::as_writable_bytes(std::span<T, 1>(&value, 1));
}

inline constexpr std::size_t kCacheLine = 64;
inline constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t round_up(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }

}  // namespace cohort
