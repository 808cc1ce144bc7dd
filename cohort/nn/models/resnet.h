// Residual networks (He et al. 2015, arXiv:1512.03385), with torchvision's layout and parameter names: what the rows resnet18 to 152
// share.
//   basic       conv 3x3, conv 3x3                                  y = relu(f(x) + shortcut(x))
//   bottleneck  conv 1x1, conv 3x3 (the stride), conv 1x1 to 4 times the width
// Blocks: stem, layer1.0 .. layer4.n, head. Threads: any. To add a depth: one row file that calls build_resnet.
#pragma once
#include <array>
#include <string>

#include "cohort/nn/zoo.h"

namespace cohort::nn {

struct ResnetShape {
  std::string name;
  bool bottleneck = false;
  std::array<int, 4> repeats{};
};

std::vector<SpecParam> resnet_params();
Model build_resnet(const ResnetShape& shape, const SpecValues& values);
void init_resnet(torch::nn::Module& root, const SpecValues& values, const ParameterRng& rng);

}  // namespace cohort::nn
