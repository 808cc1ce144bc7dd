// Configuration files and overrides. Whatever the bytes: refused with Kind::usage, or every value lies in its range and the effective
// file reads back to the same values. The input is YAML up to the first zero byte, then overrides, one a line.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "cohort/base/config.h"
#include "cohort/base/error.h"
#include "cohort/base/text.h"

namespace {

using namespace cohort;

struct Inner {
  int cores = 0;
  std::string policy = "auto";
};
void fields(Inner& c, FieldList& f) {
  f("cores", c.cores, Range{0, 64}, "a number");
  f("policy", c.policy, Words{"auto", "no", "core"}, "a word");
}
enum class Mode { one, two };
struct Values {
  int n = 1;
  double rate = 0.1;
  bool tag = true;
  std::string label;
  Seconds timeout{300};
  ByteSize chunk{4096};
  Mode mode = Mode::one;
  Inner bind;
  std::vector<ByteSize> sizes;
  std::vector<std::string> names;
};
void fields(Values& c, FieldList& f) {
  f("n", c.n, Range{1, 4096}, "");
  f("rate", c.rate, "");
  f("tag", c.tag, "");
  f("label", c.label, "");
  f("timeout", c.timeout, "");
  f("chunk", c.chunk, Range{1, 1e12}, "");
  f("mode", c.mode, Words{"one", "two"}, "");
  f("bind", c.bind, "");
  f("sizes", c.sizes, "");
  f("names", c.names, "");
}

void check(const Config& config, const Values& values) {
  if (values.n < 1 || values.n > 4096 || values.bind.cores < 0 || values.bind.cores > 64 || values.chunk < 1) std::abort();
  Values again;
  Config reread(again);
  try {
    reread.read_yaml(config.yaml(), "effective.yaml");
  } catch (const Failure&) {
    std::abort();
  }
  if (reread.yaml().size() < 10 || again.n != values.n || again.rate != values.rate || again.timeout != values.timeout) std::abort();
  if (again.chunk != values.chunk || again.mode != values.mode || again.bind.policy != values.bind.policy) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const auto yaml = input.substr(0, input.find('\0'));
  Values values;
  Config config(values);
  try {
    config.read_yaml(yaml, "input.yaml");
    if (yaml.size() < input.size())
      for (const auto line : split(input.substr(yaml.size() + 1), '\n')) config.set(line);
    check(config, values);
  } catch (const Failure& failure) {
    if (failure.kind() != Kind::usage) std::abort();
  }
  return 0;
}
