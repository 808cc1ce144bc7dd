// The collectives of the backend: each checks what can be wrong here, then calls the communicator in its body.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/empty.h>
#include <fmt/ranges.h>

#include <numeric>
#include <utility>

#include "cohort/python/c10d/process_group.h"

namespace cohort::python {
namespace {

using c10d::OpType;
using collective::Call;
using collective::Communicator;
using collective::Piece;
using Counts = std::vector<std::size_t>;
using Tensors = std::vector<at::Tensor>;

constexpr std::size_t kPackBytes = std::size_t{1} << 20;  // small tensors of one call share a buffer up to this: one reduction for all

Call scaled(Call call, const ReduceSpec& how) {
  call.prescale = how.prescale;
  return call;
}

// Rows of the first dimension, as elements of moved(). No splits: even blocks.
Counts rows_of(const at::Tensor& tensor, const std::vector<int64_t>& splits, int ranks) {
  const auto rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  const auto row = rows == 0 ? 0 : static_cast<std::size_t>(tensor.numel() / rows) * width(tensor.scalar_type());
  Counts counts;
  for (const auto split : splits) counts.push_back(static_cast<std::size_t>(split) * row);
  if (splits.empty()) counts.assign(static_cast<std::size_t>(ranks), static_cast<std::size_t>(rows / ranks) * row);
  return counts;
}

std::string shape(const at::Tensor& tensor) {
  return fmt::format("{} [{}]", c10::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "));
}

Tensors flattened(const std::vector<Tensors>& lists) {
  Tensors all;
  for (const Tensors& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

// Every rank's `mine`, in rank order, whatever its length there: the lengths are gathered first.
at::Tensor gather_uneven(Communicator& comm, const Call& call, const at::Tensor& mine) {
  const auto ranks = static_cast<std::size_t>(comm.size());
  std::int64_t length = mine.size(0);
  std::vector<std::int64_t> lengths(ranks);
  comm.all_gather(collective::piece(std::span(&length, 1)), collective::piece(std::span(lengths)), call);
  std::vector<std::int64_t> sizes(mine.sizes().begin(), mine.sizes().end());
  const auto row = static_cast<std::size_t>(std::accumulate(sizes.begin() + 1, sizes.end(), std::int64_t{1}, std::multiplies<>())) *
                   width(mine.scalar_type());
  sizes[0] = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  Counts counts;
  for (const auto l : lengths) counts.push_back(static_cast<std::size_t>(l) * row);
  at::Tensor all = at::empty(sizes, mine.options());
  comm.all_gather(moved(mine), moved(all), call, counts);
  return all;
}

}  // namespace

// ---- one tensor, the same on all

WorkPtr ProcessGroupCohort::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  constexpr const char* kTitle = "cohort:broadcast";
  const at::Tensor tensor = only(tensors, kTitle);
  const at::Tensor memory = raising([&] { return dense(tensor, kTitle); });
  const Rank root{member(opts.rootRank, kTitle)};
  return start_collective({OpType::BROADCAST, kTitle, opts.timeout, opts.asyncOp}, {tensor, memory}, tensors,
                          [tensor, memory, root](Communicator& comm, const Call& call) {
                            comm.broadcast(moved(memory), root, call);
                            copy_back(memory, tensor);
                          });
}

void ProcessGroupCohort::reduce_bits(Communicator& comm, const Call& call, const at::Tensor& memory, ReduceSpec::Bits bits) {
  std::vector<std::int64_t> sizes{comm.size()};
  sizes.insert(sizes.end(), memory.sizes().begin(), memory.sizes().end());
  const at::Tensor all = at::empty(sizes, memory.options());
  comm.all_gather(moved(memory), moved(all), call);
  combine(all, bits, memory);
}

WorkPtr ProcessGroupCohort::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  constexpr const char* kTitle = "cohort:all_reduce";
  const at::Tensor tensor = only(tensors, kTitle);
  if (tensor.layout() == at::kSparse) return allreduce_sparse(tensors, opts);
  const auto [memory, how] =
      raising([&] { return std::pair(dense(tensor, kTitle), reduce_spec(opts.reduceOp, tensor.scalar_type(), kTitle)); });
  return start_collective({OpType::ALLREDUCE, kTitle, opts.timeout, opts.asyncOp}, {tensor, memory}, tensors,
                          [this, tensor, memory = memory, how = how](Communicator& comm, const Call& call) {
                            if (how.bits != ReduceSpec::Bits::none) {
                              reduce_bits(comm, call, memory, how.bits);
                            } else {
                              comm.all_reduce(reduced(memory), how.op, scaled(call, how));
                            }
                            copy_back(memory, tensor);
                          });
}

WorkPtr ProcessGroupCohort::allreduce_coded(const at::Tensor& bucket, const std::vector<std::string>& names,
                                            const std::vector<Shape>& shapes, std::shared_ptr<GradientCodec> codec, double weight,
                                            double unit_of_weight) {
  constexpr const char* kTitle = "cohort:all_reduce by a codec";
  std::vector<std::size_t> counts;
  for (const Shape& shape : shapes)
    counts.push_back(static_cast<std::size_t>(std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>())));
  const std::size_t count = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  need(!names.empty() && names.size() == counts.size() && count == static_cast<std::size_t>(bucket.numel()), kTitle,
       fmt::format("{} names and {} elements for a bucket of {}", names.size(), count, bucket.numel()));
  CodedUnit unit{.names = names, .shapes = shapes, .weight = weight, .unit = unit_of_weight};
  const at::Tensor memory = raising([&] { return dense(bucket, kTitle); });
  raising([&] {
    std::size_t first = 0;
    for (const std::size_t n : counts) unit.gradients.push_back(reduced(memory).part(std::exchange(first, first + n), n));
    codec->check(unit);
  });
  return start_collective({OpType::ALLREDUCE, kTitle, c10d::kUnsetTimeout, true}, {bucket, memory}, {bucket},
                          [bucket, memory, codec = std::move(codec), unit = std::move(unit)](Communicator& comm, const Call& call) {
                            codec->reduce(comm, unit, call);
                            copy_back(memory, bucket);
                          });
}

// Indices and values of all ranks, one after the other; coalesce() adds up equal indices.
WorkPtr ProcessGroupCohort::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  constexpr const char* kTitle = "cohort:all_reduce of a sparse tensor";
  const at::Tensor tensor = only(tensors, kTitle);
  need(tensor.layout() == at::kSparse && tensor.device().is_cpu(), kTitle, "a sparse COO tensor on the CPU is expected");
  need(opts.reduceOp == c10d::ReduceOp::SUM || opts.reduceOp == c10d::ReduceOp::AVG, kTitle,
       "only SUM and AVG know what a missing entry is");
  const bool average = opts.reduceOp == c10d::ReduceOp::AVG;
  return start_collective(
      {OpType::_ALLREDUCE_SPARSE, kTitle, opts.timeout, opts.asyncOp}, {tensor}, tensors,
      [tensor, average](Communicator& comm, const Call& call) {
        const at::AutoDispatchBelowADInplaceOrView raw;
        const at::Tensor mine = tensor.coalesce();
        const at::Tensor indices = gather_uneven(comm, call, mine._indices().t().contiguous());
        at::Tensor values = gather_uneven(comm, call, mine._values().contiguous());
        if (average) values.div_(comm.size());
        tensor.copy_(at::_sparse_coo_tensor_unsafe(indices.t(), values, tensor.sizes(), values.options().layout(at::kSparse)).coalesce());
      });
}

