// Manifests whose digest is right and whose contents are not, at every place that reads one: refused in words, or used without harm.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <random>

#include "cohort/base/file.h"
#include "cohort/checkpoint/manifest.h"
#include "cohort/checkpoint/reshard.h"
#include "cohort/checkpoint/store.h"
#include "cohort/net/transport/loopback.h"
#include "cohort/train/loop/prediction_csv.h"
#include "cohort/train/loop/predictor.h"
#include "cohort/train/loop/trainer.h"

namespace cohort::train::hostile_manifest_test {
namespace {

constexpr unsigned kSeed = 77;
constexpr int kRounds = 300, kStep = 4, kEntries = 7;
namespace fs = std::filesystem;

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
  // Another number in place of one that is there, a cut, a byte, what a terminal would obey, or all of it.
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
    switch (below(6)) {
      case 0: return one_of(kTexts);
      case 4: return was.insert(below(was.size() + 1), "\x1b[2J");
      case 5:  // in JSON
        if (const auto quote = was.find('"', below(was.size() + 1)); quote != was.npos) was.insert(quote + 1, R"(\u001b[2J)");
        return was;
      case 1: return was.substr(0, below(was.size() + 1));
      case 2:
        if (digit == std::string::npos) return was + was;
        return was.replace(digit, 1, sizes ? fmt::to_string(number()) : fmt::to_string(below(20)));
      default:
        if (!was.empty()) was[below(was.size())] = static_cast<char>(1 + below(126));
        return was;
    }
  }
  void change_file(checkpoint::Manifest& m) {
    checkpoint::ManifestFile& file = one_of(m.files);
    switch (below(6)) {
      case 0: file.bytes = static_cast<std::uint64_t>(number()); break;
      case 1: file.sha256 = one_of(m.files).sha256; break;
      case 2: file.name = one_of(m.files).name; break;
      case 3: file.name = text(file.name, true); break;
      case 4: std::swap(file, one_of(m.files)); break;
      default: m.files.erase(m.files.begin() + static_cast<std::ptrdiff_t>(below(m.files.size())));
    }
  }
  void change_piece(checkpoint::Manifest& m) {
    static constexpr checkpoint::Dtype kDtypes[] = {checkpoint::Dtype::f64, checkpoint::Dtype::i32, checkpoint::Dtype::f16,
                                                    checkpoint::Dtype::u8};
    checkpoint::ManifestPiece &piece = one_of(m.pieces), other = one_of(m.pieces);
    switch (below(9)) {
      case 0: piece.offset = static_cast<std::uint64_t>(number()); break;
      case 1: piece.count = static_cast<std::uint64_t>(number()); break;
      case 2: piece.of.first = static_cast<std::uint64_t>(number()); break;
      case 3: piece.of.shape.push_back(number()); break;
      case 4: piece.dtype = one_of(kDtypes); break;
      case 5: piece.of = other.of; break;
      case 6: piece.file = other.file; break;
      case 7: piece.sha256 = other.sha256; break;
      default: m.pieces.push_back(other);
    }
  }
  // All pieces of a tensor alike, so that they still fit together.
  void change_tensor(checkpoint::Manifest& m) {
    static constexpr checkpoint::Dtype kOfFourBytes[] = {checkpoint::Dtype::i32, checkpoint::Dtype::u32};
    const std::string tensor = one_of(m.pieces).of.tensor, name = text(tensor, true);
    const auto what = below(5);
    for (checkpoint::ManifestPiece& piece : m.pieces) {
      if (piece.of.tensor != tensor) continue;
      if (what == 0) piece.of.tensor = name;
      if (what == 1) std::reverse(piece.of.shape.begin(), piece.of.shape.end());
      if (what == 2) piece.of.shape.insert(piece.of.shape.begin(), 1);
      if (what == 3) piece.dtype = kOfFourBytes[name.size() % 2];
    }
    if (what == 4) std::erase_if(m.pieces, [&](const checkpoint::ManifestPiece& piece) { return piece.of.tensor == tensor; });
  }
  checkpoint::Manifest of(checkpoint::Manifest m) {
    for (auto changes = 1 + below(2); changes > 0; --changes) {
      const auto what = below(m.pieces.empty() ? 11 : 17);
      if (what == 8) m.step = number();
      if (what == 9 || what == 10) change_file(m);
      if (what >= 11) what % 2 == 0 ? change_piece(m) : change_tensor(m);
      if (what > 7) continue;
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
  std::string failures;  // of all entry functions, and what they printed

  HostileManifest() {
    std::string rows = "side,a,b,c,d\n", bare = "a,b,c,d\n";
    for (int i = 0; i < 24; ++i) {
      const auto features = fmt::format("{},{},{},{}\n", 9 * i % 256, 40, 200 - i, i);
      rows += (i % 2 == 0 ? "near," : "far,") + features;
      bare += features;
    }
    write_file_atomically(dir.file("train.csv"), rows);
    write_file_atomically(dir.file("bare.csv"), bare);
    config.model = "mlp(in=4, hidden=3, out=2)";
    config.data.train = fmt::format("csv(file={}, label=side, shape=1x2x2)", dir.file("train.csv"));
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
  // As lines of CSV, for a terminal.
  void predict() {
    const Predictor predictor{config.out};
    const auto set = predictor.open(dir.file("bare.csv"));
    const auto targets = predictor.regression() ? predictor.target_names() : std::vector<std::string>{};
    failures += csv_heading(targets, false, !set->form().unlabelled, CsvFor::terminal);
    predictor.predict(*set, {.limit = 4}, [&](const Prediction& p) { failures += csv_line(p, CsvFor::terminal); });
  }
  int try_all(const std::string& step_folder) {
    int passed = 0;
    const std::string to = dir.file("to");
    passed += tried([&] { checkpoint::Store(config.out + "/checkpoints", {.prepared = false}).verify(step_folder); });
    passed += tried([&] { Predictor{config.out}.score(config.data.train, 4); });
    passed += tried([&] { predict(); });
    for (const checkpoint::Layout layout : {checkpoint::Layout{}, checkpoint::Layout{.ranks = 3, .stage = 3}})
      passed += tried([&] { checkpoint::reshard(checkpoint::open_checkpoint(config.out), to, layout); }), fs::remove_all(to);
    passed += tried([&] { checkpoint::consolidate(checkpoint::open_checkpoint(config.out), to, true); }), fs::remove_all(to);
    passed += tried([&] { train(); });  // last: it saves
    return passed;
  }
  // A folder of checkpoints with this manifest, under the name of its step.
  std::string put(const std::string& pristine, const checkpoint::Manifest& manifest) const {
    fs::remove_all(config.out);
    fs::copy(pristine, config.out, fs::copy_options::recursive);
    const std::string path = config.out + "/checkpoints/" + checkpoint::step_name(manifest.step);
    if (path != folder()) fs::rename(folder(), path);
    write_file_atomically(path + "/manifest.json", checkpoint::format_manifest(manifest), 0600);
    return path;
  }
  // The run in `pristine`, changed again and again.
  void attack(const std::string& pristine) {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const auto whole = checkpoint::read_manifest(pristine + "/checkpoints/" + checkpoint::step_name(kStep), kStep);
    const int all = try_all(put(pristine, whole));
    Changes changes;
    int refused = 0;
    for (int round = 0; round < kRounds; ++round) {
      std::string path;
      if (tried([&] { path = put(pristine, changes.of(whole)); })) refused += all - try_all(path);
    }
    const std::string said = testing::internal::GetCapturedStdout() + testing::internal::GetCapturedStderr() + failures;
    EXPECT_EQ(all, kEntries) << failures;
    EXPECT_GT(refused, kRounds / 4) << "seed " << kSeed << ": hardly anything was changed that counts";
    const auto escape = said.find('\x1b');
    EXPECT_EQ(escape, said.npos) << said.substr(escape < 200 ? 0 : escape - 200, 400);
  }
};

TEST_F(HostileManifest, IsRefusedInPrintableWordsOrDoesNoHarm) {
  train();
  fs::rename(config.out, dir.file("pristine"));
  attack(dir.file("pristine"));
}

TEST_F(HostileManifest, OfSeveralRanksIsRefusedInPrintableWordsOrDoesNoHarm) {
  train();
  const std::string pristine = dir.file("pristine");
  checkpoint::reshard(checkpoint::open_checkpoint(config.out), pristine + "/checkpoints", {.ranks = 2, .stage = 3});
  ASSERT_FALSE(checkpoint::open_checkpoint(pristine).manifest.pieces.empty());
  attack(pristine);
}

}  // namespace
}  // namespace cohort::train::hostile_manifest_test
