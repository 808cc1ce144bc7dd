#include "cohort/python/hvd/request.h"

#include <ATen/ops/empty.h>
#include <fmt/ranges.h>

#include <mutex>
#include <numeric>
#include <unordered_map>

#include "cohort/nn/tensor.h"

namespace cohort::python {
namespace {

// Storages in flight, with how often, and whether they may be resized when they are not.
struct Pins {
  struct Pin {
    int count = 0;
    bool resizable = false;
  };
  std::mutex mutex;
  std::unordered_map<c10::StorageImpl*, Pin> pins;

  void add(c10::StorageImpl* storage) {
    std::lock_guard lock(mutex);
    Pin& pin = pins[storage];
    if (pin.count++ > 0) return;
    pin.resizable = storage->resizable();
    storage->set_resizable(false);
  }
  void remove(c10::StorageImpl* storage) {
    std::lock_guard lock(mutex);
    const auto at = pins.find(storage);
    if (--at->second.count > 0) return;
    storage->set_resizable(at->second.resizable);
    pins.erase(at);
  }
};
Pins& pins() {
  static Pins all;
  return all;
}

std::vector<std::int64_t> shape_of(const at::Tensor& tensor) { return tensor.sizes().vec(); }

// Elements in a row: what lies behind one index of the first dimension.
std::int64_t row_of(const at::Tensor& tensor) {
  const auto rest = tensor.sizes().slice(1);
  return std::accumulate(rest.begin(), rest.end(), std::int64_t{1}, std::multiplies<>());
}

at::Tensor new_tensor(at::IntArrayRef sizes, const at::Tensor& like) {
  return at::empty(sizes, at::TensorOptions().dtype(like.scalar_type()));
}

at::Tensor new_rows(std::int64_t rows, const at::Tensor& like) {
  std::vector<std::int64_t> sizes = shape_of(like);
  sizes[0] = rows;
  return new_tensor(sizes, like);
}

void need_rows(const at::Tensor& tensor, std::string_view collective) {
  if (tensor.dim() == 0) {
    throw_failure(Kind::usage, "{} splits and joins along the first dimension, and this tensor has none; pass tensor.reshape(1)",
                  collective);
  }
  if (tensor.size(0) > 0 && tensor.numel() == 0) {
    throw_failure(Kind::usage, "{} of a tensor of shape [{}]: rows without elements cannot be counted", collective,
                  fmt::join(tensor.sizes(), ", "));
  }
}

Request begin(queue::Collective collective, const Tensors& inputs) {
  if (inputs.empty() && collective != queue::Collective::barrier) throw_failure(Kind::usage, "a group of tensors needs at least one");
  Request request;
  request.operation.collective = collective;
  for (const at::Tensor& input : inputs) {
    queue::Part& part = request.operation.parts.emplace_back();
    part.in = nn::piece(input);
    part.shape = shape_of(input);
    request.hold->add(input);
  }
  request.operation.keep = request.hold;
  return request;
}

void reduce_by(queue::Operation& operation, Reduction how) {
  using collective::Op;
  switch (how.op) {
    case Reduce::average: operation.op = Op::average; break;
    case Reduce::sum: operation.op = Op::sum; break;
    case Reduce::adasum: operation.adasum = true; break;
    case Reduce::min: operation.op = Op::min; break;
    case Reduce::max: operation.op = Op::max; break;
    case Reduce::product: operation.op = Op::product; break;
    default: throw_failure(Kind::usage, "{} is not a reduction; use Average, Sum, Adasum, Min, Max or Product", static_cast<int>(how.op));
  }
  operation.prescale = how.prescale;
  operation.postscale = how.postscale;
}

void same_layout(const at::Tensor& input, const at::Tensor& output) {
  if (input.sizes() == output.sizes() && input.scalar_type() == output.scalar_type()) return;
  throw_failure(Kind::usage, "the result has shape [{}] and type {}, the tensor [{}] and {}", fmt::join(output.sizes(), ", "),
                c10::toString(output.scalar_type()), fmt::join(input.sizes(), ", "), c10::toString(input.scalar_type()));
}

// Where part i's result goes: the tensor given, or a new one.
void deliver(Request& request, std::size_t i, const at::Tensor& input, const at::Tensor* output) {
  const at::Tensor result = output != nullptr ? *output : new_tensor(input.sizes(), input);
  if (output != nullptr) {
    same_layout(input, result);
    request.hold->add(result);
    request.pending->shapes.push_back(shape_of(result));
  }
  request.operation.parts[i].out = nn::piece(result);
  if (request.operation.parts[i].out.data == nullptr) request.operation.parts[i].out = {};  // nothing to write
  request.pending->outputs.push_back(result);
}

std::vector<std::size_t> elements(const std::vector<std::int64_t>& rows, std::int64_t row) {
  std::vector<std::size_t> counts;
  for (const std::int64_t n : rows) counts.push_back(static_cast<std::size_t>(n * row));
  return counts;
}

// Memory for what the peers send, rows of the part's own kind, made when their number is known.
void allocate_rows(Request& request, const Tensors& inputs) {
  for (const at::Tensor& input : inputs) request.pending->rows.push_back(row_of(input));
  request.pending->outputs.resize(inputs.size());
  std::vector<at::Tensor> like;
  for (const at::Tensor& input : inputs) like.push_back(input.detach());
  request.operation.allocate = [pending = request.pending.get(), like = std::move(like)](std::size_t part, std::size_t count) {
    const std::int64_t row = std::max<std::int64_t>(1, pending->rows[part]);
    pending->outputs[part] = new_rows(static_cast<std::int64_t>(count) / row, like[part]);
    return pending->outputs[part].data_ptr();
  };
}

std::vector<std::int64_t> even_splits(const at::Tensor& input, int ranks) {
  if (input.size(0) % ranks != 0) {
    throw_failure(Kind::usage, "alltoall of {} rows over {} ranks: without splits the rows must divide evenly; pass splits", input.size(0),
                  ranks);
  }
  return std::vector<std::int64_t>(static_cast<std::size_t>(ranks), input.size(0) / ranks);
}

void check_splits(const at::Tensor& input, const std::vector<std::int64_t>& splits, int ranks) {
  if (splits.size() != static_cast<std::size_t>(ranks)) {
    throw_failure(Kind::usage, "alltoall: {} splits for {} ranks; give one number of rows for each", splits.size(), ranks);
  }
  std::int64_t sum = 0;
  for (const std::int64_t n : splits) {
    if (n < 0) throw_failure(Kind::usage, "alltoall: a split of {} rows", n);
    sum += n;
  }
  if (sum != input.size(0)) throw_failure(Kind::usage, "alltoall: the splits add up to {} rows, the tensor has {}", sum, input.size(0));
}

}  // namespace

void PendingTensors::restore_shapes() const {
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    c10::TensorImpl* const tensor = outputs[i].unsafeGetTensorImpl();
    const auto reach = static_cast<std::size_t>(tensor->storage_offset() + tensor->numel()) * tensor->itemsize();
    if (tensor->has_storage() && reach > tensor->storage().nbytes()) tensor->set_sizes_contiguous(shapes[i]);
  }
}

