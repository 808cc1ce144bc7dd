// An unauthenticated peer, or a false listener: the first byte says which side we are, the rest is what the other one sends. It does not
// know the secret, so it must never authenticate, must get no text, and must make us allocate nothing. It may replay an overheard opening,
// which carries a valid proof.
#include <algorithm>
#include <array>
#include <cstring>

#include "cohort/net/auth/handshake.h"
#include "cohort/net/crypto/crypto.h"

using namespace cohort;
using namespace cohort::net;

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* input, std::size_t size) {
  if (size == 0) return 0;
  const std::array<std::byte, 32> key{std::byte{1}};
  const bool dialer = (input[0] & 1) != 0;
  const std::size_t piece = std::size_t{1} << (input[0] >> 1 & 15);
  Nonce nonce{};
  nonce[0] = std::byte{2};
  Handshake us(dialer ? Handshake::Side::dialer : Handshake::Side::listener, Secret::from_bytes(key),
               {"fuzz", Epoch{1}, Rank{0}, Role::worker}, {}, nonce);
  std::size_t sent = us.to_send().size();
  us.sent(sent);
  ConstBytes bytes = std::as_bytes(std::span(input + 1, size - 1));
  if (!dialer && (input[0] & 32) != 0) {
    const Digest proof = hmac(key, {as_bytes("cohort 1 opening"), ConstBytes(nonce).first(16)});
    Nonce theirs = nonce;
    std::copy_n(proof.begin(), 16, theirs.begin() + 16);
    Handshake overheard(Handshake::Side::dialer, Secret::from_bytes(key), {"fuzz", Epoch{1}, Rank{1}, Role::worker}, {}, theirs);
    std::copy(overheard.to_send().begin(), overheard.to_send().end(), us.space().begin());
    us.advance(Handshake::kOpening);
    if (!us.proof_seen()) __builtin_trap();
    sent += us.to_send().size();
    us.sent(us.to_send().size());
  }
  while (!bytes.empty() && !us.space().empty()) {
    const Bytes space = us.space();
    const std::size_t n = std::min({piece, bytes.size(), space.size()});
    std::memcpy(space.data(), bytes.data(), n);
    us.advance(n);
    sent += us.to_send().size();
    us.sent(us.to_send().size());
    bytes = bytes.subspan(n);
  }
  if (us.done()) __builtin_trap();
  // A listener sends its opening and nothing more; a dialer its opening and one claim.
  if (sent > Handshake::kOpening + (dialer ? Handshake::kClaim : 0)) __builtin_trap();
  if (us.failure() && us.failure()->kind != Kind::corrupt) __builtin_trap();
  return 0;
}
