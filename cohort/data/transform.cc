#include "cohort/data/transform.h"

#include <cstring>

#include "cohort/base/error.h"
#include "cohort/base/registry.h"
#include "cohort/data/transforms_rows.inc"
#include "cohort/data/warp.h"

namespace cohort::data {
namespace {

// Specs between commas, but not the commas within parentheses or quotes.
std::vector<std::string_view> split_specs(std::string_view list) {
  std::vector<std::string_view> specs;
  std::size_t from = 0;
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const char c = list[i];
    if (quoted && c == '\\') ++i;
    if (c == '"') quoted = !quoted;
    if (quoted) continue;
    if (c == '(') ++depth;
    if (c == ')') --depth;
    if (c == ',' && depth == 0) {
      specs.push_back(list.substr(from, i - from));
      from = i + 1;
    }
  }
  if (!trim(list).empty()) specs.push_back(list.substr(from));
  return specs;
}

}  // namespace

std::span<const TransformKind* const> transform_rows() { return kTransformsRows; }

Transforms Transforms::parse(std::string_view list, const Dataset& training) {
  Transforms all;
  for (const std::string_view text : split_specs(list)) {
    const Spec spec = Spec::parse(text);
    const TransformKind& kind = find_row(transform_rows(), spec.name, "transform");
    const Input input = training.form().input;
    if (input != Input::pixels && !(input == Input::floats && kind.floats))
      throw_failure(Kind::usage, "'{}' is for images, this data set has {}; leave it out", spec.name, name_of(input));
    if (all.scaling_)
      throw_failure(Kind::usage, "'{}' comes after {}, which must stand last and once: black is zero only before it", spec.name,
                    all.scaling_->text());
    auto made = kind.make(kind.schema().read(spec), training);
    all.scale_ = made->scale();
    all.scale_ ? all.scaling_ = std::move(made) : all.random_.emplace_back(std::move(made));
  }
  return all;
}

Transforms Transforms::for_evaluation() const {
  Transforms still = *this;
  still.random_.clear();
  return still;
}

std::string Transforms::text() const {
  std::string all;
  for (const auto& one : random_) all += (all.empty() ? "" : ", ") + one->text();
  if (scaling_) all += (all.empty() ? "" : ", ") + scaling_->text();
  return all;
}

namespace {

void warp_channel(const std::uint8_t* in, float* out, const ImageShape& shape, const Affine& map, Scaling scaling,
                  TransformScratch& transform_scratch) {
  for (auto& image : transform_scratch.images) image.resize(static_cast<std::size_t>(shape.plane()));
  scale_pixels(in, transform_scratch.images[0].data(), shape.plane(), {});
  warp(transform_scratch.images[0].data(), transform_scratch.images[1].data(), {1, shape.height, shape.width}, map);
  scale_pixels(transform_scratch.images[1].data(), out, shape.plane(), scaling);
}

}  // namespace

void Transforms::make(const std::uint8_t* pixels, float* out, const ImageShape& shape, Rng rng, TransformScratch& transform_scratch) const {
  constexpr Scaling kToUnit{.times = 1.0F / 255};
  Affine map;
  for (const auto& one : random_) map = map * one->map(rng);
  for (std::size_t c = 0; c < static_cast<std::size_t>(shape.channels); ++c, pixels += shape.plane(), out += shape.plane()) {
    const Scaling scaling = scale_ ? Scaling{scale_->times[c], scale_->plus[c]} : kToUnit;
    if (map == Affine{})
      scale_pixels(pixels, out, shape.plane(), scaling);
    else
      warp_channel(pixels, out, shape, map, scaling, transform_scratch);
  }
}

void Transforms::make_floats(const std::uint8_t* values, float* out, std::span<const std::int64_t> shape) const {
  std::size_t each = 1;  // values of one entry of the first size
  for (const std::int64_t n : shape.subspan(1)) each *= static_cast<std::size_t>(n);
  const auto features = static_cast<std::size_t>(shape[0]);
  std::memcpy(out, values, features * each * sizeof(float));
  if (!scale_) return;
  for (std::size_t f = 0; f < features; ++f)
    for (std::size_t i = 0; i < each; ++i, ++out) *out = (*out - scale_->minus[f]) * scale_->times[f];
}

}  // namespace cohort::data
