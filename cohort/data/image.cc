#include "cohort/data/image.h"

#include <algorithm>
#include <cmath>

#include "cohort/base/error.h"
#include "cohort/base/registry.h"
#include "cohort/data/decoders_rows.inc"
#include "cohort/data/limits.h"

namespace cohort::data {
namespace {

struct Tap {  // out = (1 - part) in[low] + part in[high]
  std::size_t low, high;
  float part;
};

std::vector<Tap> taps(std::int64_t in, std::int64_t out) {
  std::vector<Tap> all;
  for (std::int64_t i = 0; i < out; ++i) {
    const double at = std::clamp((static_cast<double>(i) + 0.5) * static_cast<double>(in) / static_cast<double>(out) - 0.5, 0.0,
                                 static_cast<double>(in - 1));
    const auto low = static_cast<std::int64_t>(std::floor(at));
    all.push_back({static_cast<std::size_t>(low), static_cast<std::size_t>(std::min(low + 1, in - 1)),
                   static_cast<float>(at - static_cast<double>(low))});
  }
  return all;
}

}  // namespace

std::span<const Decoder* const> decoder_rows() { return kDecodersRows; }

void check_pixels(std::int64_t height, std::int64_t width, std::string_view where) {
  const std::int64_t most = input_limits().max_pixels;
  if (width > 0 && height > most / width)
    throw_failure(Kind::corrupt, "{}: {} x {} pixels are more than data.max_pixels={}; raise it if the file can be trusted", where, width,
                  height, most);
}

Image decode_image(std::string_view file, std::int64_t channels, std::string_view where) {
  for (const Decoder* row : decoder_rows())
    if (file.starts_with(row->magic)) return row->decode(file, channels, where);
  throw_failure(
      Kind::corrupt,
      "{}: starts with '{}' at byte 0, no picture this build can read (it reads: {}); convert it, or build with libjpeg-dev and libpng-dev",
      where, printable(file.substr(0, 8)), join(row_names(decoder_rows()), ", "));
}

std::vector<std::uint8_t> resize_planar(const Image& image, std::int64_t height, std::int64_t width) {
  const auto rows = taps(image.height, height);
  const auto columns = taps(image.width, width);
  const auto channels = static_cast<std::size_t>(image.channels);
  const std::size_t stride = static_cast<std::size_t>(image.width) * channels;
  std::vector<std::uint8_t> out(channels * rows.size() * columns.size());
  std::uint8_t* to = out.data();
  for (std::size_t c = 0; c < channels; ++c) {
    for (const Tap& y : rows) {
      const std::uint8_t* upper = image.pixels.data() + y.low * stride + c;
      const std::uint8_t* lower = image.pixels.data() + y.high * stride + c;
      for (const Tap& x : columns) {
        const auto across = [&](const std::uint8_t* row) {
          return static_cast<float>(row[x.low * channels]) * (1 - x.part) + static_cast<float>(row[x.high * channels]) * x.part;
        };
        *to++ = static_cast<std::uint8_t>(std::lround(across(upper) * (1 - y.part) + across(lower) * y.part));
      }
    }
  }
  return out;
}

}  // namespace cohort::data
