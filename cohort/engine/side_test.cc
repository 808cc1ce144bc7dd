// What a rule gets to prepare a step: layers, sums and jobs over the ranks. Proven by a rule for this test, which divides a matrix's
// gradient by what went into its columns: diagonal K-FAC without the other side.
#include "cohort/engine/side.h"

#include "cohort/engine/testing.h"
#include "cohort/nn/recompute.h"

namespace cohort::engine {
namespace {

using testing::HasSubstr;

//   a <- a + sum over all samples x_j^2,   w_ij <- w_ij - lr g_ij / (1 + a_j);   vectors: w <- w - lr g
class ByInputs final : public optim::Optimizer {
 public:
  std::vector<std::string> state_names() const override { return {"input_squares"}; }
  std::vector<optim::StateSpec> state(const optim::TensorInfo& tensor) const override {
    if (tensor.ndim() < 2) return {};
    return {{"input_squares", {static_cast<std::int64_t>(tensor.numel()) / tensor.shape[0]}, tensor.dtype}};
  }
  optim::Needs needs() const override { return {.grain = optim::Grain::tensor, .taps = true}; }
  double default_lr() const override { return 0.25; }
  double default_weight_decay() const override { return 0; }

  void prepare(optim::Side& side) override {
    staged_.clear();
    divisors_.clear();
    for (const auto& layer : side.layers()) {
      auto& squares = staged_[layer.weight];
      squares.resize(layer.in);
      for (const auto& seen : layer.seen)
        for (std::size_t i = 0; i < seen.rows * layer.in; ++i) {
          const double x = seen.inputs.dtype == Dtype::f32 ? static_cast<const float*>(seen.inputs.data)[i]
                                                           : static_cast<const double*>(seen.inputs.data)[i];
          squares[i % layer.in] += x * x;
        }
      side.sum(piece(std::span(squares)));
    }
    std::vector<optim::Job> jobs;  // each by one rank, for all
    for (const auto& [name, squares] : staged_) {
      auto& divisors = divisors_[name];
      divisors.resize(squares.size());
      jobs.push_back({.cost = static_cast<double>(squares.size()), .result = piece(std::span(divisors)), .run = [&] {
                        ++jobs_run_;
                        for (std::size_t j = 0; j < squares.size(); ++j) divisors[j] = 1 + squares[j];
                      }});
    }
    side.spread(jobs);
    all_jobs_ += static_cast<int>(jobs.size());
    auto& count = counted_;
    BackgroundPool::wait(side.background().submit([&] { ++count; }));
  }
  int jobs_run() const { return jobs_run_; }
  int all_jobs() const { return all_jobs_; }
  int counted() const { return counted_; }

