// Control messages between an elastic worker and its coordinator. The first two bytes are the frame's type.
// Whatever the bytes: refused with Kind::corrupt, or a value that makes the very same bytes again.
#include <algorithm>

#include "cohort/base/error.h"
#include "cohort/elastic/control_messages.h"

using namespace cohort;
using namespace cohort::elastic;

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* input, std::size_t size) {
  if (size < 2) return 0;
  const auto bytes = std::as_bytes(std::span(input + 2, size - 2));
  const net::Frame frame{static_cast<std::uint16_t>(input[0] << 8 | input[1]), {bytes.begin(), bytes.end()}};
  try {
    const net::Frame again = frame.type < kSealEpochFrame ? encode_event(decode_event(frame, 1)) : encode_action(decode_action(frame));
    if (again.type != frame.type || again.body != frame.body) __builtin_trap();
  } catch (const Failure& f) {
    if (f.kind() != Kind::corrupt) __builtin_trap();
  }
  return 0;
}
