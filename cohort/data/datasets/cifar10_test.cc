#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/base/failure_of.h"
#include "cohort/base/file.h"
#include "cohort/data/dataset.h"

namespace cohort::data {

TEST(Cifar10, JoinsTheFiveTrainingFilesInOrder) {
  const TempDir dir;
  for (int i = 1; i <= 5; ++i)
    write_file_atomically(dir.file("data_batch_" + std::to_string(i) + ".bin"),
                          std::string(1, static_cast<char>(i)) + std::string(3072, static_cast<char>(100 + i)));
  const auto set = open_dataset("cifar10(dir=" + dir.path() + ")");
  ASSERT_EQ(set->size(), 5);
  EXPECT_THAT(set->form().shape, testing::ElementsAre(3, 32, 32));
  Scratch scratch;
  EXPECT_EQ(set->sample(3, scratch).label, 4);
  EXPECT_EQ(set->sample(3, scratch).input[3071], 104);
}

TEST(Cifar10, NamesTheFileThatIsMissingOrCutShort) {
  const TempDir dir;
  const std::string spec = "cifar10(split=test, dir=" + dir.path() + ")";
  EXPECT_THAT(failure_of([&] { open_dataset(spec); }).what, testing::HasSubstr("cifar-10-batches-bin"));
  write_file_atomically(dir.file("test_batch.bin"), std::string(3000, '\0'));
  const Error error = failure_of([&] { open_dataset(spec); });
  EXPECT_EQ(error.kind, Kind::corrupt);
  EXPECT_THAT(error.what, testing::HasSubstr("test_batch.bin: 3000 bytes"));
}

}  // namespace cohort::data
