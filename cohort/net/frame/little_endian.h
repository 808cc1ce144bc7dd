// Little-endian integers, and messages made of them, written and read in order.
// Threads: values. Failure: Kind::corrupt from a ByteReader, before memory is allocated; the plain functions expect that the bytes are
// there.
#pragma once
#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/bytes.h"
#include "cohort/base/error.h"

namespace cohort::net {

template <std::unsigned_integral T>
constexpr void store_le(std::byte* at, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) at[i] = static_cast<std::byte>(value >> (8 * i));
}

template <std::unsigned_integral T>
constexpr T load_le(const std::byte* at) {
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) value = static_cast<T>(value | static_cast<T>(static_cast<T>(at[i]) << (8 * i)));
  return value;
}

class ByteWriter {
 public:
  template <std::unsigned_integral T>
  void number(T value) {
    const std::size_t at = bytes_.size();
    bytes_.resize(at + sizeof value);
    store_le(bytes_.data() + at, value);
  }
  void letters(std::string_view text) {  // without a length
    const auto raw = std::as_bytes(std::span(text));
    bytes_.insert(bytes_.end(), raw.begin(), raw.end());
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

class ByteReader {
 public:
  // what: "a queue message", for error messages.
  ByteReader(ConstBytes bytes, std::string_view what) : left_(bytes), what_(what) {}
  template <std::unsigned_integral T>
  T number() {
    return load_le<T>(take(sizeof(T)).data());
  }
  std::string letters(std::size_t n) {
    const ConstBytes raw = take(n);
    return {reinterpret_cast<const char*>(raw.data()), raw.size()};
  }
  std::size_t left() const { return left_.size(); }
  void end() const {
    if (!left_.empty()) throw_failure(Kind::corrupt, "{} has {} bytes too many", what_, left_.size());
  }

 private:
  ConstBytes take(std::size_t n) {
    if (n > left_.size()) throw_failure(Kind::corrupt, "{} ends {} bytes early", what_, n - left_.size());
    const ConstBytes taken = left_.first(n);
    left_ = left_.subspan(n);
    return taken;
  }
  ConstBytes left_;  // borrowed from the caller
  std::string_view what_;
};

}  // namespace cohort::net
