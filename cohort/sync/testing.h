// For tests: quadratics trained by a strategy, without torch, ranks as threads. Rank i's loss is sum_k h/2 (x_k - b_ik)^2, so that every
// trajectory has a closed form.
//   Quadratic q{.sync = "local_sgd(h=4)", .ranks = 4, .steps = 8};
//   QuadraticRun run = train(q);   // run.models[rank][element], run.consensus[rank][element]
// The loop is the engine's (engine/step.cc) without votes.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

#include "cohort/collective/ranks.h"
#include "cohort/sync/elements.h"
#include "cohort/sync/strategy_row.h"

namespace cohort::sync {

using Values = std::vector<double>;
inline constexpr std::uint64_t kSeed = 17;

struct Quadratic {
  std::string sync = "all_reduce";
  int ranks = 2;
  int steps = 1;
  double rate = 0.25, curvature = 0.5;
  std::string rule = "sgd(lr=0.25)";
  std::vector<std::int64_t> sizes{5, 700};                      // of the tensors
  std::function<double(int rank, std::size_t element)> target;  // b; none: dyadic ones
  std::function<double(int rank, std::size_t element)> begins;  // other first values for each rank; none: zero everywhere
  bool in_step = false;                                         // all wait for each other after every step, with nothing under way
  int resumes_after = 0;                                        // a step: others go on with what was kept of these; 0: nobody does
};

struct QuadraticRun {
  std::vector<Values> models, consensus;
  std::vector<std::vector<Values>> after;  // by rank, by step: its model
  double moved = 0;                        // elements a rank received in all, in collectives and messages; the mean of the ranks
};

inline double target_of(const Quadratic& q, int rank, std::size_t element) {
  return q.target ? q.target(rank, element) : 0.25 * static_cast<double>((element * 7 + static_cast<std::size_t>(rank) * 3) % 16) - 2;
}

inline double* doubles(const Piece& piece) { return static_cast<double*>(piece.data); }
inline Values values_of(const Bucket& bucket, const Piece& whole) {
  Values all;
  for (const Member& m : bucket.members()) all.insert(all.end(), doubles(whole) + m.first, doubles(whole) + m.first + m.count);
  return all;
}

inline double moved_by(collective::Communicator& comm) {
  double elements = 0;
  for (const auto what : {collective::Collective::all_reduce, collective::Collective::reduce_scatter, collective::Collective::all_gather,
                          collective::Collective::all_to_all, collective::Collective::broadcast, collective::Collective::recv})
    elements += static_cast<double>(comm.moved(what).elements);
  return elements;
}

class QuadraticRank {
 public:
  QuadraticRank(const Quadratic& q, collective::Communicator& comm)
      : q_(q), comm_(comm), strategy_(make(q.sync)), rule_(optim::make(q.rule)) {
    std::vector<Member> members;
    for (std::size_t i = 0; i < q.sizes.size(); ++i)
      members.push_back({.name = "t" + std::to_string(i), .shape = {q.sizes[i]}, .order = i});
    bucket_ = std::make_unique<Bucket>(0, members, Dtype::f64, comm, strategy_->placement(comm.rank(), comm.size()));
    bucket_->allocate_parameters(comm);
    bucket_->allocate_state(*rule_);
    if (q.begins) each([&](std::size_t element, double& x, double&) { x = q.begins(comm.rank().value, element); });
    for (const SlotSpec& slot : strategy_->slots()) {
      bucket_->open_slot(slot.name, slot.in_communicator ? &comm : nullptr, slot.per_tensor);
      begin_slot(*bucket_, slot);
      if (slot.share == Share::identical) comm.broadcast(bucket_->slot(slot.name), Rank{0});  // where ranks begin apart
    }
    Bucket* all[] = {bucket_.get()};
    Site site{comm, all, rule_.get()};
    strategy_->open(site);
  }
  ~QuadraticRank() { strategy_.reset(); }  // before the memory that it moves

  void begin() { strategy_->begin_step(); }
  void step(std::int64_t number) {
    begin();
    const SyncSchedule schedule = strategy_->schedule(number);
    const Wire wire{.comm = &comm_, .step = {.seed = kSeed, .step = number}, .number = number};
    each([&](std::size_t element, double& x, double& g) { g = q_.curvature * (x - target_of(q_, comm_.rank().value, element)); });
    if (strategy_->semantics().served) return step_by_servers(number, wire);
    if (schedule.commit == Scope::world) strategy_->reduce_gradients(*bucket_, wire);
    if (schedule.exchanges_before) strategy_->exchange_models(*bucket_, wire);
    std::vector<void*> state;
    for (const Member& m : bucket_->members()) rule_->update(bucket_->slice(m, state), {.step = number, .lr = q_.rate});
    if (schedule.exchanges_after) strategy_->exchange_models(*bucket_, wire);
    if (schedule.ends_round) strategy_->mix_models(*bucket_, {.number = number});
    strategy_->publish(*bucket_, wire);
  }

  void step_by_servers(std::int64_t number, const Wire& wire) {
    strategy_->reduce_gradients(*bucket_, wire);
    strategy_->mark(*bucket_, {.step = number, .lr = q_.rate}, {}, wire);
    strategy_->publish(*bucket_, wire);
  }

