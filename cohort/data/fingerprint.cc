#include "cohort/data/fingerprint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "cohort/base/bytes.h"
#include "cohort/base/text.h"
#include "cohort/data/dataset.h"

namespace cohort::data {
namespace {

constexpr std::size_t kMostHashed = 256_MiB;  // in full: about a tenth of a second
constexpr std::size_t kBlock = 4_KiB;         // of what is larger, 2^16 blocks
constexpr std::int64_t kMostSamples = 32;     // that are fetched: a picture is decoded in milliseconds

constexpr std::uint64_t kMix[] = {0x9e3779b97f4a7c15ULL, 0xbf58476d1ce4e5b9ULL, 0x94d049bb133111ebULL, 0xd6e8feb86659fd93ULL};

std::uint64_t word_at(const std::uint8_t* at) {
  std::uint64_t word = 0;
  std::memcpy(&word, at, sizeof word);
  return word;
}

std::uint64_t finish(std::uint64_t x) {
  x = (x ^ (x >> 30)) * kMix[1];
  x = (x ^ (x >> 27)) * kMix[2];
  return x ^ (x >> 31);
}

// Four lanes, so that multiplications overlap.
std::uint64_t hash_all(std::span<const std::uint8_t> bytes, std::uint64_t seed) {
  std::uint64_t lanes[] = {seed ^ kMix[0], seed ^ kMix[1], seed ^ kMix[2], seed ^ kMix[3]};
  std::size_t at = 0;
  for (; at + 32 <= bytes.size(); at += 32)
    for (std::size_t i = 0; i < 4; ++i) lanes[i] = std::rotl((lanes[i] ^ word_at(bytes.data() + at + 8 * i)) * kMix[i], 29);
  std::uint64_t hash = bytes.size();
  for (; at < bytes.size(); ++at) hash = (hash ^ bytes[at]) * kMix[0];
  for (const std::uint64_t lane : lanes) hash = finish(hash ^ lane) * kMix[3];
  return finish(hash);
}

std::span<const std::uint8_t> bytes_at(const void* at, std::int64_t count) {
  return {static_cast<const std::uint8_t*>(at), static_cast<std::size_t>(count)};
}

std::uint64_t hash_sample(const Dataset& set, std::int64_t index, Scratch& scratch) {
  const Sample sample = set.sample(index, scratch);
  const Form& form = set.form();
  std::uint64_t hash = content_hash(bytes_at(sample.input, form.bytes()), static_cast<std::uint64_t>(index));
  if (form.targets > 0) return content_hash(bytes_at(sample.values, form.targets * std::int64_t{sizeof(float)}), hash);
  if (form.ids > 0) return content_hash(bytes_at(sample.ids, form.ids * std::int64_t{sizeof(std::int64_t)}), hash);
  if (form.next_tokens) return content_hash(bytes_at(sample.targets, form.labels()), hash);
  return finish(hash ^ static_cast<std::uint64_t>(sample.label) * kMix[0]);
}

}  // namespace

std::uint64_t content_hash(std::span<const std::uint8_t> bytes, std::uint64_t seed) {
  if (bytes.size() <= kMostHashed) return hash_all(bytes, seed);
  constexpr std::size_t kBlocks = kMostHashed / kBlock;
  const std::size_t stride = (bytes.size() - kBlock) / (kBlocks - 1);  // the last block ends within a stride of the end
  std::uint64_t hash = bytes.size() ^ seed;
  for (std::size_t i = 0; i < kBlocks; ++i) hash = hash_all(bytes.subspan(i * stride, kBlock), hash);
  return hash_all(bytes.last(kBlock), hash);
}

std::string hash_text(std::uint64_t hash) { return fmt::format("{:016x}", hash); }

// Names of files may be anything; a manifest is UTF-8.
std::string to_text(const Fingerprint& fingerprint) {
  std::string text;
  for (const auto& part : fingerprint) {
    text += part.value + '\t';
    for (const char c : part.what)
      text += c >= ' ' && c <= '~' ? std::string(1, c) : fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    text += '\n';
  }
  return text;
}

Fingerprint fingerprint_of_text(std::string_view text) {
  Fingerprint parts;
  for (const std::string_view line : split(text, '\n')) {
    const auto tab = line.find('\t');
    if (tab != line.npos) parts.push_back({std::string(line.substr(tab + 1)), std::string(line.substr(0, tab))});
  }
  return parts;
}

std::string samples_of(const Fingerprint& fingerprint) { return fingerprint.empty() ? "" : fingerprint.front().value; }

std::string difference(const Fingerprint& first, std::string_view where_first, const Fingerprint& other, std::string_view where_other) {
  for (std::size_t i = 0; i < std::max(first.size(), other.size()); ++i) {
    if (i < first.size() && i < other.size() && first[i] == other[i]) continue;
    const auto value = [&](const Fingerprint& f) { return i < f.size() ? f[i].value : std::string("missing"); };
    const std::string& what = i < first.size() ? first[i].what : other[i].what;
    const bool renamed = i < first.size() && i < other.size() && other[i].what != what;
    return fmt::format("{}: {} {} but {} {}{}", what, value(first), where_first, value(other), where_other,
                       renamed ? fmt::format(" ({})", other[i].what) : "");
  }
  return "";
}

Fingerprint form_fingerprint(const Dataset& set) {
  const Form& form = set.form();
  return {{"number of samples", fmt::format("{}", set.size())},
          {"form of a sample", fmt::format("{} of {}{}", name_of(form.input), fmt::join(form.shape, "x"),
                                           form.next_tokens   ? ", next tokens"
                                           : form.targets > 0 ? fmt::format(", {} targets", form.targets)
                                           : form.ids > 0     ? fmt::format(", {} labels of {} classes", form.ids, form.classes)
                                                              : fmt::format(", {} classes", form.classes))}};
}

FingerprintPart sampled_content(const Dataset& set) {
  const std::int64_t taken = std::min(set.size(), kMostSamples);
  Scratch scratch;
  std::uint64_t hash = 0;
  for (std::int64_t i = 0; i < taken; ++i) {
    const std::int64_t index = taken == 1 ? 0 : i * (set.size() - 1) / (taken - 1);  // the first and the last are among them
    const std::uint64_t one = hash_sample(set, index, scratch);
    if (one != hash_sample(set, index, scratch)) return {"content of " + set.where(index), "not the same each time it is read"};
    hash = finish(hash ^ one) * kMix[3];
  }
  return {fmt::format("content of {} samples from {} on", taken, set.where(0)), hash_text(hash)};
}

const Fingerprint& Dataset::fingerprint() const {
  std::call_once(fingerprint_made_, [this] {
    fingerprint_ = form_fingerprint(*this);
    for (auto& part : content()) fingerprint_.push_back(std::move(part));
  });
  return fingerprint_;
}

Fingerprint Dataset::content() const { return {sampled_content(*this)}; }

Fingerprint MemoryDataset::content() const {
  const auto hash = [](const auto& values) {
    return hash_text(content_hash(bytes_at(values.data(), static_cast<std::int64_t>(values.size() * sizeof values[0]))));
  };
  return {{fmt::format("content of {}", source_), fmt::format("{} bytes with hash {}", inputs_.size(), hash(inputs_))},
          {fmt::format("labels of {}", source_),
           fmt::format("{} with hash {}", labels_.size() + values_.size(), values_.empty() ? hash(labels_) : hash(values_))}};
}

}  // namespace cohort::data
