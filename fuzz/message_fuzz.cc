// Messages between ranks and rank 0 in a negotiated queue. The first byte says whether the rest is a request or a response.
// Whatever the bytes: refused with Kind::corrupt, or a value that encodes and decodes to itself.
#include "cohort/base/error.h"
#include "cohort/queue/message.h"

using namespace cohort;
using namespace cohort::queue;

namespace {

template <class Decode>
void read(ConstBytes bytes, Decode decode) {
  const auto once = encode(decode(bytes));
  if (once.size() != bytes.size()) __builtin_trap();  // a flag may have been any byte but zero; nothing else may differ
  if (encode(decode(once)) != once) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* input, std::size_t size) {
  if (size == 0) return 0;
  const ConstBytes bytes = std::as_bytes(std::span(input + 1, size - 1));
  try {
    (input[0] & 1) != 0 ? read(bytes, decode_response) : read(bytes, decode_request);
  } catch (const Failure& f) {
    if (f.kind() != Kind::corrupt) __builtin_trap();
  }
  return 0;
}