  // What servers were sent has come; collective.
  void settle() { strategy_->quiesce(*bucket_, {.comm = &comm_}); }

  Values model() const {
    strategy_->settle();
    return values_of(*bucket_, bucket_->parameters());
  }
  Values consensus() {
    strategy_->quiesce(*bucket_, {.comm = &comm_});
    strategy_->settle();
    const auto region = comm_.allocate(bucket_->bytes());
    strategy_->consensus(*bucket_, bucket_->all_in(region), {.comm = &comm_});
    return values_of(*bucket_, bucket_->all_in(region));
  }
  Bucket& bucket() { return *bucket_; }
  // What the last update left; others may have mixed more in (model()).
  Values parameters() const { return values_of(*bucket_, bucket_->parameters()); }
  Strategy& strategy() { return *strategy_; }

  // What a checkpoint would have of this rank, and of what all have alike rank 0's.
  std::vector<std::pair<Share, Values>> saved() {
    strategy_->quiesce(*bucket_, {.comm = &comm_});
    strategy_->settle();
    std::vector<std::pair<Share, Values>> all;
    each_state([&](Share share, const Piece& values) { all.emplace_back(share, Values(doubles(values), doubles(values) + values.count)); });
    return all;
  }
  void restore(const std::vector<std::pair<Share, Values>>& own) {
    std::size_t next = 0;
    each_state([&](Share share, const Piece& values) {
      std::ranges::copy(own[next++].second, doubles(values));
      if (share == Share::identical) comm_.broadcast(values, Rank{0});
    });
    strategy_->publish_loaded(*bucket_, {.comm = &comm_});
  }

 private:
  template <class Call>
  void each_state(const Call& call) const {
    const bool own = strategy_->semantics().drifts() || bucket_->placement().sharded();
    const Share share = own ? Share::each : Share::identical;
    for (const Member& m : bucket_->members()) {
      call(share, bucket_->parameters().part(m.first, m.count));
      for (std::size_t k = 0; k < bucket_->specs(m).size(); ++k) call(share, bucket_->owned_state(m, k));
      for (const SlotSpec& slot : strategy_->slots())
        if (slot.kept) call(slot.share, bucket_->slot(slot.name, m));
    }
  }
  template <class Call>
  void each(const Call& call) {
    std::size_t element = 0;
    for (const Member& m : bucket_->members())
      for (std::size_t i = 0; i < m.count; ++i)
        call(element++, doubles(bucket_->parameters())[m.first + i], doubles(bucket_->gradients())[m.first + i]);
  }

  const Quadratic& q_;
  collective::Communicator& comm_;
  std::unique_ptr<Strategy> strategy_;
  const std::unique_ptr<optim::Optimizer> rule_;
  std::unique_ptr<Bucket> bucket_;
};

inline QuadraticRun train(const Quadratic& q) {
  QuadraticRun run;
  run.models.resize(static_cast<std::size_t>(q.ranks));
  run.consensus = run.models;
  run.after.resize(run.models.size());
  std::vector<double> moved(run.models.size());
  collective::run_ranks(q.ranks, [&](collective::Communicator& comm) {
    const auto me = static_cast<std::size_t>(comm.rank().value);
    auto rank = std::make_unique<QuadraticRank>(q, comm);
    rank->settle();
    const double before = moved_by(comm);
    comm.barrier();    // nobody sends before all have looked
    comm.barrier({});  // nobody asks before all have looked
    for (int step = 1; step <= q.steps; ++step) {
      if (q.in_step) {
        rank->begin();
        comm.barrier({});  // nobody refuses
      }
      rank->step(step);
      if (q.in_step) {
        comm.barrier({});
        rank->model();
        comm.barrier({});
      }
      run.after[me].push_back(rank->parameters());
      if (step != q.resumes_after) continue;
      const auto kept = rank->saved();
      rank = std::make_unique<QuadraticRank>(q, comm);
      rank->restore(kept);
    }
    rank->settle();
    comm.barrier({});  // others may still meet with this one
    moved[me] = moved_by(comm) - before;
    comm.barrier();
    run.models[me] = rank->model();
    run.consensus[me] = rank->consensus();
  });
  run.moved = std::accumulate(moved.begin(), moved.end(), 0.0) / q.ranks;
  return run;
}

inline Values mean_of(const std::vector<Values>& models) {
  Values mean(models[0].size(), 0);
  for (const Values& m : models)
    for (std::size_t i = 0; i < m.size(); ++i) mean[i] += m[i] / static_cast<double>(models.size());
  return mean;
}

// How far the ranks are from their mean.
inline double disagreement(const std::vector<Values>& models) {
  const Values mean = mean_of(models);
  double sum = 0;
  for (const Values& m : models)
    for (std::size_t i = 0; i < m.size(); ++i) sum += (m[i] - mean[i]) * (m[i] - mean[i]);
  return std::sqrt(sum);
}
inline std::vector<Values> models_after(const QuadraticRun& run, int step) {
  std::vector<Values> models;
  for (const auto& rank : run.after) models.push_back(rank[static_cast<std::size_t>(step - 1)]);
  return models;
}

inline void expect_near(const Values& a, const Values& b, double tolerance, const std::string& what = "") {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance) << what << ", element " << i;
}

}  // namespace cohort::sync
