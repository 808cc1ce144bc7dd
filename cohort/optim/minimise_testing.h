// For tests: a rule that looks at the loss minimises a function of some numbers, as an engine would have it: on ranks that all have all
// tensors, or share them out.
#pragma once
#include <thread>

#include "cohort/optim/side_testing.h"
#include "cohort/optim/testing.h"

namespace cohort::optim {

using Numbers = std::vector<double>;
using Function = std::function<double(const Numbers& x, Numbers& g)>;

struct Minimised {
  int evaluations = 0;
  double f = 0;
  Numbers x;
};

inline double rosenbrock(const Numbers& x, Numbers& g) {
  std::fill(g.begin(), g.end(), 0);
  double f = 0;
  for (std::size_t i = 0; i + 1 < x.size(); ++i) {
    const double a = x[i + 1] - x[i] * x[i], b = 1 - x[i];
    f += 100 * a * a + b * b;
    g[i] += -400 * a * x[i] - 2 * b;
    g[i + 1] += 200 * a;
  }
  return f;
}

// sum of k (x_k - 1)^2 / 2, k = 1 .. n: all curvatures differ.
inline double bowl(const Numbers& x, Numbers& g) {
  double f = 0;
  for (std::size_t k = 0; k < x.size(); ++k) {
    const auto c = static_cast<double>(k + 1);
    f += c * (x[k] - 1) * (x[k] - 1) / 2;
    g[k] = c * (x[k] - 1);
  }
  return f;
}

// Two tensors, halves of x; wanted: it ends at such a value; again_at: from this evaluation on by a rule made anew. x has what this rank
// does not update as it was. all: what the ranks hold together, where they share tensors out.
struct Minimiser {
  TestSide& side;
  const Function& function;
  double wanted;
  int most, again_at = 0;
  std::function<void(Numbers&)> all = [](Numbers&) {};

  Minimised run(const std::string& spec, Numbers x, int shards) const {
    auto rule = make(spec);
    const std::size_t half = x.size() / 2;
    std::vector<Field<double>> parts;
    for (const std::size_t n : {half, x.size() - half})
      parts.emplace_back(*rule, TensorInfo{parts.empty() ? "a" : "b", {static_cast<std::int64_t>(n)}, Dtype::f64});
    std::copy_n(x.begin(), half, parts[0].w.begin());
    std::copy(x.begin() + static_cast<std::ptrdiff_t>(half), x.end(), parts[1].w.begin());
    side.all_tensors = 2;
    Minimised at{.x = std::move(x)};
    Numbers g(at.x.size());
    for (int t = 1; t <= most; ++t) {
      at.f = function(at.x, g);
      at.evaluations = t;
      if (at.f <= wanted) break;
      if (t == again_at) rule = make(spec);
      std::copy_n(g.begin(), half, parts[0].g.begin());
      std::copy(g.begin() + static_cast<std::ptrdiff_t>(half), g.end(), parts[1].g.begin());
      step(*rule, parts, t, at.f, shards);
      std::copy(parts[0].w.begin(), parts[0].w.end(), at.x.begin());
      std::copy(parts[1].w.begin(), parts[1].w.end(), at.x.begin() + static_cast<std::ptrdiff_t>(half));
      all(at.x);
    }
    return at;
  }

 private:
  void step(Optimizer& rule, std::vector<Field<double>>& parts, int t, double f, int shards) const {
    std::vector<std::vector<void*>> states(parts.size());
    side.own.clear();
    side.own_orders.clear();
    const Slice group{.weight_decay = rule.default_weight_decay()};
    for (std::size_t k = 0; k < parts.size(); ++k)
      if (static_cast<int>(k) % shards == side.rank() % shards) {
        side.own.push_back(parts[k].slice(0, parts[k].w.size(), group, states[k]));
        side.own_orders.push_back(k);
      }
    side.info = {.step = t, .lr = 1};
    if (rule.needs().side) rule.prepare(side);
    StepInfo info = side.info;
    info.loss = f;
    for (const std::size_t k : side.own_orders) parts[k].update(rule, info, group);
  }
};

inline Minimised minimise(const std::string& spec, const Function& function, Numbers x, double wanted, int most, int again_at = 0) {
  RanksTogether together(1);
  TestSide side(together, 0, true);
  return Minimiser{side, function, wanted, most, again_at}.run(spec, std::move(x), 1);
}

// What rank 0 ends with; every rank has the whole x before an evaluation.
inline Minimised minimise_on(int ranks, bool replicated, const std::string& spec, const Function& function, const Numbers& x, double wanted,
                             int most) {
  RanksTogether together(ranks);
  std::vector<Minimised> ended(static_cast<std::size_t>(ranks));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      TestSide side(together, rank, replicated);
      const int shards = replicated ? 1 : std::min(ranks, 2);
      const auto all = [&](Numbers& mine) {  // half k is with the ranks whose number is k modulo `shards`
        Numbers sum = mine, counts(mine.size(), 1.0);
        for (std::size_t i = 0; i < mine.size(); ++i)
          if ((i < mine.size() / 2 ? 0 : 1) % shards != rank % shards || rank >= shards) sum[i] = counts[i] = 0;
        if (shards == 1) return;
        side.sum(piece(std::span(sum)));
        mine = sum;
      };
      ended[static_cast<std::size_t>(rank)] = Minimiser{side, function, wanted, most, 0, all}.run(spec, x, shards);
    });
  threads.clear();
  for (const Minimised& other : ended) EXPECT_EQ(other.x, ended[0].x);
  return ended[0];
}

}  // namespace cohort::optim
