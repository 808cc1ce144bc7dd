// `cohort train` on several hosts: the same run as on one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

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

// The last test_loss of the run.
double test_loss(const std::string& folder) {
  const std::string lines = read_file(folder + "/metrics.jsonl", 1_MiB);
  const std::string key = "\"test_loss\":";
  const auto at = lines.rfind(key);
  return at == std::string::npos ? -1 : std::stod(lines.substr(at + key.size()));
}

TEST(HostsTrainingProcess, TwoHostsReachTheLossOfOne) {
  const Cluster cluster(2);
  const Folder apart, together;
  const auto two = run(cluster.on(0, train({"-H", "h1,h2"}, apart.path)), cluster.variables());
  ASSERT_EQ(two.code, 0) << two.out << two.err;
  const auto one = run(train({"-n", "2"}, together.path));
  ASSERT_EQ(one.code, 0) << one.out << one.err;
  EXPECT_GT(test_loss(together.path), 0);
  EXPECT_NEAR(test_loss(apart.path), test_loss(together.path), 1e-5);
  EXPECT_TRUE(fs::exists(apart.path + "/checkpoints"));
  EXPECT_TRUE(cluster.empty_within(2s));
}

}  // namespace
}  // namespace cohort::launch
