#include "cohort/optim/schedule.h"

#include <cmath>

#include "cohort/base/error.h"
#include "cohort/base/registry.h"
#include "cohort/base/text.h"
#include "cohort/optim/shape.h"

namespace cohort::optim {
namespace {

const Shape& shape_named(std::string_view name) {
  std::vector<const Shape*> rows;
  for (const Shape& row : shapes()) rows.push_back(&row);
  return find_row<Shape>(rows, name, "schedule");
}

double read_start(const std::string& text) {
  const double start = parse_real(text);
  if (start < 0 || start > 1) throw_failure(Kind::usage, "schedule: warmup_start {} is neither a factor from 0 to 1 nor `base`", text);
  return start;
}

}  // namespace

Schedule Schedule::parse(std::string_view text) {
  const Spec spec = Spec::parse(text);
  Schedule schedule;
  schedule.shape_ = &shape_named(spec.name);
  const SpecValues values = schedule.shape_->schema.read(spec);
  schedule.numbers_ = schedule.shape_->read(values);
  schedule.warmup_ = values.real("warmup");
  const std::string& scale = values.word("scale");
  schedule.scale_ = scale == "linear" ? Scale::linear : scale == "sqrt" ? Scale::sqrt : Scale::none;
  const std::string& start = values.text("warmup_start");
  schedule.from_base_ = start == "base" || (start == "auto" && schedule.scale_ != Scale::none);
  schedule.start_ = start == "base" || start == "auto" ? 0 : read_start(start);
  return schedule;
}

std::vector<const SpecSchema*> Schedule::schemas() {
  std::vector<const SpecSchema*> all;
  for (const Shape& row : shapes()) all.push_back(&row.schema);
  return all;
}

double Schedule::lr(std::int64_t step, std::int64_t total_steps, double base_lr, int workers) const {
  if (step < 0 || total_steps < 1 || workers < 1)
    throw_failure(Kind::usage, "schedule: step {} of {} with {} workers; steps count from 0 and there is at least one step and one worker",
                  step, total_steps, workers);
  const double factor = scale_ == Scale::linear ? workers : scale_ == Scale::sqrt ? std::sqrt(static_cast<double>(workers)) : 1.0;
  const auto total = static_cast<double>(total_steps);
  const Moment now{static_cast<double>(step), total, length_in_steps(warmup_, total), base_lr * factor};
  const double rate = shape_->rate(now, numbers_);
  if (now.step >= now.warm) return rate;
  const double start = from_base_ ? 1 / factor : start_;
  return rate * (start + (1 - start) * now.step / now.warm);
}

}  // namespace cohort::optim