WorkPtr ProcessGroupCohort::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) {
  constexpr const char* kTitle = "cohort:all_reduce of several";
  if (tensors.size() == 1) return allreduce(tensors, opts);
  need(!tensors.empty(), kTitle, "an empty list of tensors");
  const auto how = raising([&] { return reduce_spec(opts.reduceOp, tensors.front().scalar_type(), kTitle); });
  std::size_t bytes = 0;
  bool alike = true;
  Tensors memory;
  raising([&] {
    for (const at::Tensor& tensor : tensors) {
      reduce_spec(opts.reduceOp, tensor.scalar_type(), kTitle);
      memory.push_back(dense(tensor, kTitle));
      bytes += memory.back().nbytes();
      alike = alike && tensor.scalar_type() == tensors.front().scalar_type();
    }
  });
  const bool packed = alike && bytes <= kPackBytes && how.bits == ReduceSpec::Bits::none;
  Tensors used = tensors;
  used.insert(used.end(), memory.begin(), memory.end());
  return start_collective({OpType::ALLREDUCE_COALESCED, kTitle, opts.timeout, opts.asyncOp}, used, tensors,
                          [this, tensors, memory, how, packed](Communicator& comm, const Call& call) {
                            if (packed) {
                              const FlatTensors block(tensors, kTitle);
                              block.fill();
                              comm.all_reduce(reduced(block.memory()), how.op, scaled(call, how));
                              return block.spread();
                            }
                            std::vector<Piece> pieces;
                            for (const at::Tensor& tensor : memory) {
                              if (how.bits != ReduceSpec::Bits::none) reduce_bits(comm, call, tensor, how.bits);
                              pieces.push_back(reduced(tensor));
                            }
                            if (how.bits == ReduceSpec::Bits::none) comm.all_reduce(pieces, how.op, scaled(call, how));
                            for (std::size_t i = 0; i < tensors.size(); ++i) copy_back(memory[i], tensors[i]);
                          });
}

