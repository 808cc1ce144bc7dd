// Every rule that runs on GPUs beside the same rule on the processor: parameters and states have the same bits after steps of noise.
#include "cohort/optim/rule.h"

#include "cohort/base/failure_of.h"
#include "cohort/optim/exact_sum.h"
#include "cohort/optim/optimizer.h"
#include "tests/gpu/testing.h"

namespace cohort::optim {
namespace {

std::vector<std::string> specs() {
  std::vector<std::string> all{"sgd(momentum=0.9)",
                               "sgd(momentum=0.9, dampening=0.1)",
                               "sgd(momentum=0.9, nesterov=true)",
                               "adam(amsgrad=true)",
                               "adamw(amsgrad=true)",
                               "rmsprop(momentum=0.9)",
                               "rmsprop(centered=true)",
                               "rmsprop(momentum=0.9, centered=true)",
                               "lamb(adapt=all)",
                               "lars(momentum=0)",
                               "lars(form=gradient)",
                               "lars(form=tensorflow)",
                               "larc(mode=scale)",
                               "larc(nesterov=true)",
                               "nadam(decoupled=true)",
                               "radam(decoupled=true)",
                               "radam(beta2=0.5)"};
  for (const Rule* rule : rules()) {
    const Needs needs = make(rule->name)->needs();
    if (needs.grain == Grain::block && !needs.taps && !needs.side) all.emplace_back(rule->name);
  }
  return all;
}

// A tensor with gradient and states, here or on the GPU.
template <class T>
struct Tensor {
  Tensor(const Optimizer& rule, std::size_t count, std::size_t skew, bool on_gpu)
      : rule_(rule), on_gpu_(on_gpu), w(noise<T>(count, 11)), g(count), there_w(w, skew), there_g(g, skew) {
    for (std::size_t k = 0; k < rule.state_names().size(); ++k) {
      s.emplace_back(count, static_cast<T>(rule.initial_state(k)));
      there_s.emplace_back(s.back(), skew);
    }
  }

  void step(const StepInfo& info) {
    g = noise<T>(g.size(), 100 + static_cast<unsigned>(info.step));
    if (on_gpu_) cuda::copy(there_g.data(), g.data(), g.size() * sizeof(T), kGpu);
    std::vector<void*> states;
    for (std::size_t k = 0; k < s.size(); ++k) states.push_back(on_gpu_ ? there_s[k].data() : s[k].data());
    Slice slice{.param = on_gpu_ ? there_w.data() : w.data(),
                .grad = on_gpu_ ? there_g.data() : g.data(),
                .state = states,
                .count = w.size(),
                .dtype = kDtypeOf<T>,
                .lr_scale = 0.7,
                .weight_decay = 0.03,
                .device = on_gpu_ ? kGpu : Device::cpu};
    sums.clear();
    for (int round = 0; round < rule_.needs().rounds; ++round) {
      std::vector<ExactSum> exact(static_cast<std::size_t>(rule_.needs().per_tensor));
      slice.sums = sums;
      rule_.measure(round, slice, info, exact);
      for (const ExactSum& sum : exact) sums.push_back(sum.value());
    }
    slice.sums = sums;
    rule_.update(slice, info);
    if (!on_gpu_) return;
    w = there_w.values();
    g = there_g.values();
    for (std::size_t k = 0; k < s.size(); ++k) s[k] = there_s[k].values();
  }

  const Optimizer& rule_;
  const bool on_gpu_;
  std::vector<T> w, g;
  std::vector<std::vector<T>> s;
  std::vector<double> sums;
  OnGpu<T> there_w, there_g;
  std::vector<OnGpu<T>> there_s;
};

template <class T>
void expect_the_processors_bits(const Optimizer& rule, std::size_t count, std::size_t skew) {
  Tensor<T> here(rule, count, skew, false), there(rule, count, skew, true);
  for (std::int64_t step = 1; step <= 7; ++step) {
    const StepInfo info{.step = step, .lr = 0.05, .grad_scale = 0.3, .clear_grad = step % 2 == 0};
    here.step(info);
    there.step(info);
    EXPECT_EQ(there.sums, here.sums) << step;
    EXPECT_TRUE(same_bits(there.w, here.w)) << step;
    EXPECT_TRUE(same_bits(there.g, here.g)) << step;
    for (std::size_t k = 0; k < here.s.size(); ++k) EXPECT_TRUE(same_bits(there.s[k], here.s[k])) << step;
  }
}

TEST(GpuRules, GiveTheProcessorsBitsForAnySizeAndPlace) {
  for (const std::string& spec : specs()) {
    SCOPED_TRACE(spec);
    const auto rule = make(spec);
    ASSERT_TRUE(rule->runs_on_gpus()) << "name it in cohort_gpu_rules of cohort/optim/CMakeLists.txt";
    for (const std::size_t count : {1, 3, 255, 1024, 70001})
      for (const std::size_t skew : {0, 1}) {
        SCOPED_TRACE(count * 10 + skew);
        expect_the_processors_bits<float>(*rule, count, skew);
        expect_the_processors_bits<double>(*rule, count, skew);
      }
  }
}

TEST(GpuRules, RefuseTensorsWhereTheyComputeWithWholeOnes) {
  const auto rule = make("adafactor");
  EXPECT_FALSE(rule->runs_on_gpus());
  const std::vector<float> values(6);
  const OnGpu<float> w(values), g(values), row(values), col(values);
  const std::vector<std::int64_t> shape{2, 3};
  std::vector<void*> states{row.data(), col.data()};
  const Slice slice{.param = w.data(), .grad = g.data(), .state = states, .count = 6, .name = "fc.weight", .shape = shape, .device = kGpu};
  EXPECT_THAT(failure_of([&] { rule->update(slice, {.step = 1, .lr = 0.1}); }).what, testing::HasSubstr("take a rule of single elements"));
}

}  // namespace
}  // namespace cohort::optim
