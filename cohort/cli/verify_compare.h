// What `cohort verify` compares: two runs of the same step, tensor by tensor. A run is a folder with what cohort-worker verify left there:
//   facts.json                      loss and squared norm of every step; names of the parameters in the model's order
//   gradients/checkpoints/step-1    after one step of plain momentum, whose buffer then is the gradient, bit for bit
//   update/checkpoints/step-0, -K   before and after K steps of the run's own rule
// and of the reference also, for every pattern P of gradient_shifts():
//   shifted.json                    loss and squared norm of every step, by pattern
//   shifted-P/checkpoints/step-K    the same steps with gradients that are off by the tolerance: how far the rule carries what is allowed
// Both may be of any number of ranks and any stage (checkpoint/contents.h). Owner: values. Threads: one. Failure: Kind::corrupt.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cohort/checkpoint/contents.h"

namespace cohort::cli {

// f32: what sums in another order differ by, with a margin; f64: the same, as bits of f32 are gone.
inline constexpr double kTolerance32 = 1e-5, kTolerance64 = 1e-12;

struct Difference {
  std::string tensor;
  std::vector<std::int64_t> index;
  double reference = 0, value = 0;
  double ulps = 0;  // numbers of the tensor's type between the two
};

struct Comparison {
  std::string what{};  // start | loss | gradient | norm | update
  std::size_t tensors = 0, bit_equal = 0;
  std::size_t amplified = 0;          // entries beyond the tolerance, by no more than what gradients within theirs lead to
  double largest = 0;                 // difference
  double scale = 0;                   // the largest entry of the reference: what the tolerance is a part of
  std::string where{};                // the tensor of the largest difference
  std::optional<Difference> first{};  // beyond the tolerance, in the model's order
  bool within() const { return !first; }
  double relative() const { return scale > 0 ? largest / scale : largest; }
};

// One tensor's values, widened to double, with what they were.
struct Values {
  checkpoint::Dtype dtype = checkpoint::Dtype::f32;
  checkpoint::Shape shape;
  std::vector<double> at;
};
Values read_values(const checkpoint::Contents& from, std::string_view group, std::string_view name);
double ulps_between(double a, double b, checkpoint::Dtype dtype);
std::vector<std::int64_t> index_of(std::uint64_t flat, const checkpoint::Shape& shape);

// By element, beside tolerance * comparison.scale; empty: nothing.
struct Allowed {
  std::vector<double> rounding;   // what storing the value may have cost
  std::vector<double> amplified;  // how far gradients that differ within the tolerance lead
};
// Adds a tensor.
void compare(Comparison& into, const std::string& name, const Values& reference, const Values& value, double tolerance,
             const Allowed& allowed = {});

// The largest entry of the gradients of a run, a folder as above.
double largest_gradient(const std::string& run);

// Both folders as above. tolerance: part of the largest entry.
std::vector<Comparison> compare_runs(const std::string& reference, const std::string& run, double tolerance);

}  // namespace cohort::cli
