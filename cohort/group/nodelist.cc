// Slurm's compressed lists of nodes and tasks.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "cohort/base/error.h"
#include "cohort/base/text.h"
#include "cohort/group/hosts.h"

namespace cohort::group {
namespace {

constexpr std::size_t kMostDigits = 9;

[[noreturn]] void refuse(std::string_view text, std::string_view why) {
  throw_failure(Kind::usage, "'{}' is not a node list: {}; Slurm writes n1,n[2-4,07]", printable(text), why);
}

bool all_digits(std::string_view text) {
  return !text.empty() && text.size() <= kMostDigits &&
         std::all_of(text.begin(), text.end(), [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; });
}

bool name_letters(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-' || c == '_'; });
}

// "07" to "11": two digits wide, as they were written. from_chars would take a sign, all_digits() has seen to that.
std::vector<std::string> expand_range(std::string_view range, std::string_view text) {
  const auto dash = range.find('-');
  const std::string_view first = range.substr(0, dash), last = dash == range.npos ? first : range.substr(dash + 1);
  if (!all_digits(first) || !all_digits(last)) refuse(text, "a range is digits, or digits-digits");
  const long low = std::stol(std::string(first)), high = std::stol(std::string(last));
  if (low > high) refuse(text, "a range runs downwards");
  if (high - low >= kMostHosts) refuse(text, fmt::format("more than {} nodes", kMostHosts));
  std::vector<std::string> numbers;
  for (long n = low; n <= high; ++n) numbers.push_back(fmt::format("{:0{}}", n, first.size()));
  return numbers;
}

// Each head followed by each tail.
std::vector<std::string> combined(const std::vector<std::string>& heads, const std::vector<std::string>& tails, std::string_view text) {
  if (heads.size() * tails.size() > kMostHosts) refuse(text, fmt::format("more than {} nodes", kMostHosts));
  std::vector<std::string> names;
  for (const auto& head : heads)
    for (const auto& tail : tails) names.push_back(head + tail);
  return names;
}

// One item, "rack[0-1]node[1-3]x": letters and brackets alternate.
std::vector<std::string> expand_item(std::string_view item, std::string_view text) {
  std::vector<std::string> names{""};
  while (!item.empty()) {
    const auto open = item.find('[');
    const std::string_view letters = item.substr(0, open);
    if (!name_letters(letters)) refuse(text, "a name has letters that host names cannot have");
    names = combined(names, {std::string(letters)}, text);
    if (open == item.npos) break;
    const auto close = item.find(']', open);
    if (close == item.npos) refuse(text, "a bracket is not closed");
    std::vector<std::string> numbers;
    for (const auto range : split(item.substr(open + 1, close - open - 1), ',')) {
      auto some = expand_range(range, text);
      numbers.insert(numbers.end(), some.begin(), some.end());
      if (numbers.size() > kMostHosts) refuse(text, fmt::format("more than {} nodes", kMostHosts));
    }
    if (numbers.empty()) refuse(text, "a bracket is empty");
    names = combined(names, numbers, text);
    item.remove_prefix(close + 1);
  }
  if (names.front().empty() || names.front().front() == '-') refuse(text, "a name is missing");
  return names;
}

}  // namespace

std::vector<std::string> parse_nodelist(std::string_view text) {
  std::vector<std::string> nodes;
  std::size_t begin = 0;
  bool inside = false;
  for (std::size_t at = 0; at <= text.size(); ++at) {
    const char c = at == text.size() ? ',' : text[at];
    if (c == '[' && inside) refuse(text, "a bracket inside a bracket");
    if (c == ']' && !inside) refuse(text, "a bracket that was not opened");
    if (c == '[' || c == ']') inside = c == '[';
    if (c != ',' || (inside && at < text.size())) continue;
    auto some = expand_item(text.substr(begin, at - begin), text);
    nodes.insert(nodes.end(), some.begin(), some.end());
    if (nodes.size() > kMostHosts) refuse(text, fmt::format("more than {} nodes", kMostHosts));
    begin = at + 1;
  }
  return nodes;
}

std::vector<int> parse_tasks_per_node(std::string_view text) {
  std::vector<int> tasks;
  for (const std::string_view part : split(text, ',')) {
    const auto open = part.find("(x");
    const std::string_view count = part.substr(0, open);
    std::string_view times = "1";
    if (open != part.npos) times = part.substr(open + 2, part.ends_with(')') ? part.size() - open - 3 : 0);
    if (!all_digits(count) || !all_digits(times))
      throw_failure(Kind::usage, "'{}' is not a list of tasks; Slurm writes 2(x3),1", printable(text));
    const long n = std::stol(std::string(count)), repeat = std::stol(std::string(times));
    if (n < 1 || n > kMostSlots || repeat < 1 || repeat + static_cast<long>(tasks.size()) > kMostHosts)
      throw_failure(Kind::usage, "'{}': 1 to {} tasks on 1 to {} nodes are possible", printable(text), kMostSlots, kMostHosts);
    tasks.insert(tasks.end(), static_cast<std::size_t>(repeat), static_cast<int>(n));
  }
  if (tasks.empty()) throw_failure(Kind::usage, "an empty list of tasks; Slurm writes 2(x3),1");
  return tasks;
}

}  // namespace cohort::group
