// Payloads of codecs come from peers. The first byte says which codec, the second how the payload is cut; the rest is up to two payloads.
// Whatever the bytes: refused with Kind::corrupt before anything is written, or decoded to the elements asked for and no others.
#include <algorithm>
#include <array>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/codec/codec.h"

using namespace cohort;
using namespace cohort::codec;

namespace {

constexpr float kUntouched = 12345.0F;
constexpr std::size_t kGuard = 16;  // elements before and behind

const Codec& codec_of(unsigned char byte) {
  static const std::array<std::unique_ptr<Codec>, 22> codecs{make("fp16"),
                                                             make("bf16(sum=fp32)"),
                                                             make("int8"),
                                                             make("topk(ratio=0.05)"),
                                                             make("topk(ratio=0.5)"),
                                                             make("topk(ratio=1)"),
                                                             make("natural"),
                                                             make("qsgd"),
                                                             make("qsgd(levels=127)"),
                                                             make("terngrad"),
                                                             make("sign"),
                                                             make("onebit"),
                                                             make("sign_majority"),
                                                             make("randomk(ratio=0.1)"),
                                                             make("threshold(cap=0.3)"),
                                                             make("significant(cap=1)"),
                                                             make("powersgd(rank=1, min_rate=1)"),
                                                             make("powersgd(rank=3, min_rate=1)"),
                                                             make("dgc(ratio=0.1, warmup=4)"),
                                                             make("qsgd(elias=true)"),
                                                             make("qsgd(levels=127, elias=true)"),
                                                             make("sketch(ratio=0.05, width=2)")};
  return *codecs[byte % codecs.size()];
}

const Layout& layout_of(unsigned char byte) {
  static const std::array<Layout, 3> layouts{Layout{{{"a", 0, 4}}, 16}, Layout{{{"a", 0, 3}, {"b", 16, 40, {5, 8}}, {"c", 64, 1}}, 80},
                                             Layout{{{"a", 0, 700, {20, 7, 5}}, {"b", 704, 10}}, 720}};
  return layouts[(byte & 0x3f) % layouts.size()];
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* input, std::size_t size) {
  if (size < 2) return 0;
  const Codec& codec = codec_of(input[0]);
  const Layout& layout = layout_of(input[1]);
  const bool tail = (input[1] & 0x40) != 0 && layout.count > kBlock, two = (input[1] & 0x80) != 0;
  const ElementRange range = tail ? ElementRange{kBlock, layout.count - kBlock} : layout.all();
  const ElementRange keep = tail ? range : ElementRange{0, layout.tensors[0].count > kBlock ? kBlock : layout.tensors[0].count};
  const ConstBytes bytes = std::as_bytes(std::span(input + 2, size - 2));
  std::vector<ConstBytes> payloads{two ? bytes.first(bytes.size() / 2) : bytes};
  if (two) payloads.push_back(bytes.subspan(bytes.size() / 2));
  std::vector<float> memory(keep.count + 2 * kGuard, kUntouched);
  const auto untouched = [](float x) { return x == kUntouched; };
  try {
    codec.absorb({.layout = layout, .range = range, .keep = keep, .values = piece(std::span(memory)).part(kGuard, keep.count)}, payloads);
  } catch (const Failure& failure) {
    if (failure.kind() != Kind::corrupt || !std::all_of(memory.begin(), memory.end(), untouched)) __builtin_trap();
  }
  if (!std::all_of(memory.begin(), memory.begin() + kGuard, untouched)) __builtin_trap();
  if (!std::all_of(memory.end() - kGuard, memory.end(), untouched)) __builtin_trap();
  return 0;
}
