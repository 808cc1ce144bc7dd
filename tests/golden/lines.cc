#include "tests/golden/lines.h"

#include <cstdlib>
#include <fstream>
#include <map>

namespace cohort::golden {
namespace {

std::map<std::string, std::string> read() {
  std::map<std::string, std::string> all;
  std::ifstream file(COHORT_GOLDEN);
  for (std::string line; std::getline(file, line);)
    if (const auto at = line.find(": "); at != std::string::npos) all[line.substr(0, at)] = line.substr(at + 2);
  return all;
}

}  // namespace

std::string golden_line(const std::string& name, const std::string& found) {
  auto all = read();
  if (std::getenv("COHORT_GOLDEN_WRITE") == nullptr || found.empty()) return all[name];
  all[name] = found;
  std::ofstream file(COHORT_GOLDEN);
  for (const auto& [key, text] : all) file << key << ": " << text << "\n";
  return found;
}

}  // namespace cohort::golden
