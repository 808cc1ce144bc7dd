// A row of the table of codecs (codecs/CMakeLists.txt): its name, its parameters, how to build it, and what docs/codecs.md says of it.
// Owner: the table. Threads: any, rows never change.
#pragma once
#include <memory>
#include <span>
#include <string_view>

#include "cohort/base/spec.h"
#include "cohort/codec/codec.h"

namespace cohort::codec {

struct CodecRow {
  std::string_view name;
  const SpecSchema& (*schema)();
  std::unique_ptr<Codec> (*make)(const SpecValues& values);
};

std::span<const CodecRow* const> codecs();
const CodecRow& codec_named(std::string_view name);  // Kind::usage with the known names

}  // namespace cohort::codec
