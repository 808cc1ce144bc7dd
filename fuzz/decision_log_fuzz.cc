// The coordinator's log as it may be on a disk, and single entries. The first byte says which of the two the rest is.
// Whatever the bytes: refused with Kind::corrupt, or entries that make the very same bytes again as far as they count.
#include <algorithm>

#include "cohort/base/error.h"
#include "cohort/elastic/decision_log.h"

using namespace cohort;
using namespace cohort::elastic;

namespace {

void entry(ConstBytes bytes) {
  if (!std::ranges::equal(bytes, encode(decode_entry(bytes)))) __builtin_trap();
}

void log(ConstBytes bytes) {
  const LogContent content = decode_log(bytes, "a log");
  if (content.whole > bytes.size()) __builtin_trap();
  const LogContent again = decode_log(bytes.first(content.whole), "its good part");
  if (again.entries != content.entries || again.frames != content.frames || again.whole != content.whole) __builtin_trap();
  replay(content.entries);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* input, std::size_t size) {
  if (size == 0) return 0;
  const ConstBytes bytes = std::as_bytes(std::span(input + 1, size - 1));
  try {
    (input[0] & 1) != 0 ? log(bytes) : entry(bytes);
  } catch (const Failure& f) {
    if (f.kind() != Kind::corrupt) __builtin_trap();
  }
  return 0;
}
