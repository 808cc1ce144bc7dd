// Operands for a kernel that is measured alone: real ones made up, or shapes on the meta device. And what it computes and moves.
// Threads: any. Failure: torch's own.
#pragma once
#include <ATen/core/stack.h>

#include <string>

namespace cohort::plan::forecast {

// What floats hold: such numbers as a step has, where a call is timed; any, where only its results' shapes count (and pages that
// are never written cost nothing, however large the model).
enum class Contents : unsigned char { usual, any };
// Tensors without memory get some: floats, and whole numbers that are valid indices for the operator `name`. Everything else stays.
torch::jit::Stack materialize(const std::string& name, const torch::jit::Stack& arguments, Contents contents);
torch::jit::Stack strip_memory(const torch::jit::Stack& arguments);  // the same for materialize(), to be kept
// Every tensor becomes one of the same shape on the meta device, and every device that one.
torch::jit::Stack on_meta(const torch::jit::Stack& values);
double bytes_of(const torch::jit::Stack& values);  // of its tensors

}  // namespace cohort::plan::forecast
