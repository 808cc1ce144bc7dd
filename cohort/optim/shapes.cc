// The shapes of schedule.h, one row each: name, parameters, closed form.
#include <algorithm>
#include <array>
#include <cmath>

#include "cohort/base/error.h"
#include "cohort/base/text.h"
#include "cohort/optim/exact_math.h"
#include "cohort/optim/shape.h"

namespace cohort::optim {
namespace {

using Type = SpecParam::Type;
using Numbers = std::vector<double>;
using Given = std::span<const double>;

// 0 at the end of the warm-up, 1 at the end of training and after it.
double progress(const Moment& now) {
  if (now.step >= now.total) return 1;
  return now.step <= now.warm ? 0 : (now.step - now.warm) / (now.total - now.warm);
}

double constant_rate(const Moment& now, Given) { return now.full; }

double step_rate(const Moment& now, Given n) {
  const double size = n[0], gamma = n[1];
  return now.full * power(gamma, static_cast<std::int64_t>(now.step / std::max(1.0, length_in_steps(size, now.total))));
}

double multi_step_rate(const Moment& now, Given n) {
  const double gamma = n[0];
  const Given milestones = n.subspan(1);
  return now.full * power(gamma, std::count_if(milestones.begin(), milestones.end(),
                                               [&](double milestone) { return now.step >= length_in_steps(milestone, now.total); }));
}

double cosine_rate(const Moment& now, Given n) {
  const double min = n[0];
  return min + (now.full - min) * (1 + cos_pi(progress(now))) / 2;
}

double polynomial_rate(const Moment& now, Given n) {
  const double exponent = n[0], end = n[1], left = 1 - progress(now);
  const bool whole = exponent == std::floor(exponent) && exponent < 1e6;
  return end + (now.full - end) * (whole ? power(left, static_cast<std::int64_t>(exponent)) : std::pow(left, exponent));
}

Numbers no_numbers(const SpecValues&) { return {}; }
Numbers step_numbers(const SpecValues& v) { return {v.real("size"), v.real("gamma")}; }
Numbers cosine_numbers(const SpecValues& v) { return {v.real("min")}; }
Numbers polynomial_numbers(const SpecValues& v) { return {v.real("power"), v.real("end")}; }
Numbers multi_step_numbers(const SpecValues& v) {
  Numbers numbers{v.real("gamma")};
  const std::string& text = v.text("milestones");
  for (const std::string_view part : split(text, ',')) {
    numbers.push_back(parse_real(trim(part)));
    if (!(numbers.back() > 0)) throw_failure(Kind::usage, "schedule: milestone {} of \"{}\" is not after the start", part, printable(text));
  }
  if (numbers.size() == 1) throw_failure(Kind::usage, "schedule: multi_step needs at least one milestone, as in \"30, 60, 80\"");
  return numbers;
}

SpecParam real_param(std::string name, std::string doc, std::string preset) {
  return {.name = std::move(name), .type = Type::real, .doc = std::move(doc), .preset = std::move(preset), .low = 0};
}
SpecParam gamma_param() { return real_param("gamma", "factor of each fall", "0.1"); }

SpecSchema with_warmup(std::string name, std::string doc, std::vector<SpecParam> params = {}) {
  params.push_back(real_param("warmup", "length of the linear warm-up: steps, or a fraction of all", "0"));
  params.push_back({"warmup_start", Type::text, "where it starts: a factor 0..1 of the full rate, or base", "auto"});
  params.push_back(
      {.name = "scale", .type = Type::word, .doc = "growth with the workers", .preset = "none", .words = {"none", "linear", "sqrt"}});
  return {std::move(name), std::move(doc), std::move(params)};
}

}  // namespace

std::span<const Shape> shapes() {
  constexpr double kTiny = 1e-12;  // a length has to be positive
  static const std::array rows{
      Shape{"constant", with_warmup("constant", "the same rate throughout"), no_numbers, constant_rate},
      Shape{"step",
            with_warmup("step", "falls by gamma every `size` steps",
                        {{.name = "size", .type = Type::real, .doc = "steps, or a fraction of all", .low = kTiny}, gamma_param()}),
            step_numbers, step_rate},
      Shape{"multi_step",
            with_warmup("multi_step", "falls by gamma at each milestone",
                        {{"milestones", Type::text, "\"30, 60, 80\": steps, or fractions of all"}, gamma_param()}),
            multi_step_numbers, multi_step_rate},
      Shape{"cosine", with_warmup("cosine", "half a cosine from the full rate to `min`", {real_param("min", "the last rate", "0")}),
            cosine_numbers, cosine_rate},
      Shape{"polynomial",
            with_warmup("polynomial", "falls to `end` with the given power; 1 is a straight line",
                        {real_param("power", "of what is left of the steps", "1"), real_param("end", "the last rate", "0")}),
            polynomial_numbers, polynomial_rate}};
  return rows;
}

double length_in_steps(double given, double total) { return given < 1 ? std::round(given * total) : given; }

}  // namespace cohort::optim