void Hold::add(const at::Tensor& tensor) {
  held_.push_back(tensor.detach());
  pins().add(held_.back().storage().unsafeGetStorageImpl());
}

Hold::~Hold() {
  for (const at::Tensor& tensor : held_) pins().remove(tensor.storage().unsafeGetStorageImpl());
}

Request all_reduce(const Tensors& inputs, const std::optional<Tensors>& outputs, Reduction how) {
  if (outputs && outputs->size() != inputs.size()) {
    throw_failure(Kind::usage, "{} results for {} tensors", outputs->size(), inputs.size());
  }
  Request request = begin(queue::Collective::all_reduce, inputs);
  reduce_by(request.operation, how);
  for (std::size_t i = 0; i < inputs.size(); ++i) deliver(request, i, inputs[i], outputs ? &(*outputs)[i] : nullptr);
  return request;
}

Request broadcast(const at::Tensor& input, const std::optional<at::Tensor>& output, Rank root) {
  Request request = begin(queue::Collective::broadcast, {input});
  request.operation.root = root;
  deliver(request, 0, input, output ? &*output : nullptr);
  return request;
}

Request all_gather(const Tensors& inputs) {
  for (const at::Tensor& input : inputs) need_rows(input, "allgather");
  Request request = begin(queue::Collective::all_gather, inputs);
  allocate_rows(request, inputs);
  return request;
}

Request all_to_all(const at::Tensor& input, const std::optional<std::vector<std::int64_t>>& splits, int ranks) {
  need_rows(input, "alltoall");
  const std::vector<std::int64_t> rows = splits ? *splits : even_splits(input, ranks);
  check_splits(input, rows, ranks);
  Request request = begin(queue::Collective::all_to_all, {input});
  request.operation.parts[0].counts = elements(rows, row_of(input));
  allocate_rows(request, {input});
  return request;
}

Request reduce_scatter(const Tensors& inputs, Reduction how, Rank me, int ranks) {
  if (how.op == Reduce::adasum) throw_failure(Kind::usage, "reducescatter does not know Adasum; use Average, Sum, Min, Max or Product");
  for (const at::Tensor& input : inputs) need_rows(input, "reducescatter");
  Request request = begin(queue::Collective::reduce_scatter, inputs);
  reduce_by(request.operation, how);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    std::vector<std::int64_t> rows(static_cast<std::size_t>(ranks), inputs[i].size(0) / ranks);
    for (std::int64_t r = 0; r < inputs[i].size(0) % ranks; ++r) ++rows[static_cast<std::size_t>(r)];
    const at::Tensor result = new_rows(rows[static_cast<std::size_t>(me.value)], inputs[i]);
    request.operation.parts[i].out = nn::piece(result);
    request.operation.parts[i].counts = elements(rows, row_of(inputs[i]));
    request.pending->outputs.push_back(result);
  }
  return request;
}

Request barrier() { return begin(queue::Collective::barrier, {}); }

}  // namespace cohort::python
