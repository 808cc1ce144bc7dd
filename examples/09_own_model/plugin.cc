// The model, the data set and the loss of mine.h for the programs of Cohort:
//   cohort train -n 2 --plugin libmine.so --set 'model=mine(depth=2)' --set data.train=stripes --set 'data.test=stripes(seed=2)'
#include <cohort/nn/plugin.h>

#include "mine.h"

COHORT_PLUGIN(plugin) {
  using Type = cohort::SpecParam::Type;
  plugin.models.push_back({.name = "mine",
                           .about = "tells stripes across from stripes down",
                           .params =
                               [] {
                                 return std::vector<cohort::SpecParam>{
                                     {.name = "depth", .type = Type::integer, .doc = "hidden layers", .preset = "2", .low = 1, .high = 8}};
                               },
                           .build = [](const cohort::SpecValues& values) { return stripes_net(values.integer("depth")); }});
  plugin.datasets.push_back({.name = "stripes",
                             .about = "pictures of stripes",
                             .schema = []() -> const cohort::SpecSchema& {
                               static const cohort::SpecSchema schema{
                                   "stripes",
                                   "pictures of stripes, 1x12x12",
                                   {{.name = "samples", .type = Type::integer, .doc = "how many", .preset = "400", .low = 1},
                                    {.name = "seed", .type = Type::integer, .doc = "of the noise", .preset = "1"}}};
                               return schema;
                             },
                             .open =
                                 [](const cohort::SpecValues& values) {
                                   return stripes({values.integer("samples"), values.integer("seed")});
                                 }});
  plugin.losses.push_back({.name = "hinge",
                           .about = "margin loss for two classes",
                           .params = [] { return std::vector<cohort::SpecParam>{}; },
                           .regression = false,
                           .measure = "accuracy",
                           .sum = [](const at::Tensor& outputs, const at::Tensor& labels, const cohort::SpecValues&,
                                     const cohort::nn::LossOptions&) { return hinge(outputs, labels); }});
}
