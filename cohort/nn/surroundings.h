// Surroundings are what a function's results depend on beside its inputs: the state of random numbers, and autocast.
//   const Surroundings then(inputs);     // as they are now
//   { const Return back(then); f(inputs); }   // the same again; afterwards the world goes on where it was
// Autocast's copies of weights belong to the graph they were made in: they are dropped before and after.
// Owner: values. Threads: the state is of the thread that calls, and the generators are the process's.
#pragma once
#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

namespace cohort::nn {

class Surroundings {
 public:
  explicit Surroundings(const std::vector<at::Tensor>& inputs);  // of the CPU and of every device an input is on

 private:
  friend class Return;
  struct Device {
    c10::Device device;
    at::Tensor dice;  // the generator's state
    bool autocast;
    at::ScalarType dtype;
  };
  explicit Surroundings(const std::vector<Device>& devices);
  static Device read(c10::Device device);
  void apply() const;

  std::vector<Device> devices_;
  bool cache_;
};

// Back to the surroundings of another time, while it lives.
class Return {
 public:
  explicit Return(const Surroundings& to);
  ~Return();
  Return(const Return&) = delete;
  Return& operator=(const Return&) = delete;

 private:
  const Surroundings now_;
};

// While it lives autocast copies weights anew, and nothing that it copies outlives it.
class OwnCasts {
 public:
  OwnCasts();
  ~OwnCasts();
  OwnCasts(const OwnCasts&) = delete;
  OwnCasts& operator=(const OwnCasts&) = delete;
};

}  // namespace cohort::nn
