#include "cohort/checkpoint/reshard.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>
#include <map>

#include "cohort/base/failure_of.h"
#include "cohort/checkpoint/sha256.h"
#include "cohort/checkpoint/sharded_samples.h"

namespace cohort::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;
namespace fs = std::filesystem;

std::map<std::string, std::string> bytes_of(const std::string& folder) {
  std::map<std::string, std::string> all;
  for (const auto& entry : fs::directory_iterator(folder)) all[entry.path().filename().string()] = slurp(entry.path().string());
  return all;
}
std::size_t entries(const std::string& folder) { return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), {})); }
std::string reshape(const std::string& from, const std::string& to, int ranks, int stage) {
  return reshard(open_checkpoint(from), to, {ranks, stage}).path;
}

TEST(Cuts, GiveEveryElementOnceInEqualRunsOfBlocks) {
  const auto tensor = [](const char* name, std::int64_t n) { return StoredTensor{"model", name, Dtype::f32, {n}, {}}; };
  const std::vector<StoredTensor> tensors{tensor("a", 1),   tensor("b", 0),   tensor("c", 10000),
                                          tensor("d", 256), tensor("e", 257), tensor("f", 0)};
  std::vector<const StoredTensor*> order;
  for (const auto& t : tensors) order.push_back(&t);
  for (std::size_t files = 1; files <= 70; ++files) {
    std::map<const StoredTensor*, std::uint64_t> at;
    std::vector<std::uint64_t> filled(files);
    std::size_t last = 0;
    for (const Cut& cut : plan_cuts(order, files)) {
      EXPECT_EQ(cut.first, at[cut.tensor]);
      EXPECT_EQ(cut.first % kCutBlock, 0U) << "a block is never cut";
      EXPECT_TRUE(cut.count > 0 || cut.tensor->elements() == 0);
      EXPECT_GE(cut.file, last) << "files fill up one after the other";
      last = cut.file;
      at[cut.tensor] += cut.count;
      ASSERT_LT(cut.file, files);
      filled[cut.file] += (cut.count + kCutBlock - 1) / kCutBlock;
    }
    EXPECT_EQ(at.size(), tensors.size()) << "empty ones too";
    for (const auto& t : tensors) EXPECT_EQ(at[&t], t.elements()) << t.name;
    for (const auto blocks : filled) EXPECT_LE(blocks, (44 + files - 1) / files) << "1 + 40 + 1 + 2 blocks";
  }
}

class Reshard : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(OneToNineRanks, Reshard, testing::Range(1, 10));

TEST_P(Reshard, AnyCutGoesToAnyStageWithTheSameTensors) {
  const MemoryDir folder;
  save_sharded(folder.file("from"), GetParam(), 9);
  for (int stage = 0; stage <= 3; ++stage)
    for (const int ranks : {1, 2, 7}) {
      const auto path = reshape(folder.file("from"), folder.file(fmt::format("to{}{}", stage, ranks)), ranks, stage);
      const Contents contents(Store(fs::path(path).parent_path()).verify(path));
      EXPECT_TRUE(holds(contents, "model", awkward_model())) << "stage " << stage << ", " << ranks << " ranks";
      EXPECT_TRUE(holds(contents, "optimizer", awkward_optimizer())) << "stage " << stage << ", " << ranks << " ranks";
      EXPECT_EQ(contents.checkpoint().manifest.world_size, ranks);
      EXPECT_EQ(contents.metadata("model"), (Metadata{{"group", "model"}}));
      EXPECT_EQ(contents.checkpoint().manifest.files.size(), static_cast<std::size_t>(stage == 0 ? 2 : stage < 3 ? 1 + ranks : 2 * ranks));
    }
}

TEST(ReshardBoxes, OfAMeshGoToAnyStage) {
  for (const std::size_t dimension : {0, 1})
    for (int stage = 0; stage <= 3; ++stage) {
      const MemoryDir folder;
      save_in_boxes(folder.file("from"), dimension);
      const auto path = reshape(folder.file("from"), folder.file("to"), 3, stage);
      const Contents contents(Store(fs::path(path).parent_path()).verify(path));
      EXPECT_TRUE(holds(contents, "model", awkward_model())) << "stage " << stage;
      EXPECT_FALSE(contents.at("model", "odd").in_boxes());
    }
}

