// First values of a model from a safetensors file that somebody else trained, by the names of its tensors (setting `pretrained`).
//   names      as they stand, or behind "bert.", "transformer.", "model." or "module." on either side; LayerNorm.gamma and .beta (old
//              files of BERT) are weight and bias
//   layout     GPT-2's files hold the matrices of attn and mlp transposed: they are turned round
//   types      fp16, bf16 and fp64 become the model's own
// Every tensor of the model must be there in its shape, those of its last block excepted: a new last layer for other classes keeps the
// values it was made with. Tensors of the file that the model has no place for are left out.
// Owner: the caller. Threads: one. Failure: Kind::usage naming what is missing or of another shape; Kind::corrupt as SafetensorsFile.
#pragma once
#include <string>

#include "cohort/nn/blocks.h"

namespace cohort::train {

// What happened, for people: "101 tensors of bert.safetensors; new: classifier.weight, classifier.bias; not used: 5".
std::string load_pretrained(const nn::Model& model, const std::string& path);

}  // namespace cohort::train
