// A plugin whose model has the name of one of the zoo.
#include <cohort/nn/plugin.h>

COHORT_PLUGIN(plugin) {
  plugin.models.push_back({.name = "mlp",
                           .about = "not the zoo's",
                           .params = [] { return std::vector<cohort::SpecParam>{}; },
                           .build = [](const cohort::SpecValues&) { return cohort::nn::Model(nullptr, {}); }});
}
