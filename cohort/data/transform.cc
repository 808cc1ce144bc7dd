#include "cohort/data/transform.h"

#include "cohort/base/error.h"
#include "cohort/base/registry.h"
#include "cohort/data/transforms_rows.inc"

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
    if (training.form().input != Input::pixels)
      throw_failure(Kind::usage, "'{}' is for images, this data set has tokens; leave it out", spec.name);
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

void Transforms::make(const std::uint8_t* pixels, float* out, const ImageShape& shape, Dice dice, Workbench& bench) const {
  constexpr float kToUnit = 1.0F / 255;
  Affine map;
  for (const auto& one : random_) map = map * one->map(dice);
  const float* changed = nullptr;  // null: still the bytes
  if (map != Affine{}) {
    for (auto& image : bench.images) image.resize(static_cast<std::size_t>(shape.elements()));
    scale_pixels(pixels, bench.images[0].data(), shape.elements(), 1, 0);
    warp(bench.images[0].data(), bench.images[1].data(), shape, map);
    changed = bench.images[1].data();
  }
  for (std::int64_t c = 0; c < shape.channels; ++c) {
    const float times = scale_ ? scale_->times[static_cast<std::size_t>(c)] : kToUnit;
    const float plus = scale_ ? scale_->plus[static_cast<std::size_t>(c)] : 0;
    const std::int64_t at = c * shape.plane();
    if (changed != nullptr) scale_pixels(changed + at, out + at, shape.plane(), times, plus);
    if (changed == nullptr) scale_pixels(pixels + at, out + at, shape.plane(), times, plus);
  }
}

}  // namespace cohort::data
