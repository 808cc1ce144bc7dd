// Integers as bytes, least significant first, whatever the host does.
// Threads: pure functions. Failure: none; the caller has checked that the bytes are there.
#pragma once
#include <concepts>
#include <cstddef>

#include "cohort/base/bytes.h"

namespace cohort::net {

template <std::unsigned_integral T>
constexpr void put_little(std::byte* at, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) at[i] = static_cast<std::byte>(value >> (8 * i));
}

template <std::unsigned_integral T>
constexpr T get_little(const std::byte* at) {
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) value = static_cast<T>(value | static_cast<T>(static_cast<T>(at[i]) << (8 * i)));
  return value;
}

}  // namespace cohort::net
