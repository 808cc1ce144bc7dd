// One way to look at the state of training, whoever holds it: parameters, the optimizer's state, a codec's residuals, what a strategy
// keeps. Saving, loading, carrying it to another set of ranks, comparing it: each is a visitor.
//   engine.visit(visitor);   // calls visitor.tensor() for every run of elements that this rank holds
// Owner: values; an Item borrows names and memory for the call. Threads: one. Failure: the visitor's.
// To keep a new kind of state: visit it where it is held, with a group, a share and a merge of these.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "cohort/base/shard_spec.h"

namespace cohort {

// Who holds it.
enum class Share : std::uint8_t {
  cut,        // every element is on one rank
  identical,  // the same on every rank: one saves it for all
  each,       // every rank has its own
};

// What becomes of it on another number of ranks.
enum class Merge : std::uint8_t {
  copy,  // elements go where they are needed
  mean,  // of all ranks' own: the same on every rank
  sum,   // what a rank that leaves holds is added to another's
  drop,  // begins anew
};

struct StateItem {
  std::string_view group;      // "model", "optimizer", "residual", "strategy"
  std::string_view parameter;  // whose it is
  std::string_view state;      // which of its states; empty: the parameter itself
  const Shape& shape;          // of the whole tensor
  ElementRange run;            // which of its elements these are; of a box: which of the box's, laid out flat
  Piece values;                // they may be written
  Share share = Share::identical;
  Merge merge = Merge::copy;
  bool buddy = false;        // a copy of what the rank before this one holds
  const Box* box = nullptr;  // of the whole tensor, that ranks of a mesh share out; none: it is whole
  bool first = true;         // of the ranks that hold these elements this is the first: it saves them for all
  std::string key() const { return state.empty() ? std::string(parameter) : std::string(parameter) + "/" + std::string(state); }
};

class StateVisitor {
 public:
  virtual ~StateVisitor() = default;
  virtual void tensor(const StateItem& item) = 0;
  virtual void number(std::string_view /*key*/, double& /*value*/) {}
};

}  // namespace cohort
