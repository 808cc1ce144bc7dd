// A line search for the strong Wolfe conditions that is asked one step at a time, because every value of the loss is a training step:
//   LineSearch search = LineSearch::from(f0, slope0, 1.0, 0.9);      // along a direction with slope0 < 0; the first trial is 1
//   while (search.add(f(search.trial), slope(search.trial)) == LineSearch::Answer::go_on) {}
//   accepted: f <= f0 + c1 trial slope0 + noise |f0|,   |slope| <= c2 |slope0|          (Nocedal and Wright 2006, 3.5 and 3.6)
// First trials grow until they bracket a minimum, each where a cubic through the last two has its least value, then the bracket shrinks by
// cubics, too. noise: sums of float losses differ by that in the last digits. A loss that is not known (NaN) leaves it to the slopes.
// Plain numbers: a copy is a copy of the search, and numbers() and read() carry it through a checkpoint.
// Owner: a value. Threads: one. Failure: Answer::stuck after kMostTrials when no trial was better than the beginning.
#pragma once
#include <array>
#include <cstdint>
#include <limits>

namespace cohort::optim {

struct LineSearch {
  enum class Answer : std::uint8_t { go_on, accepted, stuck };
  struct Point {
    double at = 0, f = 0, slope = 0;
  };
  static constexpr int kMostTrials = 25;
  static constexpr double kC1 = 1e-4, kNoise = 1e-6;
  static constexpr std::size_t kNumbers = 13;

  double trial = 1, f0 = 0, slope0 = 0, c2 = 0.9;
  double stage = 0, trials = 0;  // stage: 0 brackets, 1 zooms
  Point low{}, high{};           // while it brackets: low is the trial before
  double accept_next = 0;        // the trials are used up: the best one is tried again, and taken

  static LineSearch from(double f0, double slope0, double first_trial, double c2);
  Answer add(double f, double slope);  // what the trial had; sets the next one

  std::array<double, kNumbers> numbers() const;
  static LineSearch read(const double* numbers);

 private:
  Answer bracket(const Point& p);
  Answer zoom(const Point& p);
  Answer shrink();
};

// Where the cubic through two points with their slopes has its least value between the bounds; the middle of them where it has none.
double cubic_minimum(const LineSearch::Point& a, const LineSearch::Point& b, double least, double most);

}  // namespace cohort::optim