TEST(ReshardBoxes, GiveOneFileThatIsThatOfOneRank) {
  const MemoryDir folder;
  const auto mesh = save_in_boxes(folder.file("mesh"), 1), plain = save_sharded(folder.file("plain"), 2);
  consolidate(mesh, folder.file("mesh.safetensors"), false);
  consolidate(plain, folder.file("plain.safetensors"), false);
  EXPECT_EQ(slurp(folder.file("mesh.safetensors")), slurp(folder.file("plain.safetensors")));
}

TEST(ReshardBoxes, AreNamedWhenOneChanged) {
  const MemoryDir folder;
  const auto saved = save_in_boxes(folder.file("from"), 1);
  const Contents contents(saved);
  const ManifestPiece& piece = contents.at("model", "odd").pieces[1];
  auto content = slurp(saved.file(piece.file));
  content[piece.offset + 8] = static_cast<char>(content[piece.offset + 8] ^ 1);
  spill(saved.file(piece.file), content);
  EXPECT_THAT(failure_of([&] { reshape(folder.file("from"), folder.file("to"), 2, 0); }).what,
              AllOf(HasSubstr(piece.name()), HasSubstr(piece.sha256)));
  EXPECT_EQ(entries(folder.file("to")), 0u);
}

TEST_P(Reshard, ThereAndBackGivesTheSameBytes) {
  const MemoryDir folder;
  save_sharded(folder.file("from"), 3, 2);
  const int n = GetParam();
  for (const int stage : {1, 3}) {
    const auto dir = folder.file(fmt::format("stage{}", stage));
    const auto first = reshape(folder.file("from"), dir + "/a", n, stage);
    const auto there = reshape(first, dir + "/b", 5, 3);
    const auto back = reshape(there, dir + "/c", n, stage);
    EXPECT_EQ(bytes_of(first), bytes_of(back)) << "manifest and all";
  }
}

TEST(Reshard, AOneFileCheckpointComesBackAsItWas) {
  const MemoryDir folder;
  const Store store(folder.file("from"));
  const SampleCheckpoint sample(7, 1000);
  const auto before = store.save(sample.manifest, sample.files).checkpoint.path;
  const auto there = reshape(before, folder.file("b"), 6, 3);
  const auto back = reshape(there, folder.file("c"), sample.manifest.world_size, 0);
  EXPECT_EQ(bytes_of(before), bytes_of(back));
}

TEST(Reshard, OneFileHoldsTheWholeModelAndOnDemandTheState) {
  const MemoryDir folder;
  const auto from = save_sharded(folder.file("from"), 4);
  const auto model = awkward_model();
  const auto made = consolidate(from, folder.file("model.safetensors"), false);
  EXPECT_EQ(made.tensors, model.tensors().size());
  const SafetensorsFile file(folder.file("model.safetensors"));
  EXPECT_EQ(file.tensors().size(), model.tensors().size());
  for (const TensorView& t : model.tensors()) EXPECT_TRUE(std::ranges::equal(file.read(t.name), t.data)) << t.name;
  consolidate(from, folder.file("all.safetensors"), true);
  EXPECT_TRUE(
      std::ranges::equal(SafetensorsFile(folder.file("all.safetensors")).read("odd/momentum"), awkward_optimizer().tensors()[0].data));
  EXPECT_EQ(entries(folder.path()), 3U) << "no temporaries";
}

TEST(Reshard, ProgressEndsWithAllBytesAndMayStopIt) {
  const MemoryDir folder;
  const auto from = save_sharded(folder.file("from"), 4);
  std::uint64_t last = 0, total = 0;
  const auto made = reshard(from, folder.file("to"), {2, 3}, [&](std::uint64_t done, std::uint64_t of) {
    EXPECT_GT(done, last);
    last = done, total = of;
  });
  EXPECT_EQ(last, total);
  EXPECT_EQ(total, made.bytes);
  const auto stop = [](std::uint64_t, std::uint64_t) { throw_failure(Kind::aborted, "stopped"); };
  EXPECT_EQ(failure_of([&] { reshard(from, folder.file("half"), {2, 3}, stop); }).kind, Kind::aborted);
  EXPECT_EQ(entries(folder.file("half")), 0U);
}

