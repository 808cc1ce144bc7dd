// ResNet-18: basic blocks, {2, 2, 2, 2} of them. The network is in resnet.cc.
#include "cohort/nn/models/resnet.h"

namespace cohort::nn {
namespace {

Model build(const SpecValues& values) { return build_resnet({.name = "resnet18", .bottleneck = false, .repeats = {2, 2, 2, 2}}, values); }

}  // namespace

extern const Architecture row_resnet18{.name = "resnet18",
                                       .about = "ResNet-18, basic blocks",
                                       .params = resnet_params,
                                       .build = build,
                                       .init = init_resnet,
                                       .takes = Takes::image};

}  // namespace cohort::nn
