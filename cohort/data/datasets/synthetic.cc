// A set made from a seed, for tests and benchmarks on machines without data, and learnable, so that a loss that does not fall is a bug.
//   classify: every class has a mean image, uniform in 64..191 in blocks of 4 x 4 pixels; a sample is its class's mean plus uniform noise.
//   tokens:   next = (5 token + 7) mod classes, nine times out of ten; else uniform.
#include <algorithm>

#include "cohort/base/bytes.h"
#include "cohort/base/error.h"
#include "cohort/data/dataset.h"
#include "cohort/data/random.h"

namespace cohort::data {
namespace {

using Type = SpecParam::Type;
constexpr std::size_t kMostBytes = 16_GiB;
enum Stream : std::uint64_t { kMeans, kTrain, kTest };  // the splits share the means, never the noise

const SpecSchema& schema() {
  static const SpecSchema one{
      "synthetic",
      "a learnable set made from a seed",
      {{.name = "shape", .type = Type::text, .doc = "channels x height x width, or the context of tokens", .preset = "1x28x28"},
       {.name = "classes", .type = Type::integer, .doc = "classes, or the vocabulary of tokens", .preset = "10", .low = 1, .high = 256},
       {.name = "samples", .type = Type::integer, .doc = "how many", .preset = "10000", .low = 1, .high = 1e12},
       {.name = "seed", .type = Type::integer, .doc = "the same seed, the same set", .preset = "0", .low = 0},
       {.name = "split",
        .type = Type::word,
        .doc = "test: other samples of the same classes",
        .preset = "train",
        .words = {"train", "test"}},
       {.name = "noise", .type = Type::integer, .doc = "largest distance of a pixel from its mean", .preset = "64", .low = 0, .high = 127},
       {.name = "task",
        .type = Type::word,
        .doc = "images with labels, or tokens with next tokens",
        .preset = "classify",
        .words = {"classify", "tokens"}}}};
  return one;
}

std::vector<std::uint8_t> mean_image(const std::vector<std::int64_t>& shape, std::uint64_t seed, std::int64_t label) {
  std::vector<std::uint8_t> image;
  for (std::int64_t c = 0; c < shape[0]; ++c)
    for (std::int64_t y = 0; y < shape[1]; ++y)
      for (std::int64_t x = 0; x < shape[2]; ++x) {
        const auto block = static_cast<std::uint64_t>((c * shape[1] + y / 4) * shape[2] + x / 4);
        image.push_back(static_cast<std::uint8_t>(64 + Rng(seed, kMeans, static_cast<std::uint64_t>(label) << 40 | block).below(128)));
      }
  return image;
}

void add_image(std::vector<std::uint8_t>& out, const std::vector<std::uint8_t>& mean, std::int64_t noise, Rng rng) {
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < mean.size(); ++i) {
    if (i % 8 == 0) bits = rng.next();  // a byte of noise for each pixel
    const std::int64_t value = mean[i] + (static_cast<std::int64_t>(bits & 255) * (2 * noise + 1) / 256 - noise);
    out.push_back(static_cast<std::uint8_t>(std::clamp<std::int64_t>(value, 0, 255)));
    bits >>= 8;
  }
}

void add_tokens(std::vector<std::uint8_t>& out, std::int64_t count, std::uint64_t vocabulary, Rng rng) {
  std::uint64_t token = rng.below(vocabulary);
  for (std::int64_t i = 0; i < count; ++i) {
    out.push_back(static_cast<std::uint8_t>(token));
    token = rng.below(10) == 0 ? rng.below(vocabulary) : (5 * token + 7) % vocabulary;
  }
}

std::shared_ptr<const Dataset> open(const SpecValues& v) {
  const bool tokens = v.word("task") == "tokens";
  const auto seed = static_cast<std::uint64_t>(v.integer("seed"));
  const std::uint64_t stream = v.word("split") == "train" ? kTrain : kTest;
  const std::int64_t samples = v.integer("samples");
  Form form{.shape = parse_shape(v.text("shape"), tokens ? 1 : 3), .classes = v.integer("classes"), .next_tokens = tokens};
  if (tokens) form.input = Input::tokens, form.vocabulary = form.classes;
  const std::int64_t each = form.elements() + (tokens ? 1 : 0);
  if (static_cast<std::size_t>(samples) > kMostBytes / static_cast<std::size_t>(each)) {
    throw_failure(Kind::usage, "synthetic: {} samples of {} bytes are more than {} bytes; ask for fewer samples=", samples, each,
                  kMostBytes);
  }
  std::vector<std::vector<std::uint8_t>> means;
  for (std::int64_t label = 0; label < form.classes && !tokens; ++label) means.push_back(mean_image(form.shape, seed, label));
  std::vector<std::uint8_t> inputs;
  inputs.reserve(static_cast<std::size_t>(samples * each));
  std::vector<std::int64_t> labels(static_cast<std::size_t>(samples));
  for (std::int64_t i = 0; i < samples; ++i) {
    const Rng rng(seed, stream, static_cast<std::uint64_t>(i));
    const std::int64_t label = tokens ? 0 : i % form.classes;
    labels[static_cast<std::size_t>(i)] = label;
    if (tokens) add_tokens(inputs, each, static_cast<std::uint64_t>(form.vocabulary), rng);
    if (!tokens) add_image(inputs, means[static_cast<std::size_t>(label)], v.integer("noise"), rng);
  }
  return std::make_shared<MemoryDataset>(std::move(form), "synthetic", std::move(inputs), std::move(labels));
}

}  // namespace

extern const DatasetKind row_synthetic{.name = "synthetic", .about = "a learnable set made from a seed", .schema = schema, .open = open};

}  // namespace cohort::data
