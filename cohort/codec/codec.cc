#include "cohort/codec/codec.h"

#include <algorithm>

#include "cohort/base/error.h"
#include "cohort/base/registry.h"
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
  const std::size_t most = bound(source.layout, source.range);
  if (out.size() < most) throw_failure(Kind::bug, "codec {}: {} bytes for a payload of up to {}", spec_, out.size(), most);
  return write(source, out.first(most));
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

}  // namespace cohort::codec
