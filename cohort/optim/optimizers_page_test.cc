// docs/optimizers.md says what the rules say of themselves.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "cohort/base/spec_page.h"
#include "cohort/optim/rule.h"

namespace cohort::optim {
namespace {

std::string page() {
  std::ifstream file(COHORT_OPTIMIZERS_PAGE);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string sees(const Needs& needs) {
  if (needs.taps) return "tensors, layers";
  if (needs.loss) return "tensors, the loss";
  if (needs.grain == Grain::tensor) return "tensors";
  return needs.rounds > 0 ? "elements, norms of tensors" : "elements";
}

TEST(OptimizersPage, HasTheStateAndTheViewOfEveryRule) {
  const std::string text = page();
  for (const Rule* row : rules()) {
    const auto rule = make(row->name);
    std::vector<std::string> state;
    for (const auto& spec : rule->state({"", {1000, 1000}})) state.push_back("`" + spec.name + "`");
    const std::string line =
        fmt::format("| `{}` | {} | {} | {:.4g} |", row->name, sees(rule->needs()),
                    state.empty() ? "-" : fmt::format("{}", fmt::join(state, ", ")), 4 * state_per_element(*rule, {1000, 1000}));
    const std::size_t found = text.find(line + "\n");
    EXPECT_NE(found, std::string::npos) << "it lacks " << line;
    EXPECT_LT(text.find(fmt::format("\n| `{}` | ", row->name)), found) << "it lacks the formula of " << row->name;
  }
}

TEST(OptimizersPage, EndsWithTheParametersOfEveryRule) {
  SpecPage parameters{"Parameters", "In a spec string, as in `adamw(lr=3e-4, weight_decay=0.1)`.", {}};
  for (const Rule* row : rules()) parameters.rows.push_back(row->schema());
  const std::string wanted = page_markdown("", {&parameters, 1});
  EXPECT_TRUE(page().ends_with(wanted)) << "it lacks\n" << wanted;
}

}  // namespace
}  // namespace cohort::optim
