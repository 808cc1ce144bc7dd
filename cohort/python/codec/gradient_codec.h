// A GradientCodec reduces gradients of named parameters by way of a codec, for cohort.torch's optimizers and torch's DDP.
//   codec.reduce(comm, {{"fc.weight", "fc.bias"}, ...}, gradients, step, call)   // a unit: what travels as one
//   codec.settle(true)                                                           // the step was made; false: it was called off
// What the codec did not send is kept by parameter (codec/feedback.h). Units may be put together anew, over other ranks too: a residual
// follows its parameter. What a rank keeps of the sum of elements that it owns goes to its own residual where it will own others: times
// the ranks of an average, so that the sum over ranks of what is kept stays what it was.
// Owner: Python, and the operations in flight. Threads: any; one reduction at a time. Failure: as CodedReduce; Kind::usage for what a
// codec cannot take.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cohort/sync/coded_reduce.h"

namespace cohort::python {

struct CodedUnit {
  std::vector<std::string> names{};  // of the parameters, unique among all units
  std::vector<Piece> gradients{};    // fp32, reduced in place
  std::vector<Shape> shapes{};       // of the parameters, for codecs that take them for matrices; none: nobody knows
  collective::Op op = collective::Op::average;
  double weight = 1;  // learning rate / loss scale
  double unit = 1;    // 1 / loss scale
};

// What is kept of one parameter between steps.
struct Residual {
  std::vector<float> sent{};   // of this rank's own gradient: all elements, or none
  std::vector<float> owned{};  // of the sum: the elements from `first` on that this rank owns
  std::size_t first = 0;
  std::vector<float> velocity{};  // of this rank's own gradients, where the codec keeps their momentum
  std::vector<float> memory{};    // what the codec begins the next step with, the same on all ranks
  double share = 1;               // what an element of `owned` is worth in `sent`: the ranks of an average
  double weight = 0;              // at which both were left; 0: no step was made yet
  std::int64_t step = 0;          // steps made: what random numbers are drawn by
};

enum class Verdict : std::uint8_t {
  by_caller,  // settle() says whether the step was made; a reduction before it does the step again
  by_values,  // the next reduction of a unit says it: the step was made if its gradients came out finite
};

class GradientCodec {
 public:
  GradientCodec(std::string_view spec, std::uint64_t seed, Verdict verdict);
  ~GradientCodec();
  GradientCodec(const GradientCodec&) = delete;
  GradientCodec& operator=(const GradientCodec&) = delete;

  const std::string& spec() const { return codec_->spec(); }
  bool feedback() const { return codec_->feedback(); }
  bool momentum() const { return codec_->momentum().has_value(); }  // it is the codec's: the optimizer must have none
  void check(const CodedUnit& unit) const;                          // before anything is sent
  void reduce(collective::Communicator& comm, const CodedUnit& unit, const collective::Call& call);  // collective
  void settle(bool made);
  std::map<std::string, Residual> residuals() const;        // of the steps made
  void restore(std::map<std::string, Residual> residuals);  // what is kept of those parameters; one without values: their steps alone

 private:
  struct Unit;
  Unit& unit_for(const CodedUnit& unit, collective::Communicator& comm);
  void dissolve(Unit& unit);
  void settle(Unit& unit, bool made) const;

  const std::shared_ptr<const codec::Codec> codec_;
  const std::uint64_t seed_;
  const Verdict verdict_;
  mutable std::mutex mutex_;
  // ---- guarded by mutex_
  std::vector<std::unique_ptr<Unit>> units_;
  std::map<std::string, Residual> loose_;  // of parameters that are in no unit now
};

}  // namespace cohort::python
