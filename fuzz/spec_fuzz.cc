// Spec strings come from command lines, files and peers. Whatever the bytes: parse refuses with Kind::usage or gives a Spec whose
// canonical text parses back to the same Spec; a schema refuses with Kind::usage or gives values that can be read.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "cohort/base/error.h"
#include "cohort/base/spec.h"

namespace {

using cohort::Spec;
using cohort::SpecParam;
using Type = SpecParam::Type;

const cohort::SpecSchema& schema() {
  static const cohort::SpecSchema one{"a",
                                      "every type",
                                      {{.name = "i", .type = Type::integer, .doc = "", .preset = "1", .low = -5, .high = 1e9},
                                       {.name = "r", .type = Type::real, .doc = "", .preset = "0.5", .low = 0},
                                       {.name = "b", .type = Type::boolean, .doc = "", .preset = "true"},
                                       {.name = "n", .type = Type::bytes, .doc = "", .preset = "1MiB"},
                                       {.name = "s", .type = Type::seconds, .doc = "", .preset = "2s"},
                                       {.name = "w", .type = Type::word, .doc = "", .preset = "x", .words = {"x", "yy"}},
                                       {.name = "t", .type = Type::text, .doc = "", .preset = ""},
                                       {.name = "p", .type = Type::spec, .doc = "", .preset = "ring"}}};
  return one;
}

void read_all(const cohort::SpecValues& v) {
  if (v.integer("i") < -5 || v.real("r") < 0 || v.seconds("s").count() < 0) std::abort();
  v.boolean("b");
  v.bytes("n");
  if (v.word("w") != "x" && v.word("w") != "yy") std::abort();
  v.text("t");
  v.spec("p");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto spec = Spec::parse({reinterpret_cast<const char*>(data), size});
    const auto text = spec.to_string();
    const auto again = Spec::parse(text);
    if (!(again == spec) || again.to_string() != text) std::abort();
    read_all(schema().read(spec));
  } catch (const cohort::Failure& failure) {
    if (failure.kind() != cohort::Kind::usage) std::abort();
  }
  return 0;
}
