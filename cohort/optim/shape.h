// A row of the table of schedules (shapes.cc): the rate without warm-up, as a function of where training stands. For schedule.cc.
#pragma once
#include <span>
#include <string_view>
#include <vector>

#include "cohort/base/spec.h"

namespace cohort::optim {

struct Moment {  // lengths in steps; `step` and `total` count from the first update, `warm` is the length of the warm-up
  double step, total, warm, full;
};

struct Shape {
  std::string_view name;
  SpecSchema schema;  // its own parameters and those of every schedule: warmup, warmup_start, scale
  std::vector<double> (*read)(const SpecValues& values);
  double (*rate)(const Moment& now, std::span<const double> numbers);  // numbers: what read() gave
};

std::span<const Shape> shapes();

// A length as people write it: steps, or below 1 a fraction of all of them, to the nearest whole step.
double length_in_steps(double given, double total);

}  // namespace cohort::optim