WorkPtr ProcessGroupCohort::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  constexpr const char* kTitle = "cohort:reduce";
  const at::Tensor tensor = only(tensors, kTitle);
  const auto [memory, how] =
      raising([&] { return std::pair(dense(tensor, kTitle), reduce_spec(opts.reduceOp, tensor.scalar_type(), kTitle)); });
  const Rank root{member(opts.rootRank, kTitle)};
  return start_collective({OpType::REDUCE, kTitle, opts.timeout, opts.asyncOp}, {tensor, memory}, tensors,
                          [this, tensor, memory = memory, how = how, root](Communicator& comm, const Call& call) {
                            if (how.bits != ReduceSpec::Bits::none) {
                              const at::Tensor sum = memory.clone();  // ranks other than the root keep their input
                              reduce_bits(comm, call, sum, how.bits);
                              if (root == comm.rank()) copy_back(sum, tensor);
                              return;
                            }
                            const at::Tensor out = root == comm.rank() ? at::empty_like(memory) : at::Tensor();
                            comm.reduce(reduced(memory), out.defined() ? reduced(out) : Piece{}, how.op, root, scaled(call, how));
                            if (out.defined()) copy_back(out, tensor);
                          });
}

WorkPtr ProcessGroupCohort::barrier(const c10d::BarrierOptions& opts) {
  return start_collective({OpType::BARRIER, "cohort:barrier", opts.timeout, opts.asyncOp}, {}, {},
                          [](Communicator& comm, const Call& call) { comm.barrier(call); });
}

// The communicator names the missing ranks by itself.
void ProcessGroupCohort::monitoredBarrier(const c10d::BarrierOptions& opts, bool) { barrier(opts)->wait(); }

// ---- from each to all

WorkPtr ProcessGroupCohort::allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  constexpr const char* kTitle = "cohort:all_gather";
  need(outputs.size() == 1 && static_cast<int>(outputs[0].size()) == size_, kTitle,
       fmt::format("the output list has {} tensors for {} ranks", outputs.empty() ? 0 : outputs[0].size(), size_));
  const at::Tensor input = only(inputs, kTitle);
  const at::Tensor& own = outputs[0][static_cast<std::size_t>(rank_)];
  need(own.numel() == input.numel() && own.scalar_type() == input.scalar_type(), kTitle,
       fmt::format("the input is {}, this rank's output {}", shape(input), shape(own)));
  const auto [memory, block] = raising([&] { return std::pair(dense(input, kTitle), FlatTensors(outputs[0], kTitle)); });
  Tensors used = outputs[0];
  used.push_back(memory);
  return start_collective({OpType::ALLGATHER, kTitle, opts.timeout, opts.asyncOp}, used, outputs[0],
                          [memory = memory, block = block](Communicator& comm, const Call& call) {
                            comm.all_gather(moved(memory), moved(block.memory()), call, block.counts());
                            block.spread();
                          });
}

WorkPtr ProcessGroupCohort::_allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) {
  constexpr const char* kTitle = "cohort:all_gather_into_tensor";
  need(output.numel() == input.numel() * size_ && output.scalar_type() == input.scalar_type(), kTitle,
       fmt::format("the output {} is not {} times the input {}", shape(output), size_, shape(input)));
  const auto [in, out] = raising([&] { return std::pair(dense(input, kTitle), dense(output, kTitle)); });
  return start_collective({OpType::_ALLGATHER_BASE, kTitle, opts.timeout, opts.asyncOp}, {in, out, output}, {output},
                          [in = in, out = out, output](Communicator& comm, const Call& call) {
                            comm.all_gather(moved(in), moved(out), call);
                            copy_back(out, output);
                          });
}

WorkPtr ProcessGroupCohort::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  constexpr const char* kTitle = "cohort:all_gather of several";
  // torch gives one list of inputs per rank here: outputs[rank][i] is input i of that rank.
  need(static_cast<int>(outputs.size()) == size_, kTitle, fmt::format("{} output lists for {} ranks", outputs.size(), size_));
  std::vector<WorkPtr> works;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Tensors input{inputs[i]}, list;
    for (const Tensors& of_rank : outputs) {
      need(of_rank.size() == inputs.size(), kTitle, fmt::format("{} outputs of a rank for {} inputs", of_rank.size(), inputs.size()));
      list.push_back(of_rank[i]);
    }
    std::vector<Tensors> lists{list};
    works.push_back(allgather(lists, input, opts));
  }
  return all_of(std::move(works));
}

