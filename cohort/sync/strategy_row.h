// A row of the table of strategies (strategies/CMakeLists.txt): its name, its parameters, how to build it, and the spec under which it is
// all_reduce by definition. Owner: the table. Threads: any, rows never change.
#pragma once
#include <memory>
#include <span>
#include <string_view>

#include "cohort/base/spec.h"
#include "cohort/sync/strategy.h"

namespace cohort::sync {

struct StrategyRow {
  std::string_view name;
  const SpecSchema& (*schema)();
  std::unique_ptr<Strategy> (*make)(const SpecValues& values);
  std::string_view limit;  // with plain SGD it makes the parameters that all_reduce makes, to rounding; empty: no setting does
};

std::span<const StrategyRow* const> strategies();
const StrategyRow& strategy_named(std::string_view name);  // Kind::usage with the known names

SpecParam op_param();  // how gradients are combined

}  // namespace cohort::sync
