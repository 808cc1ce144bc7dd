// The bytes of checkpoints: runs of three ranks, then of two, then of three, each resumed from the one before.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cohort/base/file.h"
#include "cohort/checkpoint/sha256.h"
#include "cohort/collective/ranks.h"
#include "cohort/ddp/sharded.h"
#include "tests/golden/lines.h"
#include "tests/golden/numbers.h"

namespace cohort::golden {
namespace {

using collective::Communicator;
constexpr int kSteps = 3;  // of each run

struct Whole : torch::nn::Module {
  std::vector<std::shared_ptr<Block>> blocks;
  Whole() {
    for (std::size_t i = 0; i < kSizes.size(); ++i) blocks.push_back(register_module("b" + std::to_string(i), std::make_shared<Block>(i)));
  }
};

// The newest checkpoint of the folder, made by these ranks after those that are there.
std::string train_on(const std::string& folder, int ranks, const std::string& more, int stage) {
  std::string path;
  collective::run_ranks(ranks, [&](Communicator& comm) {
    at::set_num_threads(1);
    Whole net;
    ddp::ShardedOptions options{.stage = stage, .optimizer = "adamw(lr=0.01)", .bucket = ByteSize{4096}, .lanes = 0, .more = more};
    for (const auto& block : net.named_children()) options.blocks.push_back({block.key(), block.value()});
    ddp::Sharded zero(comm, net, options);
    zero.load(folder);
    for (int k = 0; k < kSteps; ++k) {
      at::Tensor x = at::zeros({}).requires_grad_(true);
      const auto stream = static_cast<std::uint64_t>(zero.updates() * 10 + comm.rank().value);
      for (std::size_t i = 0; i < kSizes.size(); ++i)
        x = zero.block("b" + std::to_string(i), x,
                       [&](const at::Tensor& in) { return in + (net.blocks[i]->p * numbers(kSizes[i], stream * 100 + i)).sum(); });
      x.backward();
      EXPECT_TRUE(zero.step().committed);
    }
    const std::string written = zero.save(folder);
    if (comm.rank().value == 0) path = written;
  });
  return path;
}

std::string hash_of(const std::string& text) {
  checkpoint::Sha256 hash;
  hash.add({reinterpret_cast<const std::byte*>(text.data()), text.size()});
  return hash.hex().substr(0, 16);
}

// Names and bytes of all files; of the manifest without what names the versions, and the digest over that.
std::string text_of(const std::string& checkpoint) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(checkpoint)) names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  std::string text;
  for (const auto& name : names) {
    std::string bytes = read_file(checkpoint + "/" + name);
    if (name == "manifest.json") {
      auto manifest = nlohmann::ordered_json::parse(bytes);
      for (const char* version : {"sha256", "cohort", "torch"}) manifest.erase(version);
      bytes = manifest.dump();
    }
    text += fmt::format("{}={} ", name, hash_of(bytes));
  }
  return text.substr(0, text.size() - 1);
}

struct Layout {
  const char* name;
  int stage;
  const char* more;
};

class GoldenCheckpoint : public testing::TestWithParam<Layout> {};

TEST_P(GoldenCheckpoint, HasTheSameBytesAfterThreeTwoAndThreeRanks) {
  const TempDir folder("golden");
  for (const int ranks : {3, 2, 3}) {
    const auto path = train_on(folder.path(), ranks, GetParam().more, GetParam().stage);
    const auto name = fmt::format("checkpoint {} {}", GetParam().name, std::filesystem::path(path).filename().string());
    EXPECT_EQ(text_of(path), golden_line(name, text_of(path)));
  }
}

INSTANTIATE_TEST_SUITE_P(Of, GoldenCheckpoint,
                         testing::Values(Layout{"zero1", 1, ""}, Layout{"zero2", 2, ""}, Layout{"zero3", 3, ""},
                                         Layout{"zero3_buddy", 3, "buddy=true"}),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace cohort::golden
