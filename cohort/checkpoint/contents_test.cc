#include "cohort/checkpoint/contents.h"

#include <gmock/gmock.h>

#include "cohort/base/failure_of.h"
#include "cohort/checkpoint/sharded_samples.h"

namespace cohort::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Ranks : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(OneToNine, Ranks, testing::Range(1, 10));

TEST_P(Ranks, WhatTheySaveTogetherIsThereWhole) {
  const MemoryDir folder;
  const auto saved = save_sharded(folder.path(), GetParam());
  const Contents contents(saved);
  EXPECT_THAT(contents.groups(), ElementsAre("model", "optimizer"));
  EXPECT_TRUE(holds(contents, "model", awkward_model()));
  EXPECT_TRUE(holds(contents, "optimizer", awkward_optimizer()));
  EXPECT_EQ(saved.manifest.files.size(), static_cast<std::size_t>(2 * GetParam()));
  EXPECT_EQ(saved.manifest.world_size, GetParam());
}

TEST_P(Ranks, AnyRunOfElementsIsReadAcrossPieces) {
  const MemoryDir folder;
  const Contents contents(save_sharded(folder.path(), GetParam(), 5));
  const auto model = awkward_model();
  std::mt19937 random(7);
  for (const TensorView& t : model.tensors()) {
    const StoredTensor& stored = contents.at("model", t.name);
    const std::uint64_t each = dtype_bits(t.dtype) / 8;
    for (int i = 0; i < 20; ++i) {
      const auto first = random() % (stored.elements() + 1), count = random() % (stored.elements() - first + 1);
      std::vector<std::byte> bytes(count * each);
      contents.read(stored, first, count, bytes);
      EXPECT_TRUE(std::ranges::equal(bytes, t.data.subspan(first * each, count * each))) << t.name << " " << first << " " << count;
    }
  }
}

TEST(Contents, AOneFileCheckpointReadsTheSameWay) {
  const MemoryDir folder;
  const Store store(folder.path());
  const SampleCheckpoint sample(7, 1000);
  const Contents contents(store.save(sample.manifest, sample.files).checkpoint);
  EXPECT_TRUE(holds(contents, "model", sample.model));
  EXPECT_TRUE(holds(contents, "optimizer", sample.optimizer));
  EXPECT_EQ(contents.metadata("model"), (Metadata{{"format", "pt"}}));
  EXPECT_EQ(contents.checkpoint().manifest.pieces.size(), 0U) << "and stays readable for older programs";
}

TEST(Contents, NamesAndSizesThatDoNotFitAreRefused) {
  const MemoryDir folder;
  const Contents contents(save_sharded(folder.path(), 2));
  EXPECT_EQ(contents.find("model", "odd/momentum"), nullptr);
  EXPECT_THAT(failure_of([&] { contents.at("model", "ood"); }).what, HasSubstr("did you mean 'odd'"));
  std::vector<std::byte> bytes(8);
  const auto& odd = contents.at("model", "odd");
  EXPECT_EQ(failure_of([&] { contents.read(odd, 0, 3, bytes); }).kind, Kind::usage);
  EXPECT_EQ(failure_of([&] { contents.read(odd, 257 * 3 - 1, 2, bytes); }).kind, Kind::usage);
}

TEST(Contents, AChangedPieceThatIsReadWholeIsRefused) {
  const MemoryDir folder;
  const auto saved = save_sharded(folder.path(), 3);
  const Contents contents(saved);
  const StoredTensor& odd = contents.at("model", "odd");
  const ManifestPiece& piece = odd.pieces.front();
  auto content = slurp(saved.file(piece.file));
  content[piece.offset] ^= 1;
  spill(saved.file(piece.file), content);
  std::vector<std::byte> bytes(odd.bytes());
  EXPECT_THAT(failure_of([&] { contents.read(odd, 0, odd.elements(), bytes); }).what,
              AllOf(HasSubstr(piece.name()), HasSubstr(fmt::format("offset {}", piece.offset)), HasSubstr(piece.sha256)));
}

}  // namespace
}  // namespace cohort::checkpoint
