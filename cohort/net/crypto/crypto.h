// The few cryptographic functions of this module, all from OpenSSL: HMAC-SHA256, HKDF-SHA256, constant-time compare, random bytes.
// Threads: pure functions, any. Failure: Kind::system when OpenSSL or the kernel refuses. Keys wipe themselves.
#pragma once
#include <array>
#include <cstddef>
#include <initializer_list>
#include <string_view>

#include "cohort/base/bytes.h"

namespace cohort::net {

inline constexpr std::size_t kDigestBytes = 32;
using Digest = std::array<std::byte, kDigestBytes>;

class Key {
 public:
  Key() = default;
  ~Key();
  Key(const Key&) = default;
  Key& operator=(const Key&) = default;
  ConstBytes bytes() const { return bytes_; }
  Bytes bytes() { return bytes_; }

 private:
  Digest bytes_{};
};

// HMAC over the concatenated parts. The caller makes sure that no other split into parts gives the same bytes.
Digest hmac(ConstBytes key, std::initializer_list<ConstBytes> parts);
// RFC 5869, extract and expand.
void hkdf(ConstBytes salt, ConstBytes secret, ConstBytes info, Bytes out);
bool same_digest(ConstBytes a, ConstBytes b);  // in constant time
void random_bytes(Bytes out);

inline ConstBytes as_bytes(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }

}  // namespace cohort::net
