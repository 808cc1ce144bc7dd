// ResNet-50: bottleneck blocks, {3, 4, 6, 3} of them. The network is in resnet.cc.
#include "cohort/nn/models/resnet.h"

namespace cohort::nn {
namespace {

Model build(const SpecValues& values) { return build_resnet({.name = "resnet50", .bottleneck = true, .repeats = {3, 4, 6, 3}}, values); }

}  // namespace

extern const Architecture row_resnet50{.name = "resnet50",
                                       .about = "ResNet-50, bottleneck blocks",
                                       .params = resnet_params,
                                       .build = build,
                                       .init = init_resnet,
                                       .takes = Takes::image};

}  // namespace cohort::nn
