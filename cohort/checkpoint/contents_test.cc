#include "cohort/checkpoint/contents.h"

#include <gmock/gmock.h>

#include <cstring>

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

TEST(Contents, BoxesOfAMeshAreReadAsOneTensorAndInAnyOtherBox) {
  for (const std::size_t dimension : {0, 1})
    for (const int runs : {1, 2, 3}) {
      const MemoryDir folder;
      const Contents contents(save_in_boxes(folder.path(), dimension, runs));
      const auto model = awkward_model();
      EXPECT_TRUE(holds(contents, "model", model));
      const TensorView& odd = model.tensors()[2];
      const StoredTensor& stored = contents.at("model", "odd");
      EXPECT_TRUE(stored.in_boxes());
      for (const Box& box :
           {whole_box({257, 3}), Box{{0, 0}, {128, 3}}, Box{{128, 0}, {129, 3}}, Box{{0, 2}, {257, 1}}, Box{{5, 1}, {40, 2}}}) {
        const auto elements = static_cast<std::uint64_t>(cohort::elements_of(box));
        std::vector<std::byte> expected(elements * 4), bytes((elements - 7) * 4);
        for (const CommonRun& run : common_runs(whole_box({257, 3}), box))
          std::memcpy(expected.data() + run.in_b * 4, odd.data.data() + run.in_a * 4, run.count * 4);
        contents.read(stored, box, 5, elements - 7, bytes);
        EXPECT_TRUE(std::ranges::equal(bytes, ConstBytes(expected).subspan(5 * 4, bytes.size()))) << to_text(box);
      }
    }
}

TEST(Contents, AByteOfABoxThatChangedIsFoundWhereTheBoxIsReadWhole) {
  const MemoryDir folder;
  const auto saved = save_in_boxes(folder.path(), 1);
  const Contents contents(saved);
  const StoredTensor& odd = contents.at("model", "odd");
  const ManifestPiece& piece = odd.pieces.back();
  auto content = slurp(saved.file(piece.file));
  content[piece.offset] = static_cast<char>(content[piece.offset] ^ 1);
  spill(saved.file(piece.file), content);
  std::vector<std::byte> bytes(odd.bytes());
  const auto error = failure_of([&] { contents.read(odd, 0, odd.elements(), bytes); });
  EXPECT_EQ(error.kind, Kind::corrupt);
  EXPECT_THAT(error.what, AllOf(HasSubstr(piece.name()), HasSubstr("the manifest says")));
}

TEST(Contents, ABoxThatTheTensorDoesNotHaveIsRefused) {
  const MemoryDir folder;
  const Contents contents(save_in_boxes(folder.path(), 0));
  std::vector<std::byte> bytes(4);
  EXPECT_THAT(failure_of([&] {
                contents.read(contents.at("model", "odd"), {{257, 0}, {1, 1}}, 0, 1, bytes);
              }).what,
              HasSubstr("'odd' is of [257, 3] and has no box [257:258, 0:1]"));
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
