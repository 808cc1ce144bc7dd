// Batches of the data module as tensors: views of the batch's memory, nothing is copied (but where torch's default type is double:
// floats then come as doubles).
//   const nn::Tensors t = nn::tensors(loader.next(deadline));     // t.inputs [64, 1, 28, 28] float, t.labels [64] long
// Owner: each tensor keeps the batch's memory alive; when the last one goes, the memory returns to the loader's pool. Threads: any.
// Failure: Kind::usage from fetch for indices outside the set.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "cohort/data/batch.h"

namespace cohort::nn {

struct Tensors {
  at::Tensor inputs;  // images: float32 [count, channels, height, width]; float values: float32 [count, ..]; tokens: int64 [count, context]
  at::Tensor labels;  // int64 [count], or [count, context] when the labels are next tokens; targets: float32 [count, targets]
};

Tensors tensors(const data::Batch& batch);

// These samples into the tensors given, which are (re)made only when undefined or of another shape. Nothing random: the evaluation part
// of `transforms`.
void fetch(const data::Dataset& set, const data::Transforms& transforms, std::span<const std::int64_t> indices, at::Tensor& inputs,
           at::Tensor& labels);

}  // namespace cohort::nn
