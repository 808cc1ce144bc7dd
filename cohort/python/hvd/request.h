// A Request is one operation of hvd as the queue wants it: tensors checked and turned into pieces, results allocated.
// Owner: the caller until HorovodRuntime::submit(). Threads: any, with or without the GIL.
// Failure: Kind::usage for a tensor that cannot take part: strided, of a foreign type, not on the CPU, of a wrong shape.
// To add an operation: a function here, its line in bind_runtime.cc, its Python function in cohort/torch/.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "cohort/queue/operation.h"

namespace cohort::python {

using Tensors = std::vector<at::Tensor>;

// The results of an operation; lives until take().
struct PendingTensors {
  Tensors outputs;                                  // one per part; those of the gathering operations are made on the progress thread
  std::vector<std::int64_t> rows{};                 // elements in a row of each part: counts of elements become counts of rows
  std::vector<std::vector<std::int64_t>> shapes{};  // of outputs that the caller gave
  // torch refuses to resize a tensor in flight, but only after it has changed its sizes: they are put back.
  void restore_shapes() const;
};

// Keeps the memory of an operation in flight. A tensor may be dropped meanwhile, not resized: torch itself refuses that.
class Hold {
 public:
  explicit Hold(std::shared_ptr<PendingTensors> pending) : pending_(std::move(pending)) {}
  ~Hold();
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
  void add(const at::Tensor& tensor);

 private:
  std::shared_ptr<PendingTensors> pending_;
  Tensors held_;  // views without a Python object: the progress thread drops them without the GIL
};

struct Request {
  queue::Operation operation;
  std::shared_ptr<PendingTensors> pending = std::make_shared<PendingTensors>();
  std::shared_ptr<Hold> hold = std::make_shared<Hold>(pending);
};

enum class Reduce : int { average = 0, sum = 1, adasum = 2, min = 3, max = 4, product = 5 };  // hvd's numbers
struct Reduction {
  Reduce op = Reduce::sum;
  double prescale = 1.0, postscale = 1.0;
};

// outputs: where results go, tensor by tensor (they may be the inputs); none: into new tensors.
Request all_reduce(const Tensors& inputs, const std::optional<Tensors>& outputs, Reduction how);
Request broadcast(const at::Tensor& input, const std::optional<at::Tensor>& output, Rank root);
Request all_gather(const Tensors& inputs);
// splits: rows for each rank, adding up to the tensor's; none: even.
Request all_to_all(const at::Tensor& input, const std::optional<std::vector<std::int64_t>>& splits, int ranks);
Request reduce_scatter(const Tensors& inputs, Reduction how, Rank me, int ranks);
Request barrier();

}  // namespace cohort::python
