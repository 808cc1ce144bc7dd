// The sums over whole tensors that a rule needs before it updates (optim::Needs), measured by all ranks together: each takes a part, one
// all-reduce a round adds the parts up. A tensor of which one rank measures all is one word; the parts of others travel unrounded
// (optim/exact_sum.h), so that neither stages nor the number of ranks change a bit.
// Owner: Engine, for a step. Threads: the one that trains. Failure: none.
#pragma once
#include <span>
#include <vector>

#include "cohort/engine/step.h"

namespace cohort::engine {

class TensorSums {
 public:
  // Of `parameters` parameters, by their order; rule: none needs none. together: all ranks are; else this one measures everything.
  TensorSums(const optim::Optimizer* rule, const Buckets& buckets, bool together, std::size_t parameters);

  int rounds() const { return needs_.rounds; }
  std::size_t words() const { return words_; }  // of a round
  // known: the sums of all tensors (Decision::sums), of which those of the rounds before are there. words: this rank's share.
  void measure(int round, const optim::StepInfo& step, std::span<const double> known, std::span<double> words) const;
  // words: those of all ranks, added up.
  void read(int round, std::span<const double> words, std::vector<double>& known) const;

 private:
  struct Tensor {
    const Bucket* bucket = nullptr;  // none: not trained
    const sync::Member* member = nullptr;
    std::size_t first = 0, count = 0;  // what this rank measures, of the elements that it owns
    bool shared = false;               // so do others
    std::size_t word = 0;              // where its words begin
  };
  Tensor tensor_of(const Bucket& bucket, const sync::Member& m, bool together) const;

  const optim::Optimizer* const rule_;
  const optim::Needs needs_;
  std::vector<Tensor> tensors_;  // by order
  std::size_t words_ = 0;
};

}  // namespace cohort::engine
