// For tests: ranks as threads, each with a rule of its own, and what an engine would offer them while a step is prepared.
#pragma once
#include <algorithm>
#include <barrier>
#include <cstring>
#include <thread>
#include <vector>

#include "cohort/optim/side.h"

namespace cohort::optim {

struct RanksTogether {
  explicit RanksTogether(int n) : ranks(n), arrived(n), jobs(static_cast<std::size_t>(n)), pieces(static_cast<std::size_t>(n)) {}
  const int ranks;
  std::barrier<> arrived;
  std::vector<std::span<const Job>> jobs;  // by rank
  std::vector<Piece> pieces;               // likewise
};

class TestSide final : public Side {
 public:
  TestSide(RanksTogether& together, int rank, bool replicated) : together_(together), rank_(rank), replicated_(replicated) {}

  StepInfo info{};
  std::vector<Slice> own{};
  std::vector<std::size_t> own_orders{};
  std::size_t all_tensors = 0;
  std::vector<TappedLayer> seen{};
  int jobs_run = 0;

  int rank() const override { return rank_; }
  int ranks() const override { return together_.ranks; }
  const StepInfo& step() const override { return info; }
  std::span<const TappedLayer> layers() override { return seen; }
  double seen_scale() const override { return info.grad_scale; }
  std::span<const Slice> slices() override { return own; }
  bool replicated() const override { return replicated_; }
  std::size_t tensors() const override { return all_tensors; }
  std::span<const std::size_t> orders() const override { return own_orders; }
  void sum(const Piece& values) override {  // of f64, in the order of ranks
    together_.pieces[static_cast<std::size_t>(rank_)] = values;
    together_.arrived.arrive_and_wait();
    std::vector<double> total(values.count);
    for (const Piece& piece : together_.pieces)
      for (std::size_t i = 0; i < values.count; ++i) total[i] += static_cast<const double*>(piece.data)[i];
    together_.arrived.arrive_and_wait();
    std::copy(total.begin(), total.end(), static_cast<double*>(values.data));
  }
  void spread(std::span<const Job> jobs) override {
    const auto rank_of = assign_jobs(jobs, together_.ranks);
    for (std::size_t i = 0; i < jobs.size(); ++i)
      if (rank_of[i] == rank_) ++jobs_run, jobs[i].run();
    together_.jobs[static_cast<std::size_t>(rank_)] = jobs;
    together_.arrived.arrive_and_wait();
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      const Piece& from = together_.jobs[static_cast<std::size_t>(rank_of[i])][i].result;
      if (rank_of[i] != rank_) std::memcpy(jobs[i].result.data, from.data, from.count * size_of(from.dtype));
    }
    together_.arrived.arrive_and_wait();
  }
  const Algebra& algebra() const override { return algebra_; }
  BackgroundPool& background() override { return pool_; }

 private:
  RanksTogether& together_;
  const int rank_;
  const bool replicated_;
  Algebra algebra_;
  BackgroundPool pool_;
};

}  // namespace cohort::optim
