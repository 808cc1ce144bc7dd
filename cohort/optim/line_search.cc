#include "cohort/optim/line_search.h"

#include <algorithm>
#include <cmath>

namespace cohort::optim {
namespace {

constexpr double kBrackets = 0, kZooms = 1;             // stages
constexpr double kLeastGrowth = 1.1, kMostGrowth = 10;  // of a trial, while it brackets
constexpr double kMargin = 0.1;                         // of the bracket, at both ends, where no trial falls
constexpr double kNarrow = 1e-9;                        // a bracket, beside its ends: nothing more can be told apart

}  // namespace

double cubic_minimum(const LineSearch::Point& a, const LineSearch::Point& b, double least, double most) {
  const double middle = (least + most) / 2;
  double at = middle;
  if (std::isnan(a.f) || std::isnan(b.f)) {  // by slopes alone: where the line through them is zero
    at = a.at - a.slope * (b.at - a.at) / (b.slope - a.slope);
  } else {
    const double d1 = a.slope + b.slope - 3 * (a.f - b.f) / (a.at - b.at), square = d1 * d1 - a.slope * b.slope;
    if (!(square >= 0)) return middle;
    const double d2 = b.at > a.at ? std::sqrt(square) : -std::sqrt(square);
    at = b.at - (b.at - a.at) * ((b.slope + d2 - d1) / (b.slope - a.slope + 2 * d2));
  }
  return std::isfinite(at) ? std::clamp(at, least, most) : middle;
}

LineSearch LineSearch::from(double f0, double slope0, double first_trial, double c2) {
  LineSearch search;
  search.trial = first_trial;
  search.f0 = f0;
  search.slope0 = slope0;
  search.c2 = c2;
  search.low = {0, f0, slope0};
  return search;
}

LineSearch::Answer LineSearch::add(double f, double slope) {
  ++trials;
  const Point p{trial, f, slope};
  if (accept_next != 0) return Answer::accepted;
  return stage == kBrackets ? bracket(p) : zoom(p);
}

// Comparisons with a loss that is not known are false: slopes decide.
LineSearch::Answer LineSearch::bracket(const Point& p) {
  const double limit = f0 + kC1 * p.at * slope0 + kNoise * std::abs(f0);
  if (p.f > limit || (trials > 1 && p.f >= low.f + kNoise * std::abs(f0))) {
    high = p;
    stage = kZooms;
    return shrink();
  }
  if (std::abs(p.slope) <= -c2 * slope0) return Answer::accepted;
  if (p.slope >= 0) {
    high = low;
    low = p;
    stage = kZooms;
    return shrink();
  }
  if (trials >= kMostTrials) return Answer::accepted;  // still downhill, and lower than ever
  const double before = low.at;
  const Point last = low;
  low = p;
  trial = cubic_minimum(last, p, p.at + (kLeastGrowth - 1) * (p.at - before), kMostGrowth * p.at);
  return Answer::go_on;
}

LineSearch::Answer LineSearch::zoom(const Point& p) {
  const double limit = f0 + kC1 * p.at * slope0 + kNoise * std::abs(f0);
  if (p.f > limit || p.f > low.f + kNoise * std::abs(f0)) {
    high = p;
    return shrink();
  }
  if (std::abs(p.slope) <= -c2 * slope0) return Answer::accepted;
  if (p.slope * (high.at - low.at) >= 0) high = low;
  low = p;
  if (trials >= kMostTrials) return Answer::accepted;
  return shrink();
}

LineSearch::Answer LineSearch::shrink() {
  const double least = std::min(low.at, high.at), most = std::max(low.at, high.at), width = most - least;
  if (trials >= kMostTrials || width <= kNarrow * most) {
    if (low.at == 0) return Answer::stuck;
    trial = low.at;  // the best so far; its gradient is needed again
    accept_next = 1;
    return Answer::go_on;
  }
  trial = cubic_minimum(low, high, least + kMargin * width, most - kMargin * width);
  return Answer::go_on;
}

std::array<double, LineSearch::kNumbers> LineSearch::numbers() const {
  return {trial, f0, slope0, c2, stage, trials, low.at, low.f, low.slope, high.at, high.f, high.slope, accept_next};
}

LineSearch LineSearch::read(const double* n) {
  LineSearch s;
  s.trial = n[0], s.f0 = n[1], s.slope0 = n[2], s.c2 = n[3], s.stage = n[4], s.trials = n[5];
  s.low = {n[6], n[7], n[8]};
  s.high = {n[9], n[10], n[11]};
  s.accept_next = n[12];
  return s;
}

}  // namespace cohort::optim
