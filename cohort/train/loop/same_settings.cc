#include "cohort/train/loop/same_settings.h"

#include <fmt/format.h>

#include <map>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/base/text.h"
#include "cohort/job/run_on_all.h"

namespace cohort::train {
namespace {

// "data.batch" -> "32"
std::map<std::string, std::string> by_name(const std::string& yaml) {
  std::map<std::string, std::string> settings;
  std::vector<std::string> above;
  for (const std::string_view line : split(yaml, '\n')) {
    const auto colon = line.find(':'), indent = line.find_first_not_of(' ');
    if (colon == line.npos) continue;
    above.resize(indent / 2);
    std::string name;
    for (const auto& each : above) name += each + ".";
    above.emplace_back(line.substr(indent, colon - indent));
    const auto value = trim(line.substr(colon + 1));
    if (!value.empty()) settings[name + above.back()] = value;
  }
  return settings;
}

}  // namespace

std::string difference_of_settings(const std::string& first, const std::string& other, int other_rank) {
  const auto ours = by_name(first), theirs = by_name(other);
  const auto value = [](const auto& settings, const std::string& name) {
    const auto at = settings.find(name);
    return at == settings.end() ? std::string("not set") : at->second;
  };
  for (const auto* side : {&ours, &theirs})
    for (const auto& [name, unused] : *side)
      if (value(ours, name) != value(theirs, name))
        return fmt::format("{} is {} on rank 0 but {} on rank {}", name, value(ours, name), value(theirs, name), other_rank);
  return first == other ? "" : fmt::format("those of rank {} are not written like those of rank 0", other_rank);  // items of a list
}

void check_same_settings(collective::Communicator& comm, const std::string& yaml) {
  const auto texts = job::gather_texts(comm, yaml, "settings");
  for (std::size_t r = 1; r < texts.size(); ++r) {
    const auto differs = difference_of_settings(texts[0], texts[r], static_cast<int>(r));
    if (!differs.empty())
      throw_failure(Kind::usage, "the settings differ: {}; give every rank the same file and the same --set options", differs);
  }
}

}  // namespace cohort::train
