// BlockOrder records the order in which blocks run, so that the parameters of the next one can be prefetched.
// A pass of training is a forward and its backward, one of evaluation a forward; each kind has an order of its own, that of the last pass.
// A pass that runs blocks in another order gets no prediction, and is the prediction for the next. Owner: Unsharder. Threads: one.
#pragma once
#include <algorithm>
#include <span>
#include <string>
#include <vector>

namespace cohort::nn {

class BlockOrder {
 public:
  // Outside a backward a block begins to run: is that a new pass? It is after a backward, when training and evaluation take turns, and at
  // the block that began the last pass.
  bool begins_pass(const std::string& block, bool training) {
    const Pass& now = passes_[training ? 1 : 0];
    const bool begins = training != training_ || went_back_ || now.seen.empty() || block == now.seen.front();
    if (!begins) return false;
    for (Pass& pass : passes_) {
      if (!pass.seen.empty()) pass.known = std::move(pass.seen);
      pass.seen.clear();
      pass.differs = false;
    }
    training_ = training;
    went_back_ = false;
    return true;
  }
  void went_back() { went_back_ = true; }  // a backward has begun

  // `block` runs: the blocks that are expected next, at most `ahead` of them. Good until the next call.
  std::span<const std::string> next(const std::string& block, std::size_t ahead) {
    Pass& pass = passes_[training_ ? 1 : 0];
    const std::size_t at = pass.seen.size();
    pass.seen.push_back(block);
    pass.differs = pass.differs || at >= pass.known.size() || pass.known[at] != block;
    if (pass.differs) return {};
    const std::span<const std::string> rest = std::span(pass.known).subspan(at + 1);
    return rest.first(std::min(ahead, rest.size()));
  }

 private:
  struct Pass {
    std::vector<std::string> known, seen;  // of the last pass, of this one so far
    bool differs = false;
  };
  Pass passes_[2];
  bool training_ = false, went_back_ = false;
};

}  // namespace cohort::nn
