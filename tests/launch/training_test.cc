// `cohort train` on several hosts: the same run as on one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "cluster.h"
#include "cohort/base/file.h"

namespace cohort::launch {
namespace {

namespace fs = std::filesystem;

struct Folder {
  Folder() { fs::create_directory(path); }
  ~Folder() { fs::remove_all(path); }
  const std::string path = "/tmp/" + unique_name("training");
};

Words train(const Words& where, const std::string& out) {
  Words words{COHORT_BINARY, "train"};
  words.insert(words.end(), where.begin(), where.end());
  for (const char* set : {"data.train=synthetic(samples=200)", "data.test=synthetic(samples=50, split=test)",
                          "model=mlp(in=784, hidden=32x32, out=10)", "epochs=1", "data.batch=20", "observe.report=false"})
    words.insert(words.end(), {"--set", set});
  words.insert(words.end(), {"--out", out});
  return words;
}

// Every tensor file of the run's checkpoints, by its name inside them.
std::vector<std::pair<std::string, std::string>> weights_in(const std::string& folder) {
  std::vector<std::pair<std::string, std::string>> all;
  for (const auto& entry : fs::recursive_directory_iterator(folder + "/checkpoints")) {
    if (entry.path().extension() != ".safetensors") continue;
    std::ifstream in(entry.path(), std::ios::binary);
    all.emplace_back(entry.path().filename(), std::string(std::istreambuf_iterator<char>(in), {}));
  }
  std::sort(all.begin(), all.end());
  return all;
}

TEST(HostsTrainingProcess, TwoHostsGiveTheBitsOfOne) {
  const Cluster cluster(2);
  const Folder apart, together;
  const auto two = run(cluster.on(0, train({"-H", "h1,h2"}, apart.path)), cluster.variables());
  ASSERT_EQ(two.code, 0) << two.out << two.err;
  const auto one = run(train({"-n", "2"}, together.path));
  ASSERT_EQ(one.code, 0) << one.out << one.err;
  const auto weights = weights_in(together.path);
  EXPECT_FALSE(weights.empty());
  EXPECT_TRUE(weights_in(apart.path) == weights);
  EXPECT_TRUE(cluster.empty_within(2s));
}

}  // namespace
}  // namespace cohort::launch
