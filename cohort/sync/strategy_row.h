// A row of the table of strategies (strategies/CMakeLists.txt): its name, its parameters, how to build it, and what it promises beside its
// Semantics and its cost. strategy_laws_test.cc takes every row by these words, and none by its name.
// Owner: the table. Threads: any, rows never change.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "cohort/base/spec.h"
#include "cohort/sync/strategy.h"

namespace cohort::sync {

// What mixing alone, at a learning rate of 0, does not change.
enum class Conserves : std::uint8_t {
  nothing,
  consensus,         // the model that the job stands for
  ranks_and_centre,  // the sum of the ranks' models and of the consensus
};

struct StrategyRow {
  std::string_view name;
  const SpecSchema& (*schema)();
  std::unique_ptr<Strategy> (*make)(const SpecValues& values);
  std::string_view limit;              // with plain SGD it makes the parameters that all_reduce makes, to rounding; empty: no setting does
  std::string_view short_rounds = {};  // a spelling with rounds of few steps, which the laws below are of; empty: the name
  Conserves conserves = Conserves::nothing;
  double (*contraction)(int ranks) =
      nullptr;              // the share of the ranks' disagreement that a round leaves at a rate of 0; none: not declared
  double counts = 1;        // what Communicator::moved() counts of an element of cost(): payloads of codecs are counted by the byte
  bool whole_steps = true;  // a step that a lost rank interrupts is whole on a survivor or not begun; false: what travels beside the
                            // update (momentum, fragments under way) may be lost with it
  bool repeats = true;      // bits of a run do; false: ranks meet when they come, so who met whom is another matter every time
  bool plain_alone = true;  // a world of one trains as without a strategy
};
std::string_view law_spec(const StrategyRow& row);  // the spelling that laws are tested with

std::span<const StrategyRow* const> strategies();
const StrategyRow& strategy_named(std::string_view name);  // Kind::usage with the known names

SpecParam op_param();  // how gradients are combined

}  // namespace cohort::sync
