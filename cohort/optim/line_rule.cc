#include "cohort/optim/line_rule.h"

#include <algorithm>

#include "cohort/optim/wide.h"

namespace cohort::optim {
namespace {

constexpr std::size_t kLanes = 16;         // independent sums, folded as a binary tree: vectors of any width give the same bits
constexpr double kLeastCurvature = 1e-10;  // of <s, y> beside |y|^2: below it a pair says nothing of the curvature

double folded(std::array<double, kLanes> lanes) {
  for (std::size_t half = kLanes / 2; half > 0; half /= 2)
    for (std::size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  return lanes[0];
}
template <class X, class Y>
double product(const X& x, const Y& y, std::size_t n) {
  std::array<double, kLanes> lanes{};
  for (std::size_t i = 0; i < n; ++i) lanes[i % kLanes] += static_cast<double>(x[i]) * static_cast<double>(y[i]);
  return folded(lanes);
}

}  // namespace

// --- memory
template <class T>
void LineMemory::read(const T* from) {
  const auto next = [&] {
    const double value = read_wide(from);
    from += 2;
    return value;
  };
  std::array<double, LineSearch::kNumbers> numbers{};
  for (double& x : numbers) x = next();
  search = LineSearch::read(numbers.data());
  for (double* x : {&begun, &pairs, &newest, &steepest, &gg}) *x = next();
  for (auto* matrix : {&ss, &sy, &yy})
    for (double& x : *matrix) x = next();
}
template <class T>
void LineMemory::write(T* to) const {
  const auto next = [&](double value) {
    write_wide(to, value);
    to += 2;
  };
  for (const double x : search.numbers()) next(x);
  for (const double x : {begun, pairs, newest, steepest, gg}) next(x);
  for (const auto* matrix : {&ss, &sy, &yy})
    for (const double x : *matrix) next(x);
}

// --- products
std::vector<double> LineRule::measured(const Slice& s, double grad_scale) const {
  std::vector<double> found;
  with_real(s.dtype, [&](auto zero) { found = measured_in(View<decltype(zero)>(s, grad_scale)); });
  return found;
}

template <class T>
std::vector<double> LineRule::measured_in(const View<T>& v) const {
  std::vector<double> g(v.n), y(v.n), absolute(v.n), ones(v.n, 1.0);
  for (std::size_t i = 0; i < v.n; ++i) {
    g[i] = v.gradient(i);
    y[i] = g[i] - static_cast<double>(v.previous[i]);
    absolute[i] = std::abs(g[i]);
  }
  const auto of = [&](const auto& a, const auto& b) { return product(a, b, v.n); };
  std::vector<double> all{of(g, g),          of(g, v.d), of(g, y), of(y, y), of(y, v.d), of(v.d, v.d), v.decay / 2 * of(v.w, v.w),
                          of(absolute, ones)};
  for (std::size_t k = 0; k < memory_; ++k) {
    const T *const s = v.steps + k * v.n, *const c = v.changes + k * v.n;
    for (const double x : {of(g, s), of(g, c), of(y, s), of(y, c), of(v.d, s), of(v.d, c)}) all.push_back(x);
  }
  return all;
}

LineProducts LineRule::products_of(const std::vector<double>& t) const {
  LineProducts p{t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], {}};
  for (std::size_t k = 0; k < memory_; ++k) {
    const double* const x = t.data() + LineProducts::kFixed + k * LineProducts::kEach;
    p.pairs.push_back({x[0], x[1], x[2], x[3], x[4], x[5]});
  }
  return p;
}

// --- decisions
LineRule::Move LineRule::decide(LineMemory& memory, const LineProducts& given, double loss) const {
  LineProducts p = given;
  const double f = loss + p.decay;
  if (std::sqrt(p.gg) <= least_gradient_) return {};
  const LineDirection along_gradient{.slope = -p.gg, .first_trial = std::min(1.0, 1 / p.g1) * lr_, .s = {}, .y = {}};
  if (memory.begun == 0) {
    memory.steepest = 1;
    return begin_line(memory, p, f, p.gg, along_gradient);
  }
  LineSearch& search = memory.search;
  const double tried = search.trial;
  switch (search.add(f, p.gd)) {
    case LineSearch::Answer::go_on: return {.kind = Move::trial, .at = search.trial};
    case LineSearch::Answer::stuck: {
      if (memory.steepest != 0) {  // along the gradient itself: rounding is all that is left
        search = LineSearch::from(search.f0, search.slope0, 0, c2_);
        return {.kind = Move::trial, .at = 0};
      }
      memory.pairs = 0;
      memory.newest = -1;
      memory.steepest = 1;
      const double gg = memory.gg, first = std::min(1.0, 1 / std::sqrt(gg)) * lr_;
      search = LineSearch::from(search.f0, -gg, first, c2_);
      return {.kind = Move::back, .at = first};
    }
    case LineSearch::Answer::accepted: break;
  }
  const int slot = keep_pair(memory, p, tried);
  LineDirection direction = turn(memory, p, tried);
  memory.steepest = direction.slope < 0 ? 0 : 1;
  if (memory.steepest != 0) direction = along_gradient, memory.pairs = 0, memory.newest = -1;
  direction.s.resize(memory_), direction.y.resize(memory_);
  Move next = begin_line(memory, p, f, p.gg, std::move(direction));
  next.accepted = tried;
  next.slot = slot;
  return next;
}

LineRule::Move LineRule::begin_line(LineMemory& memory, const LineProducts&, double f, double gg, LineDirection direction) const {
  memory.begun = 1;
  memory.gg = gg;
  memory.search = LineSearch::from(f, direction.slope, direction.first_trial, c2_);
  direction.s.resize(memory_), direction.y.resize(memory_);
  return {.kind = Move::turn, .at = direction.first_trial, .direction = std::move(direction)};
}

// The step a d and what the gradient changed by, into the place of the oldest; p then has its products with the gradient, too.
int LineRule::keep_pair(LineMemory& memory, LineProducts& p, double a) const {
  if (memory_ == 0 || !(a * p.yd > kLeastCurvature * p.yy)) return -1;
  const auto slot = static_cast<std::size_t>(static_cast<int>(memory.newest) + 1) % memory_;
  for (std::size_t i = 0; i < memory_; ++i) {
    if (i == slot) continue;
    const LineProducts::Pair& q = p.pairs[i];
    memory.ss[slot * memory_ + i] = memory.ss[i * memory_ + slot] = a * q.d_s;
    memory.yy[slot * memory_ + i] = memory.yy[i * memory_ + slot] = q.y_y;
    memory.sy[slot * memory_ + i] = a * q.d_y;
    memory.sy[i * memory_ + slot] = q.y_s;
  }
  memory.ss[slot * memory_ + slot] = a * a * p.dd;
  memory.sy[slot * memory_ + slot] = a * p.yd;
  memory.yy[slot * memory_ + slot] = p.yy;
  p.pairs[slot].g_s = a * p.gd;
  p.pairs[slot].g_y = p.gy;
  memory.newest = static_cast<double>(slot);
  memory.pairs = std::min(memory.pairs + 1, static_cast<double>(memory_));
  return static_cast<int>(slot);
}

// --- what moves
template <class T>
void LineRule::move(const View<T>& v, const Move& m) const {
  const auto t = [](double x) { return static_cast<T>(x); };
  const auto go = [&](std::size_t i) { v.w[i] = t(static_cast<double>(v.start[i]) + v.root * m.at * static_cast<double>(v.d[i])); };
  for (std::size_t i = 0; i < v.n; ++i) {
    if (m.kind == Move::back) v.d[i] = -v.previous[i];
    if (m.kind == Move::turn) {
      const double g = v.gradient(i), old = static_cast<double>(v.d[i]);
      if (m.slot >= 0) {
        const std::size_t at = static_cast<std::size_t>(m.slot) * v.n + i;
        v.steps[at] = t(m.accepted * old);
        v.changes[at] = t(g - static_cast<double>(v.previous[i]));
      }
      double d = m.direction.g * g + m.direction.d * old;
      for (std::size_t k = 0; k < memory_; ++k)
        d += m.direction.s[k] * static_cast<double>(v.steps[k * v.n + i]) + m.direction.y[k] * static_cast<double>(v.changes[k * v.n + i]);
      v.d[i] = t(d);
      v.previous[i] = t(g);
      v.start[i] = v.w[i];
    }
    go(i);
  }
}

template <class T>
void LineRule::run(const Slice& s, const StepInfo& info) const {
  const View<T> v(s, info.grad_scale);
  if (info.lr != 0) {
    LineMemory memory(memory_);
    memory.read(View<T>::at(s, kSearch));
    const bool prepared = step_ == info.step && !totals_.empty();
    const Move next = decide(memory, products_of(prepared ? totals_ : measured(s, info.grad_scale)), info.loss);
    if (next.kind != Move::hold) move(v, next);
    memory.write(View<T>::at(s, kSearch));
  }
  if (info.clear_grad) std::fill_n(v.g, v.n, T{0});
}

template void LineRule::run<float>(const Slice&, const StepInfo&) const;
template void LineRule::run<double>(const Slice&, const StepInfo&) const;

std::vector<SpecParam> line_params(std::string_view c2) {
  return {
      {.name = "lr",
       .type = SpecParam::Type::real,
       .doc =
           "factor of the first trial along the gradient, which is 1 / |g|_1 long or shorter; schedules change nothing, but 0 stands still",
       .preset = "1",
       .low = 0},
      weight_decay_param("0", "added to the gradient, times w, and to the loss, times |w|^2 / 2"),
      {.name = "c2",
       .type = SpecParam::Type::real,
       .doc = "share of the slope that may be left where a line search ends: smaller ones search longer",
       .preset = std::string(c2),
       .low = 1e-3,
       .high = 0.999},
      number_param("gtol", "1e-7", "norm of the gradient at which it stays where it is")};
}

}  // namespace cohort::optim
