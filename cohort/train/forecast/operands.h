// Operands for a kernel that is looked at alone: real ones made up, or shapes on the meta device. And what it computes and moves.
// Threads: any. Failure: torch's own.
#pragma once
#include <ATen/core/stack.h>

#include <string>

namespace cohort::forecast {

// What floats hold: such numbers as a step has, where a call is timed; whatever, where only its results' shapes count (and pages that
// nobody writes cost nothing, however large the model).
enum class Contents : unsigned char { usual, any };
// Tensors without memory get some: floats, and whole numbers that are valid indices for the operator `name`. Everything else stays.
torch::jit::Stack made_up(const std::string& name, const torch::jit::Stack& arguments, Contents contents);
torch::jit::Stack without_memory(const torch::jit::Stack& arguments);  // the same for made_up(), to be kept
// Every tensor becomes one of the same shape on the meta device, and every device that one.
torch::jit::Stack on_meta(const torch::jit::Stack& values);
double bytes_of(const torch::jit::Stack& values);  // of its tensors

}  // namespace cohort::forecast