TEST(Reshard, OverwritesNothing) {
  const MemoryDir folder;
  const auto from = save_sharded(folder.file("from"), 2);
  reshard(from, folder.file("to"), {3, 3});
  const auto before = bytes_of(folder.file("to/step-00001200"));
  EXPECT_THAT(failure_of([&] { reshard(from, folder.file("to"), {2, 1}); }).what, HasSubstr("step-00001200 is there already"));
  EXPECT_THAT(failure_of([&] { reshard(from, folder.file("to/step-00001200"), {2, 1}); }).what, HasSubstr("is there already"));
  EXPECT_EQ(bytes_of(folder.file("to/step-00001200")), before);
  EXPECT_THAT(failure_of([&] { reshard(from, folder.file("x/step-00000001"), {2, 1}); }).what, HasSubstr("must be called step-00001200"));
  spill(folder.file("file"), "mine");
  EXPECT_THAT(failure_of([&] { consolidate(from, folder.file("file"), false); }).what, HasSubstr("is there already"));
  EXPECT_EQ(slurp(folder.file("file")), "mine");
}

TEST(Reshard, WhatCannotBeIsRefused) {
  const MemoryDir folder;
  const auto from = save_sharded(folder.file("from"), 2);
  EXPECT_THAT(failure_of([&] { reshard(from, folder.file("to"), {2, 4}); }).what, HasSubstr("stage 4"));
  EXPECT_THAT(failure_of([&] { reshard(from, folder.file("to"), {0, 1}); }).what, HasSubstr("0 ranks"));
  EXPECT_THAT(failure_of([&] { open_checkpoint(folder.file("nothing")); }).what, HasSubstr("holds no checkpoint"));
  EXPECT_FALSE(fs::exists(folder.file("to")));
}

// Damage of every kind. Each is refused naming the piece, its offset and the digest it should have, and leaves nothing behind.
class Damaged : public testing::Test {
 protected:
  Damaged() : from_(save_sharded(folder_.file("from"), 3, 4)) {
    for (const ManifestPiece& p : from_.manifest.pieces)
      if (p.of.tensor == "odd" && p.of.first > 0 && piece_.count == 0) piece_ = p;
  }
  std::string refused() {
    const auto error = failure_of([&] { reshard(open_checkpoint(from_.path), folder_.file("to"), {2, 3}); });
    const auto whole = failure_of([&] { consolidate(open_checkpoint(from_.path), folder_.file("one.safetensors"), true); });
    EXPECT_EQ(error.kind, Kind::corrupt) << error.what;
    EXPECT_EQ(whole.kind, Kind::corrupt) << whole.what;
    EXPECT_EQ(entries(folder_.path()), fs::exists(folder_.file("to")) ? 2U : 1U);
    EXPECT_TRUE(!fs::exists(folder_.file("to")) || entries(folder_.file("to")) == 0U);
    return error.what;
  }
  auto names_the_piece() {
    return AllOf(HasSubstr(piece_.file), HasSubstr(piece_.name()), HasSubstr(fmt::format("offset {}", piece_.offset)),
                 HasSubstr(piece_.sha256));
  }
  Checkpoint reshard_to_whole_files() {
    return open_checkpoint(reshard(open_checkpoint(from_.path), folder_.file("from/whole"), {1, 0}).path);
  }
  // The manifest changed, under a digest that agrees.
  void forge(const std::function<void(Manifest&)>& change) {
    Manifest m = from_.manifest;
    change(m);
    spill(from_.path + "/manifest.json", format_manifest(m));
  }

  MemoryDir folder_;
  Checkpoint from_;
  ManifestPiece piece_;
};

TEST_F(Damaged, EveryFlippedByteOfAPiece) {
  const auto path = from_.file(piece_.file);
  const auto good = slurp(path);
  for (std::uint64_t at = piece_.offset; at < piece_.offset + piece_.bytes(); at += 97) {
    auto bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    spill(path, bad);
    EXPECT_THAT(refused(), names_the_piece());
  }
}

TEST_F(Damaged, AFileThatIsGone) {
  fs::remove(from_.file(piece_.file));
  EXPECT_THAT(refused(), AllOf(HasSubstr(piece_.file), HasSubstr("is missing"), HasSubstr("offset"), HasSubstr("sha256")));
}

TEST_F(Damaged, TwoFilesExchanged) {
  fs::rename(from_.file("model-00001-of-00003.safetensors"), folder_.file("from/hold"));
  fs::rename(from_.file("model-00002-of-00003.safetensors"), from_.file("model-00001-of-00003.safetensors"));
  fs::rename(folder_.file("from/hold"), from_.file("model-00002-of-00003.safetensors"));
  EXPECT_THAT(refused(), AllOf(HasSubstr("of-00003.safetensors"), HasSubstr("offset"), HasSubstr("sha256")));
}

