// A codec whose blocks of at most kBlock elements know nothing of each other: a payload is the blocks of a range one after the other, each
// of as many bytes as its count says, at most where a codec is variable(). So statistics are those of a block, and the sum that an
// owner encodes again (Mix::hops) has them, too.
#pragma once
#include <utility>
#include <vector>

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

 protected:
  // variable(): the bytes that encode_block() wrote, or that begin there and are a block; 0: none is.
  virtual std::size_t block_length(ConstBytes from, std::size_t count) const {
    const std::size_t bytes = block_bytes(count);
    return bytes <= from.size() && is_block(from.data(), count) ? bytes : 0;
  }

 private:
  virtual std::size_t block_bytes(std::size_t count) const = 0;  // at most, where the codec is variable()
  virtual void encode_block(const float* x, std::size_t count, const Draws& draws, std::byte* to) const = 0;
  virtual bool is_block(const std::byte* from, std::size_t count) const = 0;  // whether encode_block() writes such
  virtual void decode_block(const std::byte* from, std::size_t count, float* x) const = 0;

  std::size_t write(const Source& source, Bytes out) const override {
    const auto* const values = static_cast<const float*>(source.values.data);
    std::byte* to = out.data();
    for_each_block(source.layout, source.range, [&](const Block& block) {
      encode_block(values + block.at, block.count, {source, block}, to);
      to += variable() ? block_length({to, block_bytes(block.count)}, block.count) : block_bytes(block.count);
    });
    return static_cast<std::size_t>(to - out.data());
  }
  void read(const Target& target, std::span<const ConstBytes> payloads) const override {
    std::vector<Starts> starts;
    for (const ConstBytes payload : payloads) starts.push_back(variable() ? parsed(target, payload) : checked(target, payload));
    auto* const values = static_cast<float*>(target.values.data);
    std::size_t offset = 0, number = 0;
    for_each_block(target.layout, target.range, [&](const Block& block) {
      const std::size_t here = std::exchange(offset, offset + block_bytes(block.count)), which = number++;
      if (block.at < target.keep.first || block.at >= target.keep.last()) return;
      const auto decode = [&](std::size_t k, float* x) {
        decode_block(payloads[k].data() + (starts[k].empty() ? here : starts[k][which]), block.count, x);
      };
      add_payloads(payloads.size(), block.count, target.scale, decode, values + (block.at - target.keep.first));
    });
  }
  using Starts = std::vector<std::size_t>;  // of blocks; none: they follow from their counts
  Starts parsed(const Target& target, ConstBytes payload) const {
    Starts starts;
    std::size_t at = 0;
    for_each_block(target.layout, target.range, [&](const Block& block) {
      const std::size_t bytes = block_length(payload.subspan(at), block.count);
      if (bytes == 0) throw_failure(Kind::corrupt, "codec {}: byte {} of a payload of {} begins no block", spec(), at, payload.size());
      starts.push_back(std::exchange(at, at + bytes));
    });
    for (; at < payload.size(); ++at)
      if (payload[at] != std::byte{0}) throw_failure(Kind::corrupt, "codec {}: byte {} of a payload is behind its end", spec(), at);
    return starts;
  }
  Starts checked(const Target& target, ConstBytes payload) const {
    const std::size_t size = bound(target.layout, target.range);
    if (payload.size() != size) throw_failure(Kind::corrupt, "codec {}: a payload of {} bytes, not {}", spec(), payload.size(), size);
    std::size_t at = 0;
    for_each_block(target.layout, target.range, [&](const Block& block) {
      if (!is_block(payload.data() + at, block.count))
        throw_failure(Kind::corrupt, "codec {}: byte {} of a payload begins no block", spec(), at);
      at += block_bytes(block.count);
    });
    return {};
  }
};

}  // namespace cohort::codec
