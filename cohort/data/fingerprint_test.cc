#include "cohort/data/fingerprint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/base/failure_of.h"
#include "cohort/base/file.h"
#include "cohort/data/dataset.h"
#include "cohort/data/testing.h"

namespace cohort::data {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// A set of a program's own: one byte a sample.
class Own final : public Dataset {
 public:
  Own(std::vector<std::uint8_t> bytes, std::int64_t label, bool random = false)
      : Dataset({.shape = {1, 1, 1}, .classes = 10}, static_cast<std::int64_t>(bytes.size())),
        bytes_(std::move(bytes)),
        label_(label),
        random_(random) {}
  Sample sample(std::int64_t index, Scratch& scratch) const override {
    scratch = {random_ ? static_cast<std::uint8_t>(++drawn_) : bytes_[static_cast<std::size_t>(index)]};
    return {.input = scratch.data(), .label = label_};
  }
  std::string where(std::int64_t index) const override { return fmt::format("own, sample {}", index); }

 private:
  std::vector<std::uint8_t> bytes_;
  std::int64_t label_;
  bool random_;
  mutable int drawn_ = 0;
};

// Tokens of 64 bits, a label for each: as programs of one's own have them.
class Wide final : public Dataset {
 public:
  Wide(std::vector<std::int64_t> tokens, std::vector<std::int64_t> labels)
      : Dataset({.input = Input::tokens, .shape = {2}, .vocabulary = 70000, .next_tokens = true, .wide = true, .ids = 2}, 1),
        tokens_(std::move(tokens)),
        labels_(std::move(labels)) {}
  Sample sample(std::int64_t, Scratch&) const override {
    return {.input = reinterpret_cast<const std::uint8_t*>(tokens_.data()), .ids = labels_.data()};
  }
  std::string where(std::int64_t) const override { return "wide"; }

 private:
  std::vector<std::int64_t> tokens_, labels_;
};

std::string changed(const Dataset& first, const Dataset& other) {
  return difference(first.fingerprint(), "on rank 0", other.fingerprint(), "on rank 2");
}

}  // namespace

TEST(Fingerprint, OfFilesIsTheSameForCopiesAndNamesTheFileWhoseContentDiffers) {
  const TempDir dir;
  const auto set = [&](const std::string& name, const std::string& content) {
    write_file_atomically(dir.file(name), content);
    return open_dataset(fmt::format("csv(file={}, shape=1x1x2)", dir.file(name)));
  };
  const auto first = set("a.csv", "0,1,2\n1,3,4\n");
  EXPECT_EQ(changed(*first, *set("b.csv.gz", gzip("0,1,2\n1,3,4\n"))), "") << "neither place nor compression counts";
  EXPECT_EQ(changed(*first, *set("c.csv", "0,1,2\n1,3,4\n0,1,2\n")), "number of samples: 2 on rank 0 but 3 on rank 2");
  EXPECT_THAT(changed(*first, *set("d.csv", "0,1,2\n1,3,5\n")),
              AllOf(HasSubstr("content of " + dir.file("a.csv") + ": 4 bytes with hash "), HasSubstr("(content of " + dir.file("d.csv"))));
  EXPECT_THAT(changed(*first, *set("e.csv", "1,1,2\n1,3,4\n")), HasSubstr("labels of "));
  EXPECT_THAT(changed(*first, *set("f.csv", "1,3,4\n0,1,2\n")), HasSubstr("content of ")) << "the order counts";
}

TEST(Fingerprint, OfATextCountsTheWindowsThatAreUsed) {
  const TempDir dir;
  const auto set = [&](const std::string& text, double to) {
    write_file_atomically(dir.file("a.txt"), text);
    return open_dataset(fmt::format("text(file={}, context=4, to={})", dir.file("a.txt"), to));
  };
  const auto first = set("abcdefghi", 1);
  EXPECT_EQ(changed(*first, *set("abcdefghixyz", 0.75)), "");
  EXPECT_THAT(changed(*first, *set("abcdefghx", 1)), HasSubstr("content of ")) << "the last target";
  EXPECT_THAT(changed(*first, *set("abcdefghijklmn", 1)), HasSubstr("number of samples"));
}

TEST(Fingerprint, OfASetOfOnesOwnFetchesSomeSamplesAndLeavesOutWhatIsRandom) {
  EXPECT_EQ(changed(Own({1, 2, 3}, 0), Own({1, 2, 3}, 0)), "");
  EXPECT_THAT(changed(Own({1, 2, 3}, 0), Own({1, 2, 4}, 0)), HasSubstr("content of 3 samples from own, sample 0 on"));
  EXPECT_THAT(changed(Own({1, 2, 3}, 0), Own({1, 2, 3}, 1)), HasSubstr("content of 3 samples"));
  EXPECT_EQ(changed(Own({1, 2, 3}, 0, true), Own({4, 5, 6}, 0, true)), "");
  EXPECT_THAT(changed(Own({1, 2, 3}, 0, true), Own({4, 5}, 0, true)), HasSubstr("number of samples: 3 on rank 0 but 2 on rank 2"));
}

TEST(Fingerprint, CountsWideTokensAndTheirLabels) {
  EXPECT_EQ(changed(Wide({1, 65537}, {2, 3}), Wide({1, 65537}, {2, 3})), "");
  EXPECT_THAT(changed(Wide({1, 65537}, {2, 3}), Wide({1, 1}, {2, 3})), HasSubstr("content of 1 samples"));
  EXPECT_THAT(changed(Wide({1, 65537}, {2, 3}), Wide({1, 65537}, {2, 4})), HasSubstr("content of 1 samples"));
}

TEST(Fingerprint, ComesBackFromItsText) {
  const Fingerprint one{{"number of samples", "3"}, {"content of t\u00e4st\t.csv", "4 bytes"}};
  const std::string text = to_text(one);
  EXPECT_EQ(text, "3\tnumber of samples\n4 bytes\tcontent of t\\xc3\\xa4st\\x09.csv\n");
  EXPECT_EQ(fingerprint_of_text(text), one);
  EXPECT_EQ(samples_of(one), "3");
  EXPECT_EQ(difference(one, "here", {{"number of samples", "3"}}, "there"), "content of t\u00e4st\t.csv: 4 bytes here but missing there");
}

TEST(ContentHash, ChangesWithEveryByteAndTheLength) {
  std::vector<std::uint8_t> bytes(100, 7);
  const std::uint64_t hash = content_hash(bytes);
  for (auto& byte : bytes) {
    byte ^= 1;
    EXPECT_NE(content_hash(bytes), hash);
    byte ^= 1;
  }
  EXPECT_EQ(content_hash(bytes), hash);
  EXPECT_NE(content_hash(std::span(bytes).first(99)), hash);
  EXPECT_NE(content_hash(bytes, 1), hash);
}

}  // namespace cohort::data
