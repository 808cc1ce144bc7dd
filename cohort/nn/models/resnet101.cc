// ResNet-101: bottleneck blocks, {3, 4, 23, 3} of them. The network is in resnet.cc.
#include "cohort/nn/models/resnet.h"

namespace cohort::nn {
namespace {

Model build_resnet101(const SpecValues& values) {
  return build_resnet({.name = "resnet101", .bottleneck = true, .repeats = {3, 4, 23, 3}}, values);
}

}  // namespace

extern const Architecture row_resnet101{.name = "resnet101",
                                        .about = "ResNet-101, bottleneck blocks",
                                        .params = resnet_params,
                                        .build = build_resnet101,
                                        .init = init_resnet,
                                        .takes = Takes::image};

}  // namespace cohort::nn
