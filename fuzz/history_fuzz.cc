// Lines of a history, as chaos runs write them. Whatever the bytes: refused with Kind::corrupt, or lines that round-trip and can be
// checked.
#include "cohort/base/error.h"
#include "cohort/elastic/history.h"

using namespace cohort;
using namespace cohort::elastic;

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* input, std::size_t size) {
  try {
    const auto lines = decode_history({reinterpret_cast<const char*>(input), size}, "a history");
    for (HistoryLine line : lines) {
      if (line.of == 0) {  // without a data set its other numbers mean nothing and are not written
        line.data_epoch = line.first = line.total = 0;
        line.samples.clear();
      }
      if (decode_line(encode_line(line)) != line) __builtin_trap();
    }
    judge(lines);
  } catch (const Failure& f) {
    if (f.kind() != Kind::corrupt) __builtin_trap();
  }
  return 0;
}
