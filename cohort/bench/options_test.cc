#include "cohort/bench/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/base/bytes.h"
#include "cohort/bench/implementations.h"
#include "cohort/bench/testing.h"

namespace cohort::bench {
namespace {

using testing::HasSubstr;

TEST(BenchOptions, ReadListsAndUnits) {
  const auto o =
      parse({"all_reduce", "-n", "2,4", "--size", "4,1MiB", "--against", "openmpi,gloo", "--algorithm", "ring,staged", "--json"});
  EXPECT_THAT(o.ranks, testing::ElementsAre(2, 4));
  EXPECT_THAT(o.sizes, testing::ElementsAre(4, 1_MiB));
  EXPECT_THAT(o.against, testing::ElementsAre("openmpi", "gloo"));
  EXPECT_THAT(o.algorithms, testing::ElementsAre("ring", "staged"));
  EXPECT_TRUE(o.json);
  EXPECT_EQ(parse({"all"}).collectives.size(), std::size(kBenchCollectives));
  EXPECT_FALSE(parse({"--no-void-check"}).void_check);
}

TEST(BenchOptions, RefuseWithTheWordThatIsWrong) {
  EXPECT_THAT(message_of([] { parse({"all_redcue"}); }), HasSubstr("all_reduce"));
  EXPECT_THAT(message_of([] { parse({"--dtype", "f31"}); }), HasSubstr("f31"));
  EXPECT_THAT(message_of([] { parse({"--dtype", "bool", "--op", "average"}); }), HasSubstr("average"));
  EXPECT_THAT(message_of([] { parse({"--congestion", "bbr"}); }), HasSubstr("--transport tcp"));
  EXPECT_THAT(message_of([] { parse({"-n", "0"}); }), HasSubstr("-n 0"));
  EXPECT_THAT(message_of([] { parse({"--nonsense"}); }), HasSubstr("--help"));
}

TEST(BenchOptions, SurviveTheTripToAWorker) {
  auto o = parse({"reduce", "--size", "4KiB", "--dtype", "i8", "--op", "max", "--buffers", "any", "--seconds", "0.5", "--transport", "tcp",
                  "--congestion", "reno", "--repeats", "3"});
  o.worker_task = "measure", o.worker_out = "/dev/null";
  auto words = worker_arguments(o);
  words.erase(words.begin());
  const auto back = parse(words);
  EXPECT_EQ(back.collectives, o.collectives);
  EXPECT_EQ(back.sizes, o.sizes);
  EXPECT_EQ(back.dtype, "i8");
  EXPECT_EQ(back.op, "max");
  EXPECT_EQ(back.buffers, o.buffers);
  EXPECT_EQ(back.congestion, "reno");
  EXPECT_EQ(back.repeats, 3);
  EXPECT_EQ(back.worker_task, "measure");
}

TEST(Implementations, UnknownOnesAreRefusedAndImpossibleOnesAreNamed) {
  auto o = parse({"--against", "openmpi", "--op", "average"});
  EXPECT_THAT(select_implementations(o, "all_reduce", 2).notes, testing::ElementsAre(HasSubstr("openmpi does not take part")));
  o.against = {"nccl"};
  EXPECT_THAT(message_of([&] { select_implementations(o, "all_reduce", 2); }), HasSubstr("nccl"));
  o.against = {};
  o.algorithms = {"ring"};
  EXPECT_THAT(message_of([&] { select_implementations(o, "broadcast", 2); }), HasSubstr("broadcast"));
}

TEST(Implementations, EveryAlgorithmAndKindOfBufferIsOne) {
  const auto o = parse({"--algorithm", "ring,staged", "--buffers", "allocate,any"});
  std::vector<std::string> labels;
  for (const auto& c : select_implementations(o, "all_reduce", 2).implementations) labels.push_back(c.label());
  EXPECT_THAT(labels, testing::ElementsAre("cohort ring", "cohort staged", "cohort ring (any pointer)", "cohort staged (any pointer)"));
}

}  // namespace
}  // namespace cohort::bench
