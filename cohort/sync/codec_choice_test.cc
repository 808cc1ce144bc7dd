#include "cohort/sync/codec_choice.h"

#include <gmock/gmock.h>

#include "cohort/base/failure_of.h"
#include "cohort/collective/ranks.h"
#include "cohort/sync/coded_reduce.h"
#include "cohort/sync/ownership.h"

namespace cohort::sync {
namespace {

using collective::Communicator;
using collective::run_ranks;
using testing::HasSubstr;

const std::vector<TensorPlace> kTensors{{"a", 0, 40000, {200, 200}}, {"b", 0, 200}, {"c", 0, 6000, {20, 300}}};

TEST(CodecChoice, IsTheCheapestOnTheLinkAndSaysWhy) {
  const std::vector<codec::Cost> all{{.codec = "none", .bytes = 4e6},
                                     {.codec = "bf16(sum=comm)", .bytes = 2e6, .compute = 0.001},
                                     {.codec = "int8", .bytes = 1e6, .compute = 0.004}};
  EXPECT_EQ(choose_codec(all, {.bytes_a_second = 1e11}).codec, "none");
  const CodecChoice middle = choose_codec(all, {.bytes_a_second = 1e9, .latency = 1e-5});
  EXPECT_EQ(middle.codec, "bf16(sum=comm)");
  EXPECT_EQ(middle.why, "codec=auto takes bf16(sum=comm): 3.02 ms an exchange over 8 Gb/s, 10 us a message (none 4.02 ms, int8 5.02 ms)");
  EXPECT_EQ(choose_codec(all, {.bytes_a_second = 1e7}).codec, "int8");
  EXPECT_THAT(choose_codec(all, {.bytes_a_second = 1e7}).why, HasSubstr("80 Mb/s"));
}

TEST(CodecChoice, LeavesGradientsAsTheyAreForLessThanATenth) {
  const std::vector<codec::Cost> all{{.codec = "none", .bytes = 1e6}, {.codec = "bf16", .bytes = 9.2e5}};
  EXPECT_EQ(choose_codec(all, {.bytes_a_second = 1e6}).codec, "none");
  const std::vector<codec::Cost> more{{.codec = "none", .bytes = 1e6}, {.codec = "bf16", .bytes = 8.8e5}};
  EXPECT_EQ(choose_codec(more, {.bytes_a_second = 1e6}).codec, "bf16");
}

TEST(CodecChoice, IsTheSameOnAllRanks) {
  std::vector<std::string> chosen(3);
  run_ranks(3, [&](Communicator& comm) {
    chosen[static_cast<std::size_t>(comm.rank().value)] = choose_codec(comm, "auto(error=1)", kTensors, 1_MiB, {}).codec;
  });
  EXPECT_EQ(chosen[0], chosen[1]);
  EXPECT_EQ(chosen[0], chosen[2]);
  EXPECT_FALSE(chosen[0].empty());
}

TEST(CodecChoice, AllowsWhatTheErrorAllows) {
  run_ranks(2, [](Communicator& comm) {
    const auto line = [&](const char* spec, const CodecLimits& limits) { return choose_codec(comm, spec, kTensors, 1_MiB, limits).why; };
    const std::string usual = line("auto", {});
    for (const char* name : {"none", "bf16", "int8"}) EXPECT_THAT(usual, HasSubstr(name));
    for (const char* name : {"topk", "powersgd", "qsgd"}) EXPECT_THAT(usual, testing::Not(HasSubstr(name)));
    EXPECT_THAT(line("auto(error=1)", {}), HasSubstr("powersgd"));
    const std::string without = line("auto(error=1)", {.feedback = false});
    for (const char* name : {"powersgd", "topk", "int8"}) EXPECT_THAT(without, testing::Not(HasSubstr(name)));
    EXPECT_THAT(line("auto(error=0)", {}), HasSubstr("takes none"));
  });
}

TEST(CodecChoice, OnOneRankIsNone) {
  run_ranks(1, [](Communicator& comm) { EXPECT_EQ(choose_codec(comm, "auto", kTensors, 1_MiB, {}).codec, "none"); });
}

TEST(CodecChoice, IsASettingWithAnError) {
  EXPECT_TRUE(is_codec_auto("auto"));
  EXPECT_TRUE(is_codec_auto("auto(error=0.5)"));
  EXPECT_FALSE(is_codec_auto("none"));
  EXPECT_FALSE(is_codec_auto("topk"));
  run_ranks(1, [](Communicator& comm) {
    EXPECT_EQ(failure_of([&] { choose_codec(comm, "auto(eror=1)", kTensors, 1_MiB, {}); }).kind, Kind::usage);
  });
}

// codec::Cost and CodedReduce count the same bytes.
TEST(CodecChoice, CountsTheBytesThatTravel) {
  for (const char* spec :
       {"bf16", "bf16(sum=fp32)", "int8", "topk(ratio=0.1)", "powersgd(rank=2)", "randomk(ratio=0.1)", "dgc(warmup=5)", "sketch"})
    run_ranks(4, [spec](Communicator& comm) {
      const auto layouts = codec::bucket_layouts(kTensors, 1_MiB);
      ASSERT_EQ(layouts.size(), 1u);
      std::vector<ElementRange> tensors;
      for (const TensorPlace& t : layouts[0].tensors) tensors.push_back(t.range());
      const CodedReduce reduce(codec::make(spec), layouts[0], cut(tensors, layouts[0].count, comm.size()), ReduceTo::all, comm);
      double cost = static_cast<double>(reduce.cost());
      comm.all_reduce(piece(std::span(&cost, 1)), collective::Op::average);
      EXPECT_NEAR(codec::measure_cost(*codec::make(spec), layouts, comm.size(), 1).bytes, cost, 0.01 * cost) << spec;
    });
}

}  // namespace
}  // namespace cohort::sync
