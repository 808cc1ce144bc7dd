#include "cohort/plan/recompute_choice.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <numeric>

#include "cohort/base/error.h"
#include "cohort/base/text.h"

namespace cohort {
namespace {

std::vector<std::string> listed(std::string_view text) {
  std::vector<std::string> list;
  for (const auto part : split(text, ',')) list.emplace_back(trim(part));
  return list;
}

std::size_t saved_by(const BlockBytes& block) { return block.kept > block.output ? block.kept - block.output : 0; }

std::vector<bool> named(const std::vector<std::string>& names, const std::vector<BlockBytes>& blocks) {
  std::vector<bool> chosen(blocks.size());
  for (const auto& name : names) {
    const auto found = std::find_if(blocks.begin(), blocks.end(), [&](const BlockBytes& b) { return b.name == name; });
    std::vector<std::string_view> known;
    for (const auto& b : blocks) known.emplace_back(b.name);
    if (found == blocks.end())
      throw_failure(Kind::usage, "recompute: the model has no block '{}'; its blocks are {}", name, fmt::join(known, ", "));
    chosen[static_cast<std::size_t>(found - blocks.begin())] = true;
  }
  return chosen;
}

std::vector<bool> fitting(std::size_t bytes, const std::vector<BlockBytes>& blocks) {
  std::vector<std::size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return saved_by(blocks[a]) > saved_by(blocks[b]); });
  std::vector<bool> chosen(blocks.size()), best = chosen;
  for (const std::size_t next : order) {
    if (activation_peak(blocks, best) <= bytes) return best;
    chosen[next] = true;  // the first one alone saves nothing: it is recomputed whole
    if (activation_peak(blocks, chosen) < activation_peak(blocks, best)) best = chosen;
  }
  const std::size_t least = activation_peak(blocks, best);
  if (least > bytes)
    throw_failure(Kind::usage, "recompute: until_fits({}) cannot be: activations of a batch need {} at least; take smaller batches",
                  format_bytes(bytes), format_bytes(least));
  return best;
}

}  // namespace

RecomputeChoice RecomputeChoice::parse(std::string_view text) {
  const std::string_view whole = trim(text);
  const auto open = whole.find('(');
  const std::string_view word = trim(whole.substr(0, open));
  const bool bare = open == std::string_view::npos;
  if (word == "none" && bare) return {};
  if (!bare && whole.back() == ')') {
    const std::string_view inside = trim(whole.substr(open + 1, whole.size() - open - 2));
    if (word == "every") {
      int every = 0;
      const auto [end, error] = std::from_chars(inside.data(), inside.data() + inside.size(), every);
      if (error == std::errc{} && end == inside.data() + inside.size() && every > 0) return {.how = How::every, .every = every};
    }
    if (word == "names") {
      auto names = listed(inside);
      if (std::none_of(names.begin(), names.end(), [](const std::string& n) { return n.empty(); }))
        return {.how = How::names, .names = std::move(names)};
    }
    if (word == "until_fits" && !inside.empty()) return {.how = How::until_fits, .bytes = parse_bytes(inside)};
  }
  throw_failure(Kind::usage, "recompute: '{}' is none of {}", text, kRecomputeForms);
}

std::size_t activation_peak(const std::vector<BlockBytes>& blocks, const std::vector<bool>& recomputed) {
  std::size_t kept = 0, back = 0;
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    kept += recomputed[b] ? std::min(blocks[b].output, blocks[b].kept) : blocks[b].kept;
    if (recomputed[b]) back = std::max(back, saved_by(blocks[b]));
  }
  return kept + back;
}

std::vector<bool> choose(const RecomputeChoice& choice, const std::vector<BlockBytes>& blocks) {
  switch (choice.how) {
    case RecomputeChoice::How::names: return named(choice.names, blocks);
    case RecomputeChoice::How::until_fits: return fitting(choice.bytes, blocks);
    default: break;
  }
  std::vector<bool> chosen(blocks.size());
  for (std::size_t b = 0; choice.every > 0 && b < blocks.size(); ++b) chosen[b] = (b + 1) % static_cast<std::size_t>(choice.every) == 0;
  return chosen;
}

}  // namespace cohort
