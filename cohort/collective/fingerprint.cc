#include "cohort/collective/fingerprint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace cohort::collective {
namespace {

std::uint64_t hash_text(std::uint64_t hash, std::string_view text) {
  while (text.size() >= 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data(), 8);
    hash = mix(hash, word);
    text.remove_prefix(8);
  }
  std::uint64_t tail = text.size();
  for (const char c : text) tail = tail << 8 | static_cast<unsigned char>(c);
  return mix(hash, tail);
}

template <std::size_t N>
std::string_view cut(const std::array<char, N>& text) {
  return {text.data(), strnlen(text.data(), N)};
}

template <std::size_t N>
void fill(std::array<char, N>& to, std::string_view text) {
  const auto n = std::min(text.size(), N);
  std::copy_n(text.data(), n, to.data());
  if (n < N) to[n] = '\0';
}

}  // namespace

void complete_fingerprint(Fingerprint& print, std::string_view name, std::string_view algorithm) {
  fill(print.name, name);
  fill(print.algorithm, algorithm);
  std::uint64_t hash = mix(static_cast<std::uint64_t>(print.collective) | static_cast<std::uint64_t>(print.dtype) << 8 |
                               static_cast<std::uint64_t>(print.op) << 16 | static_cast<std::uint64_t>(print.pieces) << 24 |
                               static_cast<std::uint64_t>(static_cast<std::uint32_t>(print.root)) << 32,
                           print.count);
  hash = mix(hash, print.layout);
  hash = mix(hash, print.number);
  if (!algorithm.empty()) hash = hash_text(hash, algorithm);
  hash = hash_text(hash, name);
  print.digest = hash == 0 ? 1 : hash;
}

std::uint64_t hash_of(std::span<const std::size_t> counts) {
  std::uint64_t hash = counts.size();
  for (const auto count : counts) hash = mix(hash, count);
  return hash;
}

std::string Fingerprint::text() const {
  std::string out{name_of(collective)};
  if (!cut(name).empty()) out += fmt::format(" '{}'", cut(name));
  const bool reduces = collective == Collective::all_reduce || collective == Collective::reduce_scatter || collective == Collective::reduce;
  if (collective != Collective::barrier && collective != Collective::split) out += fmt::format(" of {} {}", count, name_of(dtype));
  if (pieces > 1) out += fmt::format(" in {} pieces", pieces);
  if (reduces) out += fmt::format(", {}", name_of(op));
  if (root >= 0) out += fmt::format(", root {}", root);
  if (!cut(algorithm).empty()) out += fmt::format(", by {}", cut(algorithm));
  return out;
}

std::string disagreement(const Fingerprint& left, int left_rank, const Fingerprint& right, int right_rank) {
  auto a = left.text();
  auto b = right.text();
  if (a == b && left.number != right.number) {
    a += fmt::format(" as operation #{}", left.number);
    b += fmt::format(" as operation #{}", right.number);
  } else if (a == b) {
    a += " with other counts, scales or a longer name";
  }
  return fmt::format("rank {} called {}, but rank {} called {}; every rank must make the same call, nothing was moved", left_rank, a,
                     right_rank, b);
}

}  // namespace cohort::collective
