// ResNet-152: bottleneck blocks, {3, 8, 36, 3} of them. The network is in resnet.cc.
#include "cohort/nn/models/resnet.h"

namespace cohort::nn {
namespace {

Model build_resnet152(const SpecValues& values) {
  return build_resnet({.name = "resnet152", .bottleneck = true, .repeats = {3, 8, 36, 3}}, values);
}

}  // namespace

extern const Architecture row_resnet152{.name = "resnet152",
                                        .about = "ResNet-152, bottleneck blocks",
                                        .params = resnet_params,
                                        .build = build_resnet152,
                                        .init = init_resnet,
                                        .takes = Takes::image};

}  // namespace cohort::nn
