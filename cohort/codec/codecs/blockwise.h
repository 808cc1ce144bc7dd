// A codec whose blocks of at most kBlock elements know nothing of each other: a payload is the blocks of a range one after the other, each
// of as many bytes as its count says. So statistics are those of a block, and the sum that an owner encodes again (Mix::hops) has them,
// too.
#pragma once
#include "cohort/base/error.h"
#include "cohort/codec/blocks.h"
#include "cohort/codec/codec_row.h"
#include "cohort/codec/draws.h"
#include "cohort/codec/measure.h"

namespace cohort::codec {

// The random words of a block's elements.
struct Draws {
  const Source& source;
  const Block& block;
  using Words = std::array<std::uint32_t, kBlock>;
  void words(Words& out) const {  // a block starts at a multiple of four
    draw_words(source.random.of(source.layout.tensors[block.tensor].name), block.first, block.count, out.data());
  }
};

class Blockwise : public Codec {
 public:
  Mix mix() const override { return Mix::hops; }
  std::size_t bound(const Layout& layout, const Range& range) const override {
    std::size_t bytes = 0;
    for (const TensorPlace& tensor : layout.tensors) {
      const std::size_t count = tensor.range().overlap(range).count, rest = count % kBlock;
      bytes += count / kBlock * block_bytes(kBlock) + (rest > 0 ? block_bytes(rest) : 0);
    }
    return bytes;
  }

 private:
  virtual std::size_t block_bytes(std::size_t count) const = 0;
  virtual void encode_block(const float* x, std::size_t count, const Draws& draws, std::byte* to) const = 0;
  virtual bool is_block(const std::byte* from, std::size_t count) const = 0;  // whether encode_block() writes such
  virtual void decode_block(const std::byte* from, std::size_t count, float* x) const = 0;

  std::size_t write(const Source& source, Bytes out) const override {
    const auto* const values = static_cast<const float*>(source.values.data);
    std::byte* to = out.data();
    for_each_block(source.layout, source.range, [&](const Block& block) {
      encode_block(values + block.at, block.count, {source, block}, to);
      to += block_bytes(block.count);
    });
    return static_cast<std::size_t>(to - out.data());
  }
  void read(const Target& target, std::span<const ConstBytes> payloads) const override {
    for (const ConstBytes payload : payloads) check(target, payload);
    auto* const values = static_cast<float*>(target.values.data);
    std::size_t offset = 0;
    for_each_block(target.layout, target.range, [&](const Block& block) {
      const std::size_t here = offset;
      offset += block_bytes(block.count);
      if (block.at < target.keep.first || block.at >= target.keep.last()) return;
      const auto decode = [&](std::size_t k, float* x) { decode_block(payloads[k].data() + here, block.count, x); };
      add_payloads(payloads.size(), block.count, target.scale, decode, values + (block.at - target.keep.first));
    });
  }
  void check(const Target& target, ConstBytes payload) const {
    const std::size_t size = bound(target.layout, target.range);
    if (payload.size() != size) throw_failure(Kind::corrupt, "codec {}: a payload of {} bytes, not {}", spec(), payload.size(), size);
    std::size_t at = 0;
    for_each_block(target.layout, target.range, [&](const Block& block) {
      if (!is_block(payload.data() + at, block.count))
        throw_failure(Kind::corrupt, "codec {}: byte {} of a payload begins no block", spec(), at);
      at += block_bytes(block.count);
    });
  }
};

}  // namespace cohort::codec
