#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/base/failure_of.h"
#include "cohort/base/file.h"
#include "cohort/data/dataset.h"

namespace cohort::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::shared_ptr<const Dataset> opened(std::string_view text, const std::string& more = "context=4", const Form* training = nullptr) {
  const TempDir dir;
  write_file_atomically(dir.file("t.csv"), text);
  const std::string spec = "csv_text(file=" + dir.file("t.csv") + ", " + more + ")";
  return training != nullptr ? open_dataset(spec, *training) : open_dataset(spec);
}

std::vector<std::int64_t> labels(const Dataset& set) {
  Scratch scratch;
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < set.size(); ++i) all.push_back(set.sample(i, scratch).label);
  return all;
}

std::string text_of(const Dataset& set, std::int64_t index) {
  Scratch scratch;
  const auto* at = reinterpret_cast<const char*>(set.sample(index, scratch).input);
  const std::string all(at, static_cast<std::size_t>(set.form().bytes()));
  return all.substr(0, all.find('\0'));
}

}  // namespace

TEST(CsvText, CutsLongTextsAndFillsShortOnes) {
  const auto set = opened("label,text\n1,\"a,b,c\"\n0,xy\n");
  ASSERT_EQ(set->size(), 2);
  EXPECT_EQ(set->form().classes, 2);
  EXPECT_EQ(set->form().labels(), 1);
  Scratch scratch;
  EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(set->sample(0, scratch).input), 4), "a,b,");
  EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(set->sample(1, scratch).input), 4), std::string_view("xy\0\0", 4));
  EXPECT_EQ(set->sample(0, scratch).label, 1);
}

TEST(CsvText, NumbersWordsInAlphabeticalOrder) {
  const auto set = opened("good,spam\nhello,ham\nagain,spam\n", "text=0, label=1, context=8");
  EXPECT_THAT(labels(*set), ElementsAre(1, 0, 1));
  EXPECT_THAT(set->form().names, ElementsAre("ham", "spam"));
}

TEST(CsvText, ATestSetHasTheNumbersOfTraining) {
  const auto train = opened("ham,a\nspam,b\neggs,c\nham,d\nspam,e\neggs,f\n");
  EXPECT_THAT(train->form().names, ElementsAre("eggs", "ham", "spam"));
  const auto test = opened("spam,x\nham,y\n", "context=4", &train->form());  // without eggs, and each word once
  EXPECT_THAT(labels(*test), ElementsAre(2, 1));
  EXPECT_THAT(test->form().names, ElementsAre("eggs", "ham", "spam"));
  EXPECT_EQ(test->form().classes, 3);
  const Error error = failure_of([&] { opened("spam,x\ntofu,y\n", "context=4", &train->form()); });
  EXPECT_EQ(error.kind, Kind::corrupt);
  EXPECT_THAT(error.what, AllOf(HasSubstr("line 2"), HasSubstr("'tofu'"), HasSubstr("eggs, ham, spam")));
}

TEST(CsvText, NamesOfColumnsAreNeitherSampleNorClass) {
  for (const std::string more : {"context=4", "context=4, text=words, label=kind", "context=4, label=kind", "context=4, header=yes"}) {
    const auto set = opened("kind,words\nspam,a\nham,b\nspam,c\nham,d\n", more);
    EXPECT_THAT(set->form().names, ElementsAre("ham", "spam")) << more;
    EXPECT_THAT(labels(*set), ElementsAre(1, 0, 1, 0)) << more;
    EXPECT_EQ(text_of(*set, 0), "a") << more;
    const auto test = opened("kind,words\nspam,x\n", more, &set->form());
    EXPECT_THAT(labels(*test), ElementsAre(1)) << more;
  }
  EXPECT_EQ(opened("kind,words\n1,a\n0,b\n")->size(), 2);
  EXPECT_EQ(opened("spam,a\nham,b\nspam,c\n")->size(), 3);
  EXPECT_EQ(opened("spam,a\nham,b\n", "header=no")->size(), 2);
  EXPECT_THAT(failure_of([] { opened("spam,a\n", "label=kind, header=no"); }).what, HasSubstr("header=no"));
}

TEST(CsvText, ColumnsGoByNameOrNumberFromEitherEnd) {
  for (const std::string more : {"text=words, label=kind", "text=-2, label=-1", "text=1, label=2"}) {
    const auto set = opened("id,words,kind\n1,hello,ham\n2,bye,spam\n3,oh,ham\n4,no,spam\n", more);
    EXPECT_THAT(labels(*set), ElementsAre(0, 1, 0, 1)) << more;
    EXPECT_EQ(text_of(*set, 0), "hello") << more;
  }
  EXPECT_THAT(failure_of([] { opened("kind,words\nham,a\n", "text=wrods"); }).what, HasSubstr("did you mean 'words'"));
}

TEST(CsvText, AFileToPredictNeedsNoLabels) {
  const auto train = opened("kind,words\nspam,a\nham,b\nspam,c\nham,d\n");
  for (const std::string text : {"words\nhello\nbye\n", "hello\nbye\n", "words,id\nhello,1\nbye,2\n"}) {
    const auto set = opened(text, "context=4", &train->form());
    EXPECT_TRUE(set->form().unlabelled) << text;
    EXPECT_THAT(labels(*set), ElementsAre(-100, -100)) << text;
    EXPECT_EQ(text_of(*set, 0), "hell") << text;
    EXPECT_THAT(set->form().names, ElementsAre("ham", "spam"));
  }
  const auto named = opened("id,words\n1,hello\n", "text=words, label=kind", &train->form());
  EXPECT_TRUE(named->form().unlabelled);
  EXPECT_EQ(text_of(*named, 0), "hello");
}

TEST(CsvText, RefusesWhatHasNoLabelOrTooManyClasses) {
  EXPECT_THAT(failure_of([] { opened("ham,a\n,b\nham,c\n"); }).what, AllOf(HasSubstr("line 2"), HasSubstr("column 0 has no value")));
  EXPECT_THAT(failure_of([] { opened("ham,a\nspam,b\nham,c\n", "classes=3"); }).what, HasSubstr("2 different words"));
  EXPECT_THAT(failure_of([] { opened("kind,words\n", "header=yes"); }).what, HasSubstr("not one line"));
}

TEST(CsvText, SkipsAHeaderOfWordLabelsWhenTold) { EXPECT_EQ(opened("kind,words\nham,hi\n", "header=yes")->size(), 1); }

TEST(CsvText, RefusesColumnsThatAreNotThere) {
  const Error error = failure_of([] { opened("1,a\n", "text=2"); });
  EXPECT_EQ(error.kind, Kind::usage);
  EXPECT_THAT(error.what, HasSubstr("text=2: there are 2 columns, 0 to 1"));
}

}  // namespace cohort::data
