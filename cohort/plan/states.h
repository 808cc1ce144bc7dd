// What training keeps per parameter, by dtype and ZeRO stage (Rajbhandari et al. 2020, arXiv:1910.02054), N ranks:
//   stage 0  p + g + o          stage 1  p + g + o/N          stage 2  p + (g + o)/N          stage 3  (p + g + o)/N
// p, g, o: bytes of the parameter, the gradient, and what the optimizer keeps (its states, and a master copy where parameters have 16
// bits). Systems differ in what they count, so StateSizes names its bytes: one question (T5-3B, 8 GPUs, stage 2) has three published
// answers. Threads: pure functions. Failure: Kind::usage for a stage that does not exist or less than one rank.
#pragma once
#include <cstdint>
#include <string_view>

namespace cohort::plan {

struct StateSizes {
  std::string_view name;
  double parameter = 4, gradient = 4, optimizer = 8, master = 0;  // bytes each
  // Megatron and DeepSpeed keep gradients in two types: the one that backward writes and the one that is summed.
  double sharded_gradient = 0;  // a further fp32 copy that exists with the optimizer, sharded where the optimizer is
  double kept() const { return optimizer + master + sharded_gradient; }
  double total() const { return parameter + gradient + kept(); }
};

inline constexpr StateSizes kFp32Adam{"fp32 adam", 4, 4, 8, 0, 0};
inline constexpr StateSizes kMixedAdam{"mixed-precision adam", 2, 2, 8, 4, 0};           // the paper's: K = 4 + 4 + 4 = 12
inline constexpr StateSizes kMegatronFp16{"megatron fp16", 2, 2, 8, 4, 4};               // 20 -> 4 + 16/d
inline constexpr StateSizes kMegatronBf16{"megatron bf16, fp32 gradients", 2, 4, 8, 4};  // 18 -> 6 + 12/d
inline constexpr StateSizes kDeepSpeed{"deepspeed", 2, 2, 8, 4, 4};                      // stage 2: 2 + 18/N, fp16 and fp32 gradients

inline constexpr int kStages = 4;  // 0 to 3

struct StateBytes {
  double parameters = 0, gradients = 0, optimizer = 0, master = 0;
  double total() const { return parameters + gradients + optimizer + master; }
};

double state_bytes_each(const StateSizes& state_sizes, int stage, int ranks);  // per parameter
StateBytes state_bytes(const StateSizes& state_sizes, int stage, int ranks, double parameters);
double largest_model(const StateSizes& state_sizes, int stage, int ranks, double memory_bytes);  // parameters whose states fill that memory

// Elements that leave (and reach) each rank in a step, per parameter: 2 (N-1)/N, with stage 3 another gather, 3 (N-1)/N.
double moved_each(int stage, int ranks);

// DeepSpeed's own estimator of stage 3: 18/N a parameter and the largest layer, gathered in fp16 with its gradients.
enum class Offload { none, optimizer, everything };
double deepspeed_stage3_bytes(double parameters, double largest_layer, int ranks, Offload offload);

}  // namespace cohort::plan