WorkPtr ProcessGroupCohort::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  need(outputs.size() == inputs.size(), "cohort:all_gather_into_tensor of several",
       fmt::format("{} outputs for {} inputs", outputs.size(), inputs.size()));
  std::vector<WorkPtr> works;
  for (std::size_t i = 0; i < inputs.size(); ++i) works.push_back(_allgather_base(outputs[i], inputs[i], opts));
  return all_of(std::move(works));
}

// ---- to one, from one

WorkPtr ProcessGroupCohort::gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& opts) {
  constexpr const char* kTitle = "cohort:gather";
  const at::Tensor input = only(inputs, kTitle);
  const Rank root{member(opts.rootRank, kTitle)};
  const bool mine = root.value == rank_;
  need(!mine || (outputs.size() == 1 && static_cast<int>(outputs[0].size()) == size_), kTitle,
       fmt::format("the root's output list has {} tensors for {} ranks", outputs.empty() ? 0 : outputs[0].size(), size_));
  for (const at::Tensor& out : mine ? outputs[0] : Tensors{}) {
    need(out.numel() == input.numel() && out.scalar_type() == input.scalar_type(), kTitle,
         fmt::format("an output is {}, the input {}", shape(out), shape(input)));
  }
  const auto [memory, block] =
      raising([&] { return std::pair(dense(input, kTitle), mine ? FlatTensors(outputs[0], kTitle) : FlatTensors()); });
  Tensors used = mine ? outputs[0] : Tensors{};
  used.push_back(memory);
  return start_collective({OpType::GATHER, kTitle, opts.timeout, opts.asyncOp}, used, mine ? outputs[0] : Tensors{},
                          [memory = memory, block = block, root, mine](Communicator& comm, const Call& call) {
                            comm.gather(moved(memory), mine ? moved(block.memory()) : Piece{}, root, call);
                            if (mine) block.spread();
                          });
}

WorkPtr ProcessGroupCohort::scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& opts) {
  constexpr const char* kTitle = "cohort:scatter";
  const at::Tensor output = only(outputs, kTitle);
  const Rank root{member(opts.rootRank, kTitle)};
  const bool mine = root.value == rank_;
  need(!mine || (inputs.size() == 1 && static_cast<int>(inputs[0].size()) == size_), kTitle,
       fmt::format("the root's input list has {} tensors for {} ranks", inputs.empty() ? 0 : inputs[0].size(), size_));
  for (const at::Tensor& in : mine ? inputs[0] : Tensors{}) {
    need(in.numel() == output.numel() && in.scalar_type() == output.scalar_type(), kTitle,
         fmt::format("an input is {}, the output {}", shape(in), shape(output)));
  }
  const auto [memory, block] =
      raising([&] { return std::pair(dense(output, kTitle), mine ? FlatTensors(inputs[0], kTitle) : FlatTensors()); });
  Tensors used = mine ? inputs[0] : Tensors{};
  used.insert(used.end(), {output, memory});
  return start_collective({OpType::SCATTER, kTitle, opts.timeout, opts.asyncOp}, used, outputs,
                          [memory = memory, block = block, output, root, mine](Communicator& comm, const Call& call) {
                            if (mine) block.fill();
                            comm.scatter(mine ? moved(block.memory()) : Piece{}, moved(memory), root, call);
                            copy_back(memory, output);
                          });
}

// ---- reduced, a part to each

WorkPtr ProcessGroupCohort::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ReduceScatterOptions& opts) {
  constexpr const char* kTitle = "cohort:reduce_scatter";
  const at::Tensor output = only(outputs, kTitle);
  need(inputs.size() == 1 && static_cast<int>(inputs[0].size()) == size_, kTitle,
       fmt::format("the input list has {} tensors for {} ranks", inputs.empty() ? 0 : inputs[0].size(), size_));
  const at::Tensor& own = inputs[0][static_cast<std::size_t>(rank_)];
  need(own.numel() == output.numel() && own.scalar_type() == output.scalar_type(), kTitle,
       fmt::format("the output is {}, this rank's input {}", shape(output), shape(own)));
  const auto how = raising([&] { return reduce_spec(opts.reduceOp, output.scalar_type(), kTitle); });
  need(how.bits == ReduceSpec::Bits::none, kTitle, "bitwise reductions are for all_reduce and reduce; use one of those and take your part");
  const auto [memory, block] = raising([&] { return std::pair(dense(output, kTitle), FlatTensors(inputs[0], kTitle)); });
  Tensors used = inputs[0];
  used.insert(used.end(), {output, memory});
  return start_collective({OpType::REDUCE_SCATTER, kTitle, opts.timeout, opts.asyncOp}, used, outputs,
                          [memory = memory, block = block, output, how](Communicator& comm, const Call& call) {
                            block.fill();
                            comm.reduce_scatter(reduced(block.memory()), reduced(memory), how.op, scaled(call, how), block.counts());
                            copy_back(memory, output);
                          });
}

