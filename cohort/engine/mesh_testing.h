// For tests: the two-layer MLP on a mesh of ranks as threads, and what all of them hold put together to the whole model.
//   MeshResult four = train_on_mesh({.ranks = 4, .mesh = "dp=2,tp=2"});
//   expect_near(four.params, train_on_mesh({}).params, 1e-12);
#pragma once
#include <mutex>

#include "cohort/engine/testing.h"
#include "cohort/nn/parallel/linear.h"

namespace cohort::engine {

struct MeshCase {
  int ranks = 1;
  std::string mesh{};
  std::string model = "tp_mlp(in=6, hidden=16, out=3)";
  EngineOptions options{.strategy = "all_reduce(op=sum)", .lanes = 0};
  std::string rule = "sgd(lr=0.1, momentum=0.9)";
  at::ScalarType type = at::kDouble;
  int steps = 3;
  std::int64_t rows = 8;  // of all ranks; the loss is divided by them, or for a mean by those of a dp place
  StepCallback before_finish{};
};

struct MeshResult {
  Named params, state;
  std::vector<Verdict> verdicts;  // of rank 0
};

struct MeshRank {
  MeshRank(const MeshCase& c, collective::Communicator& comm)
      : mesh(comm.size(), c.mesh),
        tp(comm.split(mesh.along("tp").group_of[static_cast<std::size_t>(comm.rank().value)], mesh.coordinate(comm.rank(), "tp"))),
        model(nn::make_model(c.model, kTestSeed)) {
    model.to(c.type);
    specs = nn::shard_linears(model.root(), *tp);
    auto parameters = parameters_of(model);
    for (auto& p : parameters)
      if (const auto spec = specs.find(p.name); spec != specs.end()) p.shard = spec->second, p.cut = {"tp"};
    assign_units(model, parameters);
    EngineOptions options = c.options;
    options.mesh = c.mesh;
    engine = std::make_unique<Engine>(comm, std::move(parameters), options, optim::make(c.rule), 2, comm.size());
    model.wrap_blocks(engine->block_wrapper());
  }
  const group::DeviceMesh mesh;
  const std::unique_ptr<collective::Communicator> tp;
  nn::Model model;
  nn::ShardSpecs specs;
  std::unique_ptr<Engine> engine;
};

// What this rank holds goes to its place; where it was filled before, it must be the same bits.
inline void put_box(std::map<std::string, std::pair<at::Tensor, at::Tensor>>& all, const std::string& name, const Box& box,
                    const Shape& whole, const at::Tensor& values) {
  auto& [tensor, filled] = all[name];
  if (!tensor.defined()) tensor = at::zeros(whole, values.options()), filled = at::zeros(whole, at::kBool);
  at::Tensor place = tensor, mark = filled;
  for (std::size_t d = 0; d < whole.size(); ++d) {
    place = place.narrow(static_cast<std::int64_t>(d), box.first[d], box.sizes[d]);
    mark = mark.narrow(static_cast<std::int64_t>(d), box.first[d], box.sizes[d]);
  }
  const bool filled_before = mark.any().item<bool>();
  EXPECT_TRUE(!filled_before || at::equal(place, values.view(place.sizes()))) << name << ": ranks hold different bits";
  place.copy_(values.view(place.sizes()));
  mark.fill_(true);
}

inline MeshResult train_on_mesh(const MeshCase& c) {
  at::set_num_threads(1);
  MeshResult result;
  std::mutex mutex;
  std::map<std::string, std::pair<at::Tensor, at::Tensor>> params;
  std::map<std::string, at::Tensor> state;
  collective::run_ranks(c.ranks, [&](collective::Communicator& comm) {
    MeshRank rank(c, comm);
    const int dp = rank.mesh.size("dp"), place = rank.mesh.coordinate(comm.rank(), "dp");
    const double lr = rank.engine->rule()->default_lr(), mean_of = rank.engine->averages() ? dp : 1;
    std::vector<Verdict> verdicts;
    for (int step = 1; step <= c.steps; ++step) {
      rank.engine->begin({.step = step, .lr = lr});
      (loss_of_rows(rank.model, c.type, step, c.rows, place * (c.rows / dp), c.rows / dp) * mean_of).backward();
      if (c.before_finish) c.before_finish({comm, *rank.engine, rank.model, step});
      verdicts.push_back(rank.engine->finish());
    }
    const std::lock_guard lock(mutex);
    if (comm.rank() == Rank{0}) result.verdicts = verdicts;
    std::map<std::string, std::vector<at::Tensor>> seen;
    rank.engine->visit([&](const StateItem& item) {
      if (!item.first || item.group == "residual") return;
      auto& flat = state[std::string(item.group) + ":" + item.key()];
      const Box whole = whole_box(item.shape);
      if (!flat.defined()) flat = at::full({elements_of(whole)}, NAN, borrowed(item.values).options());
      for (const CommonRun& run :
           common_runs(whole, {0, static_cast<std::size_t>(elements_of(whole))}, item.box ? *item.box : whole, item.run)) {
        const at::Tensor to = flat.narrow(0, static_cast<std::int64_t>(run.in_a), static_cast<std::int64_t>(run.count));
        EXPECT_TRUE(to.isnan().all().item<bool>()) << item.key() << ": two ranks save the same elements";
        to.copy_(
            borrowed(item.values).narrow(0, static_cast<std::int64_t>(run.in_b - item.run.first), static_cast<std::int64_t>(run.count)));
      }
    });
    if (rank.engine->shards_parameters()) return;
    for (const auto& [name, p] : rank.model.named_parameters()) {
      const auto spec = rank.specs.find(name);
      const Shape shape = spec == rank.specs.end() ? p.sizes().vec() : spec->second.whole;
      put_box(params, name, spec == rank.specs.end() ? whole_box(shape) : spec->second.box, shape, p.detach());
    }
  });
  for (const auto& [name, flat] : state) {
    EXPECT_FALSE(flat.isnan().any().item<bool>()) << name << ": elements that no rank saves";
    (name.starts_with("model:") ? result.params : result.state).emplace_back(name, flat);
  }
  for (const auto& [name, whole] : params) {
    EXPECT_TRUE(whole.second.all().item<bool>()) << name;
    const auto saved = state.at("model:" + name);
    EXPECT_TRUE(at::equal(whole.first.flatten(), saved)) << name << ": what is saved is not what is computed with";
  }
  return result;
}

inline void expect_near(const MeshResult& a, const MeshResult& b, double tolerance, const std::string& what) {
  expect_near(a.params, b.params, tolerance, what);
  expect_near(a.state, b.state, tolerance, what);
  ASSERT_EQ(a.verdicts.size(), b.verdicts.size());
  for (std::size_t s = 0; s < a.verdicts.size(); ++s) {
    EXPECT_EQ(a.verdicts[s].committed, b.verdicts[s].committed) << what;
    EXPECT_NEAR(a.verdicts[s].squared_after, b.verdicts[s].squared_after, tolerance * b.verdicts[s].squared_after) << what;
    EXPECT_NEAR(a.verdicts[s].clip, b.verdicts[s].clip, tolerance) << what;
  }
}

inline void expect_same_bits(const MeshResult& a, const MeshResult& b, const std::string& what) {
  expect_same_bits(a.params, b.params, what);
  expect_same_bits(a.state, b.state, what);
  for (std::size_t s = 0; s < a.verdicts.size(); ++s) {
    EXPECT_EQ(a.verdicts[s].squared_after, b.verdicts[s].squared_after) << what;
    EXPECT_EQ(a.verdicts[s].squared_before, b.verdicts[s].squared_before) << what;
    EXPECT_EQ(a.verdicts[s].clip, b.verdicts[s].clip) << what;
  }
}

}  // namespace cohort::engine
