#include "cohort/codec/codec.h"

#include <algorithm>

#include "cohort/base/error.h"
#include "cohort/base/registry.h"
#include "cohort/base/text.h"
#include "cohort/codec/codec_row.h"
#include "cohort/codec/codecs_rows.inc"

namespace cohort::codec {
namespace {

void check_values(const std::string& spec, const Piece& values, std::size_t count) {
  if (values.dtype != Dtype::f32 || values.device.kind != DeviceKind::cpu)
    throw_failure(Kind::usage, "codec {}: it takes f32 in memory of the CPU, not {}; send these gradients without a codec", spec,
                  values.dtype == Dtype::f32 ? "memory of a GPU" : name_of(values.dtype));
  if (values.count != count) throw_failure(Kind::bug, "codec {}: {} elements where {} are asked for", spec, values.count, count);
  if (values.data == nullptr && count > 0) throw_failure(Kind::bug, "codec {}: null pointer with {} elements", spec, count);
}

// At a tensor's start or end, between tensors, or whole blocks behind a start.
bool may_cut(const Layout& layout, std::size_t at) {
  return std::none_of(layout.tensors.begin(), layout.tensors.end(),
                      [&](const TensorPlace& t) { return t.first < at && at < t.first + t.count && (at - t.first) % kBlock != 0; });
}

void check_range(const std::string& spec, const Layout& layout, const Range& range, const Range& whole) {
  if (range.first < whole.first || range.last() > whole.last() || range.last() < range.first)
    throw_failure(Kind::bug, "codec {}: elements {} .. {} of {} .. {}", spec, range.first, range.last(), whole.first, whole.last());
  if (!may_cut(layout, range.first) || !may_cut(layout, range.last()))
    throw_failure(Kind::bug, "codec {}: elements {} .. {} cut a tensor elsewhere than after whole blocks of {}", spec, range.first,
                  range.last(), kBlock);
}

// The parameters as numbers read back: 1e-2 and 0.01 are one codec.
std::string spelled_out(const SpecSchema& schema, const Spec& given) {
  Spec full;
  full.name = given.name;
  for (const SpecParam& p : schema.params()) {
    const Spec::Param* own = given.find(p.name);
    std::string value = own != nullptr ? own->value : p.preset.value_or("");
    if (p.type == SpecParam::Type::real) value = fmt::format("{}", parse_real(value));
    full.params.push_back({p.name, value, false});
  }
  return full.to_string();
}

}  // namespace

std::string_view name_of(Mix mix) { return mix == Mix::add ? "add" : mix == Mix::gather ? "gather" : "hops"; }

std::size_t Codec::encode(const Source& source, Bytes out) const {
  check_values(spec_, source.values, source.layout.count);
  check_range(spec_, source.layout, source.range, source.layout.all());
  const bool all = source.round < 0 || rounds() == 1;
  const std::size_t most = all ? bound(source.layout, source.range) : round_bytes(source.round, source.layout, source.range);
  if (out.size() < most) throw_failure(Kind::bug, "codec {}: {} bytes for a payload of up to {}", spec_, out.size(), most);
  if (source.round >= 0 || rounds() == 1) return write(source, out.first(most));
  std::size_t used = 0;
  for (Source part = source; ++part.round < rounds();) {
    part.before = out.first(used);
    used += write(part, out.subspan(used, round_bytes(part.round, source.layout, source.range)));
  }
  return used;
}

void Codec::absorb(const Target& target, std::span<const ConstBytes> payloads) const {
  check_values(spec_, target.values, target.keep.count);
  check_range(spec_, target.layout, target.range, target.layout.all());
  check_range(spec_, target.layout, target.keep, target.range);
  const std::size_t most = bound(target.layout, target.range);
  for (const ConstBytes payload : payloads)
    if (payload.size() > most)
      throw_failure(Kind::corrupt, "codec {}: a payload of {} bytes, where {} are the most", spec_, payload.size(), most);
  read(target, payloads);
}

std::span<const CodecRow* const> codecs() { return kCodecsRows; }
const CodecRow& codec_named(std::string_view name) { return find_row(codecs(), name, "codec"); }

std::unique_ptr<Codec> make(std::string_view text) {
  const Spec spec = Spec::parse(text);
  const CodecRow& row = codec_named(spec.name);
  auto codec = row.make(row.schema().read(spec));
  codec->spec_ = spelled_out(row.schema(), spec);
  return codec;
}

void check_optimizer(const Codec& codec, std::string_view optimizer) {
  if (!codec.momentum()) return;
  const Spec spec = Spec::parse(optimizer);
  const Spec::Param* momentum = spec.find("momentum");
  if (spec.name == "sgd" && (momentum == nullptr || parse_real(momentum->value) == 0)) return;
  throw_failure(Kind::usage,
                "codec={} with optimizer={}: the codec keeps the momentum itself, on every rank's own gradients, and a second one, or a "
                "rule that divides by the size of what came, would act on what is sent late; take optimizer=sgd(momentum=0)",
                codec.spec(), optimizer);
}

std::size_t memory_of(const Codec& codec, const TensorPlace& tensor) {
  const Shape shape = codec.memory(tensor);
  std::size_t count = shape.empty() ? 0 : 1;
  for (const std::int64_t size : shape) count *= static_cast<std::size_t>(size);
  return count;
}

}  // namespace cohort::codec