WorkPtr ProcessGroupCohort::_reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) {
  constexpr const char* kTitle = "cohort:reduce_scatter_tensor";
  need(input.numel() == output.numel() * size_ && output.scalar_type() == input.scalar_type(), kTitle,
       fmt::format("the input {} is not {} times the output {}", shape(input), size_, shape(output)));
  const auto how = raising([&] { return reduce_spec(opts.reduceOp, output.scalar_type(), kTitle); });
  need(how.bits == ReduceSpec::Bits::none, kTitle, "bitwise reductions are for all_reduce and reduce; use one of those and take your part");
  const auto [in, out] = raising([&] { return std::pair(dense(input, kTitle), dense(output, kTitle)); });
  return start_collective({OpType::_REDUCE_SCATTER_BASE, kTitle, opts.timeout, opts.asyncOp}, {in, out, output}, {output},
                          [in = in, out = out, output, how](Communicator& comm, const Call& call) {
                            comm.reduce_scatter(reduced(in), reduced(out), how.op, scaled(call, how));
                            copy_back(out, output);
                          });
}

WorkPtr ProcessGroupCohort::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& opts) {
  need(outputs.size() == inputs.size(), "cohort:reduce_scatter_tensor of several",
       fmt::format("{} outputs for {} inputs", outputs.size(), inputs.size()));
  std::vector<WorkPtr> works;
  for (std::size_t i = 0; i < inputs.size(); ++i) works.push_back(_reduce_scatter_base(outputs[i], inputs[i], opts));
  return all_of(std::move(works));
}

// ---- from each to each

WorkPtr ProcessGroupCohort::alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                                          std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& opts) {
  constexpr const char* kTitle = "cohort:all_to_all_single";
  need(output.scalar_type() == input.scalar_type(), kTitle, fmt::format("the output is {}, the input {}", shape(output), shape(input)));
  const auto check = [&](const at::Tensor& tensor, const std::vector<int64_t>& splits, const char* which) {
    const auto rows = tensor.dim() == 0 ? 1 : tensor.size(0);
    const bool fits = splits.empty()
                          ? rows % size_ == 0
                          : static_cast<int>(splits.size()) == size_ && std::accumulate(splits.begin(), splits.end(), int64_t{0}) == rows &&
                                std::all_of(splits.begin(), splits.end(), [](int64_t n) { return n >= 0; });
    need(fits, kTitle, fmt::format("the {} splits [{}] do not part {} rows over {} ranks", which, fmt::join(splits, ", "), rows, size_));
  };
  check(input, input_splits, "input");
  check(output, output_splits, "output");
  const Counts sends = rows_of(input, input_splits, size_), receives = rows_of(output, output_splits, size_);
  const auto [in, out] = raising([&] { return std::pair(dense(input, kTitle), dense(output, kTitle)); });
  return start_collective({OpType::ALLTOALL_BASE, kTitle, opts.timeout, opts.asyncOp}, {in, out, output}, {output},
                          [in = in, out = out, output, sends, receives](Communicator& comm, const Call& call) {
                            comm.all_to_all(moved(in), moved(out), call, sends, receives);
                            copy_back(out, output);
                          });
}

WorkPtr ProcessGroupCohort::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) {
  constexpr const char* kTitle = "cohort:all_to_all";
  need(static_cast<int>(outputs.size()) == size_ && static_cast<int>(inputs.size()) == size_, kTitle,
       fmt::format("{} inputs and {} outputs for {} ranks", inputs.size(), outputs.size(), size_));
  const auto [in, out] = raising([&] { return std::pair(FlatTensors(inputs, kTitle), FlatTensors(outputs, kTitle)); });
  return start_collective({OpType::ALLTOALL, kTitle, opts.timeout, opts.asyncOp}, flattened({inputs, outputs}), outputs,
                          [in = in, out = out](Communicator& comm, const Call& call) {
                            in.fill();
                            comm.all_to_all(moved(in.memory()), moved(out.memory()), call, in.counts(), out.counts());
                            out.spread();
                          });
}

}  // namespace cohort::python