TEST_F(Damaged, AFileCutShort) {
  const auto path = from_.file(piece_.file);
  spill(path, slurp(path).substr(0, piece_.offset + piece_.bytes() - 1));
  EXPECT_THAT(refused(), AllOf(HasSubstr("truncated"), HasSubstr(piece_.file), HasSubstr("offset"), HasSubstr("sha256")));
}

TEST_F(Damaged, AFileThatGrew) {
  const auto path = from_.file(piece_.file);
  spill(path, slurp(path) + "x");
  EXPECT_THAT(refused(), AllOf(HasSubstr(piece_.file), HasSubstr("the manifest says")));
}

TEST_F(Damaged, TwoPiecesThatOverlap) {
  forge([&](Manifest& m) {
    for (auto& p : m.pieces)
      if (p == piece_) p.of.first -= 1;
  });
  EXPECT_THAT(refused(), AllOf(HasSubstr("overlap"), HasSubstr("odd["), HasSubstr(fmt::format("offset {}", piece_.offset))));
}

TEST_F(Damaged, AGapBetweenPieces) {
  forge([&](Manifest& m) { std::erase(m.pieces, piece_); });
  EXPECT_THAT(refused(), AllOf(HasSubstr("of 'odd' are in no piece"), HasSubstr(fmt::format("elements {} to", piece_.of.first))));
}

TEST_F(Damaged, APieceOfAnotherShapeOrType) {
  forge([&](Manifest& m) {
    for (auto& p : m.pieces)
      if (p == piece_) p.of.shape = {3, 257};
  });
  EXPECT_THAT(refused(), AllOf(HasSubstr("[3, 257]"), HasSubstr("[257, 3]")));
}

TEST_F(Damaged, AnyByteOfAnyHeader) {
  for (const ManifestFile& file : from_.manifest.files) {
    const auto path = from_.file(file.name);
    const auto good = slurp(path);
    const std::uint64_t data = SafetensorsFile(path).data_start();
    for (std::uint64_t at = 0; at < data; at += 17) {
      auto bad = good;
      bad[at] = static_cast<char>(bad[at] ^ 1);
      spill(path, bad);
      EXPECT_THAT(refused(), HasSubstr(file.name)) << "byte " << at;
    }
    spill(path, good);
  }
  reshard(open_checkpoint(from_.path), folder_.file("whole"), {2, 3});  // undamaged again
}

TEST_F(Damaged, ALinkOrAFifoForTheManifest) {
  const auto manifest = from_.path + "/manifest.json";
  fs::rename(manifest, folder_.file("from/elsewhere"));
  fs::create_symlink(folder_.file("from/elsewhere"), manifest);
  EXPECT_THAT(refused(), AllOf(HasSubstr(manifest), HasSubstr("symbolic link")));
  fs::remove(manifest);
  ASSERT_EQ(::mkfifo(manifest.c_str(), 0600), 0);
  EXPECT_THAT(refused(), AllOf(HasSubstr(manifest), HasSubstr("no regular file")));
}

TEST_F(Damaged, ALinkForAFileWithoutPieces) {
  from_ = reshard_to_whole_files();
  const auto model = from_.file("model.safetensors");
  fs::rename(model, folder_.file("from/elsewhere"));
  fs::create_symlink(folder_.file("from/elsewhere"), model);
  EXPECT_THAT(refused(), AllOf(HasSubstr(model), HasSubstr("symbolic link")));
}

TEST_F(Damaged, ALinkForTheStepButNotUnderANameOfItsOwner) {
  const auto best = folder_.file("from/best");
  fs::create_symlink(from_.path, best);
  reshard(open_checkpoint(best), folder_.file("from/again"), {2, 3});
  const auto elsewhere = folder_.file("from/elsewhere");
  fs::rename(from_.path, elsewhere);
  fs::create_symlink(elsewhere, from_.path);
  EXPECT_THAT(refused(), AllOf(HasSubstr(from_.path), HasSubstr("symbolic link")));
}

TEST_F(Damaged, AHeaderWhoseMetadataWouldGoOn) {
  const auto path = from_.file("model-00000-of-00003.safetensors");
  auto bad = slurp(path);
  bad[bad.find("\"model\"") + 1] = 'x';
  spill(path, bad);
  EXPECT_THAT(refused(), HasSubstr("the manifest says"));
}

}  // namespace
}  // namespace cohort::checkpoint