 private:
  void apply(const optim::Slice& s, const optim::StepInfo& info) const override {
    s.dtype == Dtype::f32 ? run<float>(s, info) : run<double>(s, info);
  }
  template <class T>
  void run(const optim::Slice& s, const optim::StepInfo& info) const {
    const bool matrix = !s.state.empty();
    const std::size_t columns = matrix ? s.count / static_cast<std::size_t>(s.shape[0]) : 1;
    auto* const sums = matrix ? static_cast<T*>(s.state[0]) : nullptr;
    const auto divisors = divisors_.find(std::string(s.name));
    for (std::size_t j = 0; matrix && j < columns; ++j) sums[j] += static_cast<T>(divisors->second[j]) - 1;
    auto *const w = static_cast<T*>(s.param), *const g = static_cast<T*>(s.grad);
    for (std::size_t i = 0; i < s.count; ++i) {
      w[i] -= static_cast<T>(info.lr * info.grad_scale) * g[i] / (matrix ? 1 + sums[i % columns] : 1);
      if (info.clear_grad) g[i] = 0;
    }
  }
  std::map<std::string, std::vector<double>> staged_, divisors_;  // of the step under way
  int jobs_run_ = 0, all_jobs_ = 0, counted_ = 0;
};

// Whole numbers and eighths: every sum is exact, in whatever order.
struct Net {
  explicit Net(const char* spec) : model(nn::make_model(spec, kTestSeed)) {
    const at::NoGradGuard no_grad;
    model.to(at::kDouble);
    std::int64_t at = 0;
    for (auto& [name, p] : model.named_parameters())
      for (std::int64_t i = 0; i < p.numel(); ++i) p.view(-1)[i] = static_cast<double>((at++ * 7 + 3) % 9 - 4) / 8;
  }
  at::Tensor loss(std::int64_t first, std::int64_t count) const {
    const auto sizes = model.example(1).sizes().vec();
    std::int64_t each = 1;
    for (const auto size : sizes) each *= size;
    at::Tensor x = at::arange(first * each, (first + count) * each, at::kDouble).mul(5).remainder(7).sub(3);
    auto batch = sizes;
    batch[0] = count;
    return model.forward(x.view(batch)).sum();
  }
  nn::Model model;
};

struct Outcome {
  Named params;
  int jobs_run = 0, all_jobs = 0, counted = 0;
};

Outcome train_dyadic(collective::Communicator& comm, const char* spec, const std::string& strategy, int steps, int micro = 1,
                     bool again = false) {
  at::set_num_threads(1);
  Net net(spec);
  auto parameters = parameters_of(net.model);
  assign_units(net.model, parameters);
  auto rule = std::make_unique<ByInputs>();
  const ByInputs& by_inputs = *rule;
  Engine engine(comm, std::move(parameters), {.strategy = strategy, .bucket = ByteSize{400}, .lanes = 0}, std::move(rule));
  const nn::BlockWrapper recomputing = [](const nn::Block& b, const at::Tensor& x) { return nn::recompute(b, x); };
  net.model.wrap_blocks(engine.block_wrapper(again ? recomputing : nullptr));
  constexpr std::int64_t kBatch = 12;
  const std::int64_t part = kBatch / comm.size() / micro;
  for (int step = 1; step <= steps; ++step)
    for (int k = 0; k < micro; ++k) {
      engine.begin({.step = step, .lr = 0.25}, k + 1 == micro);
      net.loss(step * 100 + (comm.rank().value * micro + k) * part, part).backward();
      if (k + 1 == micro) engine.finish();
    }
  engine.make_whole();
  return {copies(net.model.named_parameters()), by_inputs.jobs_run(), by_inputs.all_jobs(), by_inputs.counted()};
}

std::vector<Outcome> on_ranks(int ranks, const char* spec, const std::string& strategy, int steps, int micro = 1, bool again = false) {
  std::vector<Outcome> all(static_cast<std::size_t>(ranks));
  collective::run_ranks(ranks, [&](collective::Communicator& comm) {
    all[static_cast<std::size_t>(comm.rank().value)] = train_dyadic(comm, spec, strategy, steps, micro, again);
  });
  return all;
}

constexpr const char* kLinear = "mlp(in=5, hidden=none, out=4)";
constexpr const char* kDeep = "mlp(in=5, hidden=6, out=4)";

TEST(Side, LayersGiveTheSameUpdateOnAnyNumberOfRanksAndEveryStage) {
  const auto one = on_ranks(1, kLinear, "all_reduce(op=sum)", 1);
  const auto deep = on_ranks(1, kDeep, "all_reduce(op=sum)", 1);
  for (const int ranks : {2, 3, 4})
    for (const char* strategy :
         {"all_reduce(op=sum)", "zero(stage=1, op=sum)", "zero(stage=2, op=sum, buddy=true)", "zero(stage=3, op=sum)"})
      for (const auto& rank : on_ranks(ranks, kLinear, strategy, 1)) expect_same_bits(rank.params, one[0].params, strategy);
  for (const int ranks : {2, 3, 4})
    for (const auto& rank : on_ranks(ranks, kDeep, "zero(stage=1, op=sum)", 1)) expect_same_bits(rank.params, deep[0].params);
  for (const auto& [name, p] : one[0].params) EXPECT_FALSE(at::equal(p, at::zeros_like(p))) << name;
}

TEST(Side, SeveralStepsAccumulationAndRecomputationAreTheSameOnEveryStage) {
  for (const int micro : {1, 2}) {
    const auto reference = on_ranks(2, kDeep, "all_reduce(op=sum)", 3, micro);
    expect_same_bits(on_ranks(2, kDeep, "zero(stage=1, op=sum)", 3, micro)[1].params, reference[0].params, "stage 1");
    expect_same_bits(on_ranks(2, kDeep, "all_reduce(op=sum)", 3, micro, true)[1].params, reference[0].params, "computed again");
    expect_same_bits(on_ranks(2, kDeep, "zero(stage=3, op=sum)", 3, micro, true)[1].params,
                     on_ranks(2, kDeep, "zero(stage=2, op=sum)", 3, micro)[1].params, "stages 2 and 3");
  }
}

TEST(Side, AJobIsDoneByOneRankForAll) {
  int done = 0;
  const auto ranks = on_ranks(3, kDeep, "zero(stage=1, op=sum)", 2);
  for (const auto& rank : ranks) {
    EXPECT_EQ(rank.all_jobs, 4) << "two layers, two steps";
    EXPECT_EQ(rank.counted, 2);
    done += rank.jobs_run;
  }
  EXPECT_EQ(done, 4);
}

TEST(Side, ARuleThatLooksAtLayersRefusesAnEngineThatShowsNone) {
  collective::run_ranks(1, [](collective::Communicator& comm) {
    const Net net(kLinear);
    Engine engine(comm, parameters_of(net.model), {.lanes = 0}, std::make_unique<ByInputs>());
    engine.begin({.step = 1, .lr = 1});
    net.loss(0, 2).backward();
    EXPECT_THAT(failure_of([&] { engine.finish(); }).what, HasSubstr("block_wrapper"));
  });
  collective::run_ranks(1, [](collective::Communicator& comm) {
    const Net net(kLinear);
    const auto refused = [&](const EngineOptions& options) {
      return failure_of([&] { Engine(comm, parameters_of(net.model), options, std::make_unique<ByInputs>()); }).what;
    };
    EXPECT_THAT(refused({.early_update = true}), HasSubstr("early_update"));
    EXPECT_THAT(refused({.strategy = "local_sgd(h=4)"}), HasSubstr("summed over all ranks"));
  });
}

TEST(Side, ARankWithoutSamplesTakesPart) {
  std::vector<Named> params(2);
  collective::run_ranks(2, [&](collective::Communicator& comm) {
    Net net(kLinear);
    Engine engine(comm, parameters_of(net.model), {.strategy = "all_reduce(op=sum)", .lanes = 0}, std::make_unique<ByInputs>());
    net.model.wrap_blocks(engine.block_wrapper());
    engine.begin({.step = 1, .lr = 0.25});
    if (comm.rank() == Rank{0}) net.loss(100, 12).backward();
    engine.finish();
    params[static_cast<std::size_t>(comm.rank().value)] = copies(net.model.named_parameters());
  });
  const auto one = on_ranks(1, kLinear, "all_reduce(op=sum)", 1);
  for (const auto& rank : params) expect_same_bits(rank, one[0].params);
}

}  // namespace
}  // namespace cohort::engine
