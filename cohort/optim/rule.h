// A row of the table of update rules (rule/CMakeLists.txt): its name, its parameters and how to build it.
// Parameters carry torch.optim's names and defaults. Owner: the table. Threads: any, rows never change.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "cohort/base/spec.h"
#include "cohort/optim/optimizer.h"

namespace cohort::optim {

struct Rule {
  std::string_view name;
  const SpecSchema& (*schema)();
  std::unique_ptr<Optimizer> (*make)(const SpecValues& values);
};

std::span<const Rule* const> rules();
const Rule& rule_named(std::string_view name);  // Kind::usage with the known names

// Every parameter of the schema, given or not: two rules are the same if and only if these texts are.
std::string spelled_out(const SpecSchema& schema, const Spec& given);

// The two parameters that every rule has.
SpecParam lr_param(std::string_view preset);
SpecParam weight_decay_param(std::string_view preset, std::string_view doc);
// The share of a running mean that is kept, below 1: a mean that takes nothing in would never start.
SpecParam share_param(std::string_view name, std::string_view preset, std::string_view doc);
SpecParam number_param(std::string_view name, std::string_view preset, std::string_view doc);  // >= 0
SpecParam flag_param(std::string_view name, std::string_view doc);                             // false unless said

}  // namespace cohort::optim
