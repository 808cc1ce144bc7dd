// The documentation of settings names the variants that there are: the words come from torch-free tables, which are held to the real ones.
#include <gmock/gmock.h>

#include "cohort/nn/models_words.h"
#include "cohort/nn/zoo.h"
#include "cohort/sync/strategy_row.h"
#include "cohort/train/config.h"

namespace cohort::train {
namespace {

using testing::HasSubstr;

std::string doc_of(const std::string& path) {
  TrainConfig values;
  const Config config(values);
  for (const Field& field : config.all())
    if (field.path == path) return field.doc;
  return "no such setting";
}

TEST(ConfigWords, OfModelsAreThoseOfTheZoo) {
  std::vector<std::string_view> names;
  for (const nn::Architecture* row : nn::architectures()) names.push_back(row->name);
  EXPECT_THAT(nn::kModelsWords, testing::ElementsAreArray(names));
  for (const auto name : names) EXPECT_THAT(doc_of("model"), HasSubstr(std::string(name)));
}

TEST(ConfigWords, OfSyncAreThoseOfTheStrategies) {
  for (const sync::StrategyRow* row : sync::strategies()) {
    EXPECT_EQ(sync::make(row->name)->name(), row->name);
    EXPECT_THAT(doc_of("sync"), HasSubstr(std::string(row->name) + "("));
  }
}

}  // namespace
}  // namespace cohort::train
