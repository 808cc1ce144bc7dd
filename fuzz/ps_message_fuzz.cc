// What workers and servers of ps tell each other. The first byte says what the rest is: a request, a reply, a definition of a table, which
// tensors are missing. Whatever the bytes: refused with Kind::corrupt, or read and written again to what reads the same.
#include <cstdlib>
#include <span>

#include "cohort/ps/message.h"

using namespace cohort;
using namespace cohort::ps;

namespace {

// NaN is not equal to itself, so bytes are compared.
template <class Decode>
void check_round_trip(ConstBytes bytes, const Decode& decode) {
  const auto once = encode(decode(bytes));
  if (encode(decode(ConstBytes(once))) != once) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* input, std::size_t size) {
  if (size == 0) return 0;
  const ConstBytes bytes = std::as_bytes(std::span(input + 1, size - 1));
  try {
    switch (input[0] % 4) {
      case 0: check_round_trip(bytes, decode_request); break;
      case 1: check_round_trip(bytes, decode_reply); break;
      case 2: check_round_trip(bytes, decode_definition); break;
      default:
        if (encode_missing(decode_missing(bytes, bytes.size() * 8)).size() != bytes.size()) std::abort();
        decode_missing(bytes, 13);
    }
  } catch (const Failure& failure) {
    if (failure.kind() != Kind::corrupt) std::abort();
  }
  return 0;
}
