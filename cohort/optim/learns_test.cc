// That every rule learns with what it takes for granted: a small network on clouds of points, without torch.
#include <gtest/gtest.h>

#include "cohort/base/algebra.h"
#include "cohort/optim/rule.h"
#include "cohort/optim/testing.h"

namespace cohort::optim {
namespace {

constexpr std::size_t kIn = 24, kHidden = 48, kClasses = 6, kBatch = 64;

// in -> hidden -> classes by tanh and cross entropy; classes are clouds around 4 points each, which no plane parts.
class Net {
 public:
  explicit Net(const Optimizer& rule) {
    const auto add = [&](const char* name, cohort::Shape shape, double size) {
      tensors_.emplace_back(rule, TensorInfo{name, std::move(shape)});
      std::uniform_real_distribution<double> uniform(-size, size);
      for (float& w : tensors_.back().w) w = static_cast<float>(uniform(random_));
    };
    add("in.weight", {kHidden, kIn}, 1 / std::sqrt(static_cast<double>(kIn)));
    add("in.bias", {kHidden}, 1 / std::sqrt(static_cast<double>(kIn)));
    add("out.weight", {kClasses, kHidden}, 1 / std::sqrt(static_cast<double>(kHidden)));
    add("out.bias", {kClasses}, 1 / std::sqrt(static_cast<double>(kHidden)));
    std::normal_distribution<double> normal;
    for (float& c : centres_) c = static_cast<float>(normal(random_));
  }

  // One step on a fresh batch; the loss before it.
  double step(const Optimizer& rule, std::int64_t t) {
    draw();
    const double loss = forward_and_backward();
    for (auto& tensor : tensors_) tensor.update(rule, {.step = t, .lr = rule.default_lr()}, {.weight_decay = rule.default_weight_decay()});
    return loss;
  }

 private:
  void draw() {
    std::normal_distribution<double> normal(0, 0.3);
    for (std::size_t n = 0; n < kBatch; ++n) {
      const std::size_t cloud = random_() % (4 * kClasses);
      label_[n] = cloud % kClasses;
      for (std::size_t j = 0; j < kIn; ++j) x_[n * kIn + j] = centres_[cloud * kIn + j] + static_cast<float>(normal(random_));
    }
  }
  double forward_and_backward() {
    const Algebra algebra;
    auto &w1 = tensors_[0], &b1 = tensors_[1], &w2 = tensors_[2], &b2 = tensors_[3];
    const Matrix<float> x(x_.data(), kBatch, kIn), h(h_.data(), kBatch, kHidden), y(y_.data(), kBatch, kClasses),
        dh(dh_.data(), kBatch, kHidden);
    const Matrix<float> in(w1.w.data(), kHidden, kIn), out(w2.w.data(), kClasses, kHidden);
    algebra.multiply<float>(1, x, in.transposed(), 0, h);
    for (std::size_t i = 0; i < h_.size(); ++i) h_[i] = std::tanh(h_[i] + b1.w[i % kHidden]);
    algebra.multiply<float>(1, h, out.transposed(), 0, y);
    double loss = 0;
    for (std::size_t n = 0; n < kBatch; ++n) {
      float* const row = y_.data() + n * kClasses;
      double sum = 0;
      for (std::size_t k = 0; k < kClasses; ++k) sum += std::exp(static_cast<double>(row[k] += b2.w[k]));
      loss += (std::log(sum) - static_cast<double>(row[label_[n]])) / kBatch;
      for (std::size_t k = 0; k < kClasses; ++k)
        row[k] = static_cast<float>((std::exp(static_cast<double>(row[k])) / sum - (k == label_[n])) / kBatch);
    }
    algebra.multiply<float>(1, y.transposed(), h, 0, {w2.g.data(), kClasses, kHidden});
    algebra.multiply<float>(1, y, out, 0, dh);
    for (std::size_t i = 0; i < dh_.size(); ++i) dh_[i] *= 1 - h_[i] * h_[i];
    algebra.multiply<float>(1, dh.transposed(), x, 0, {w1.g.data(), kHidden, kIn});
    std::fill(b1.g.begin(), b1.g.end(), 0.0F), std::fill(b2.g.begin(), b2.g.end(), 0.0F);
    for (std::size_t i = 0; i < dh_.size(); ++i) b1.g[i % kHidden] += dh_[i];
    for (std::size_t i = 0; i < y_.size(); ++i) b2.g[i % kClasses] += y_[i];
    return loss;
  }
  std::mt19937 random_{17};
  std::vector<Field<float>> tensors_{};
  std::vector<float> centres_ = std::vector<float>(4 * kClasses * kIn), x_ = std::vector<float>(kBatch * kIn),
                     h_ = std::vector<float>(kBatch * kHidden), dh_ = h_, y_ = std::vector<float>(kBatch * kClasses);
  std::vector<std::size_t> label_ = std::vector<std::size_t>(kBatch);
};

double loss_of(const std::string& spec, int steps) {
  const auto rule = make(spec);
  Net net(*rule);
  double last = 0;
  for (int t = 1; t <= steps; ++t) {
    const double loss = net.step(*rule, t);
    if (t > steps - 20) last += loss / 20;
  }
  return last;
}

TEST(Learns, EveryRuleDoesWithItsDefaults) {
  const double guessing = std::log(static_cast<double>(kClasses));
  for (const Rule* rule : rules()) {
    if (make(rule->name)->needs().loss && make(rule->name)->needs().side) continue;  // they go along lines on one function: lbfgs_test.cc
    const double slow = rule->name == "sgd" ? 0.95 : 0.8;                            // torch's rate of it is small
    EXPECT_LT(loss_of(std::string(rule->name), 300), slow * guessing) << rule->name;
  }
}

}  // namespace
}  // namespace cohort::optim
