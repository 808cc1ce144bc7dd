#include "cohort/optim/groups.h"

#include <algorithm>
#include <cmath>

#include "cohort/base/error.h"
#include "cohort/base/text.h"

namespace cohort::optim {
namespace {

std::string short_count(std::size_t count) {  // "999", "1.5 k", "25.6 M"
  static constexpr const char* kUnits[] = {"", " k", " M", " G", " T"};
  auto value = static_cast<double>(count);
  std::size_t unit = 0;
  for (; value >= 999.95 && unit + 1 < std::size(kUnits); ++unit) value /= 1000;
  return unit == 0 ? fmt::format("{}", count) : fmt::format("{:.1f}{}", value, kUnits[unit]);
}

struct GroupCount {
  std::size_t elements = 0, tensors = 0;
  void add(const TensorInfo& tensor) { elements += tensor.numel(), ++tensors; }
};

std::string summary_of(const Assignment& assignment, std::span<const TensorInfo> tensors) {
  GroupCount decayed, plain, frozen;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Group& group = assignment.groups[assignment.of_tensor[i]];
    (group.frozen ? frozen : group.weight_decay > 0 ? decayed : plain).add(tensors[i]);
  }
  std::string text = fmt::format("decayed {} in {} tensor{}, not decayed {} in {}", short_count(decayed.elements), decayed.tensors,
                                 decayed.tensors == 1 ? "" : "s", short_count(plain.elements), plain.tensors);
  if (frozen.tensors > 0) text += fmt::format(", frozen {} in {}", short_count(frozen.elements), frozen.tensors);
  return text;
}

}  // namespace

// Greedy with one point of return: the last star takes one character more whenever what follows it fails.
bool matches(std::string_view pattern, std::string_view name) {
  std::size_t p = 0, n = 0, star = std::string_view::npos, resume = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p, ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

LrScale parse_lr_scale(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  const std::string pattern(trim(text.substr(0, colon)));
  if (colon == std::string_view::npos || pattern.empty())
    throw_failure(Kind::usage, "groups: \"{}\" is no rule for the learning rate; write a pattern and a factor, as in \"head.*: 10\"",
                  printable(text));
  return {pattern, parse_real(trim(text.substr(colon + 1)))};
}

Groups::Groups(GroupOptions options) : options_(std::move(options)) {
  if (!std::isfinite(options_.weight_decay) || options_.weight_decay < 0)
    throw_failure(Kind::usage, "groups: a weight decay of {} would make weights grow; give 0 or more", options_.weight_decay);
  for (const LrScale& rule : options_.lr_scale)
    if (!std::isfinite(rule.factor) || rule.factor <= 0)
      throw_failure(Kind::usage, "groups: \"{}: {}\": the factor must be above 0; name tensors that shall not learn under frozen",
                    printable(rule.pattern), rule.factor);
}

Group Groups::of(const TensorInfo& tensor) const {
  Group group;
  group.frozen = std::any_of(options_.frozen.begin(), options_.frozen.end(), [&](const auto& p) { return matches(p, tensor.name); });
  if (group.frozen) return group;
  group.weight_decay = tensor.ndim() > 1 || options_.decay_1d ? options_.weight_decay : 0;
  const auto& rules = options_.lr_scale;
  const auto rule = std::find_if(rules.begin(), rules.end(), [&](const LrScale& r) { return matches(r.pattern, tensor.name); });
  if (rule != rules.end()) group.lr_scale = rule->factor;
  return group;
}

void Groups::check_patterns(std::span<const TensorInfo> tensors) const {
  std::vector<std::string> patterns = options_.frozen;
  for (const LrScale& rule : options_.lr_scale) patterns.push_back(rule.pattern);
  for (const std::string& pattern : patterns) {
    if (std::any_of(tensors.begin(), tensors.end(), [&](const TensorInfo& t) { return matches(pattern, t.name); })) continue;
    std::vector<std::string_view> names;
    for (const TensorInfo& t : tensors) names.push_back(t.name);
    const std::string_view near = nearest(pattern, names);
    throw_failure(Kind::usage, "groups: the pattern \"{}\" matches none of the {} tensors{}; * stands for any text", printable(pattern),
                  tensors.size(), near.empty() ? "" : fmt::format("; is \"{}\" meant?", near));
  }
}

Assignment Groups::assign(std::span<const TensorInfo> tensors) const {
  check_patterns(tensors);
  Assignment out;
  for (const TensorInfo& tensor : tensors) {
    const Group group = of(tensor);
    const auto known = std::find(out.groups.begin(), out.groups.end(), group);
    out.of_tensor.push_back(static_cast<std::size_t>(known - out.groups.begin()));
    if (known == out.groups.end()) out.groups.push_back(group);
  }
  out.summary = summary_of(out, tensors);
  return out;
}

}  // namespace cohort::optim
