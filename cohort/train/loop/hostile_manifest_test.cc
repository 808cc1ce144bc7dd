// Manifests whose digest is right and whose contents are not, at every place that reads one: refused in words, or used without harm.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "cohort/base/file.h"
#include "cohort/checkpoint/manifest.h"
#include "cohort/checkpoint/reshard.h"
#include "cohort/checkpoint/store.h"
#include "cohort/net/transport/loopback.h"
#include "cohort/train/loop/predictor.h"
#include "cohort/train/loop/trainer.h"

namespace cohort::train::hostile_manifest_test {
namespace {

constexpr unsigned kSeed = 11;
constexpr int kRounds = 150, kStep = 4;

// Of a checkpoint's own numbers and texts, or of what programs have stumbled over.
struct Changes {
  std::mt19937 random{kSeed};

  std::size_t below(std::size_t n) { return random() % n; }
  template <class Range>
  auto& one_of(Range& range) {
    return *std::next(std::begin(range), static_cast<std::ptrdiff_t>(below(std::size(range))));
  }
  std::int64_t number() {
    static constexpr std::int64_t kNumbers[] = {
        0, 1, 2, 3, 7, 255, 4096, 1 << 30, INT32_MAX, std::int64_t{INT32_MAX} + 1, INT64_MAX - 1, INT64_MAX};
    return one_of(kNumbers);
  }
  // Another number in place of one that is there, a cut, a byte, or all of it.
  std::string text(std::string was, bool sizes) {
    static const std::string kTexts[] = {"",
                                         "-1",
                                         "1e999",
                                         "nan",
                                         "{}",
                                         "[]",
                                         "null",
                                         "\x1b[2J\x1b]0;x\a",
                                         "\n\n",
                                         "adamw(lr=",
                                         std::string(5000, '('),
                                         "18446744073709551616"};
    const auto digit = was.find_first_of("0123456789", was.empty() ? 0 : below(was.size()));
    switch (below(4)) {
      case 0: return one_of(kTexts);
      case 1: return was.substr(0, below(was.size() + 1));
      case 2:
        if (digit == std::string::npos) return was + was;
        return was.replace(digit, 1, sizes ? fmt::to_string(number()) : fmt::to_string(below(20)));
      default:
        if (!was.empty()) was[below(was.size())] = static_cast<char>(1 + below(126));
        return was;
    }
  }
  checkpoint::Manifest of(checkpoint::Manifest m) {
    for (auto changes = 1 + below(2); changes > 0; --changes) {
      const auto what = below(8);
      if (what == 0) m.epoch = number();
      if (what == 1) m.position = number();
      if (what == 2) m.world_size = static_cast<int>(std::max<std::int64_t>(1, number() & INT32_MAX));
      if (what == 3 && !m.texts.empty()) m.texts.erase(std::next(m.texts.begin(), static_cast<std::ptrdiff_t>(below(m.texts.size()))));
      auto& [name, value] = one_of(what == 4 && !m.values.empty() ? m.values : m.texts);
      if (what >= 4) value = text(value, name != "model" && name != "config");  // a model may be as large as its author likes
    }
    return m;
  }
};

struct HostileManifest : testing::Test {
  TempDir dir;
  TrainConfig config;
  std::string failures;  // of all entry functions

  HostileManifest() {
    std::string rows;
    for (int i = 0; i < 24; ++i) rows += fmt::format("{},{},{},{},{}\n", i % 2, 9 * i % 256, 40, 200 - i, i);
    write_file_atomically(dir.file("train.csv"), rows);
    config.model = "mlp(in=4, hidden=3, out=2)";
    config.data.train = fmt::format("csv(file={}, shape=1x2x2, classes=2)", dir.file("train.csv"));
    config.data.test = "";
    config.data.batch = 4;
    config.epochs = 0;
    config.steps = kStep;
    config.optimizer = "adamw(lr=0.01)";
    config.observe.tensorboard = config.observe.report = false;
    config.threads = 1;
    config.out = dir.file("run");
  }
  std::string folder() const { return config.out + "/checkpoints/" + checkpoint::step_name(kStep); }

  bool tried(const std::function<void()>& entry) {
    try {
      entry();
      return true;
    } catch (const Failure& failure) {  // anything else ends the test
      EXPECT_NE(failure.kind(), Kind::bug) << failure.what();
      failures += failure.what();
      return false;
    }
  }
  void train() const {
    std::shared_ptr<net::PeerLinks> alone = std::move(net::loopback_world(1).front());
    Trainer(*collective::open(std::move(alone), {}), config, 1, 1).run();
  }
  int try_all(int round) {
    int passed = 0;
    passed += tried([&] { train(); });
    passed += tried([&] { Predictor{config.out}.score(config.data.train, 4); });
    passed += tried([&] { checkpoint::reshard(checkpoint::open_checkpoint(config.out), dir.file(fmt::format("to{}", round)), {}); });
    passed += tried([&] { checkpoint::Store(config.out + "/checkpoints").verify(folder()); });
    return passed;
  }
};

TEST_F(HostileManifest, IsRefusedInPrintableWordsOrDoesNoHarm) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  train();
  const auto whole = checkpoint::read_manifest(folder(), kStep);
  const int all = try_all(-1);
  Changes changes;
  int refused = 0;
  for (int round = 0; round < kRounds; ++round) {
    if (!tried([&] { write_file_atomically(folder() + "/manifest.json", checkpoint::format_manifest(changes.of(whole)), 0600); })) continue;
    refused += all - try_all(round);
  }
  const std::string said = testing::internal::GetCapturedStdout() + testing::internal::GetCapturedStderr() + failures;
  EXPECT_EQ(all, 4) << failures;
  EXPECT_GT(refused, kRounds / 4) << "seed " << kSeed << ": hardly anything was changed that counts";
  EXPECT_EQ(said.find('\x1b'), said.npos) << said.substr(said.find('\x1b') - 200, 400);
}

}  // namespace
}  // namespace cohort::train::hostile_manifest_test
