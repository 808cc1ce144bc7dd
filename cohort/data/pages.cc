#include "cohort/data/pages.h"

#include "cohort/data/dataset.h"
#include "cohort/data/sampler.h"
#include "cohort/data/transform.h"

namespace cohort::data {

std::vector<SpecPage> spec_pages() {
  SpecPage sets{.title = "Data sets", .about = "For the settings data.train and data.test: name(parameter=value, ..).", .rows = {}};
  for (const DatasetKind* row : dataset_rows()) sets.rows.push_back(row->schema());
  SpecPage transforms{.title = "Transforms",
                      .about =
                          "For the setting data.transforms, a list; the random ones are for training only. Tables of float values take "
                          "normalise, images all of them.",
                      .rows = {}};
  for (const TransformKind* row : transform_rows()) transforms.rows.push_back(row->schema());
  SpecPage samplers{.title = "Samplers", .about = "For the setting data.sampler: the order of samples.", .rows = {}};
  for (const Sampler* row : sampler_rows()) samplers.rows.emplace_back(std::string(row->name), std::string(row->about));
  return {sets, transforms, samplers};
}

}  // namespace cohort::data
