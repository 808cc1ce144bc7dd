// Ranks that disagree: an error on all ranks that names both sides, within 2 s, nothing moved, and the communicator stays usable.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "cohort/base/slowdown.h"
#include "cohort/collective/ranks.h"
#include "cohort/net/tcp/tcp.h"

namespace cohort::collective {
namespace {

using ::testing::HasSubstr;
using Act = std::function<void(Communicator&)>;

struct Disagreement {
  std::string name;
  Act rank_1;  // what rank 1 does while the others all_reduce 'grad' of 4 f32
  std::string names;
};

std::vector<float>& buffer() {
  thread_local std::vector<float> values(64, 1.0F);
  return values;
}
Piece floats(std::size_t count) { return piece(std::span(buffer()).first(count)); }

const std::vector<Disagreement>& disagreements() {
  static const std::vector<Disagreement> all{
      {"Count", [](Communicator& c) { c.all_reduce(floats(5), Op::sum, {.name = "grad"}); }, "of 5 f32"},
      {"Type",
       [](Communicator& c) {
         c.all_reduce({buffer().data(), 4, Dtype::i32}, Op::sum, {.name = "grad"});
       },
       "of 4 i32"},
      {"Op", [](Communicator& c) { c.all_reduce(floats(4), Op::max, {.name = "grad"}); }, "max"},
      {"Name", [](Communicator& c) { c.all_reduce(floats(4), Op::sum, {.name = "bias"}); }, "'bias'"},
      {"Collective", [](Communicator& c) { c.broadcast(floats(4), Rank{0}, {.name = "grad"}); }, "broadcast"},
      {"Barrier", [](Communicator& c) { c.barrier(); }, "barrier"},
      {"Scale", [](Communicator& c) { c.all_reduce(floats(4), Op::sum, {.name = "grad", .prescale = 2.0}); }, "scales"},
      {"Algorithm", [](Communicator& c) { c.all_reduce(floats(4), Op::sum, {.name = "grad", .algorithm = "ring"}); }, "by ring"},
      {"Split", [](Communicator& c) { c.split(0); }, "split"},
  };
  return all;
}

void expect_disagreement(Communicator& comm, const Disagreement& what) {
  for (int repeat = 0; repeat < 3; ++repeat) {
    buffer().assign(64, 1.0F);
    const auto start = Clock::now();
    try {
      if (comm.rank().value == 1) {
        what.rank_1(comm);
      } else {
        comm.all_reduce(floats(4), Op::sum, {.name = "grad"});
      }
      ADD_FAILURE() << what.name << ": rank " << comm.rank().value << " saw no disagreement";
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.kind(), Kind::usage) << failure.what();
      EXPECT_THAT(failure.what(), HasSubstr("rank 1 called"));
      EXPECT_THAT(failure.what(), HasSubstr("all_reduce 'grad' of 4 f32, sum"));
      EXPECT_THAT(failure.what(), HasSubstr(what.names));
    }
    EXPECT_LT(Clock::now() - start, 2s * slowdown());
    EXPECT_EQ(buffer()[0], 1.0F) << "data moved";
    comm.all_reduce(floats(4), Op::sum, {.name = "still usable"});
    EXPECT_EQ(buffer()[3], static_cast<float>(comm.size()));
  }
}

}  // namespace

TEST(Mismatch, IsNamedOnAllRanksAndMovesNothingOnSharedMemory) {
  for (const auto& what : disagreements())
    for (const int ranks : {2, 3, 5}) run_ranks(ranks, [&](Communicator& comm) { expect_disagreement(comm, what); });
}

TEST(Mismatch, IsNamedOnAllRanksAndMovesNothingOverTcp) {
  for (const auto& what : disagreements())
    for (const int ranks : {2, 5})
      run_ranks(
          ranks, [&](Communicator& comm) { expect_disagreement(comm, what); }, {}, [](int n) { return net::tcp_world(n); });
}

TEST(Mismatch, AllToAllNamesThePairWhoseCountsDiffer) {
  run_ranks(3, [](Communicator& comm) {
    std::vector<std::int32_t> in(6);
    std::vector<std::int32_t> out(comm.rank().value == 2 ? 7 : 6);
    const std::vector<std::size_t> sends{2, 2, 2};
    const std::vector<std::size_t> recvs = comm.rank().value == 2 ? std::vector<std::size_t>{2, 3, 2} : sends;
    try {
      comm.all_to_all(piece(std::span(in)), piece(std::span(out)), {}, sends, recvs);
      ADD_FAILURE() << "the counts differ";
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.kind(), Kind::usage);
      EXPECT_THAT(failure.what(), HasSubstr("rank 1 sends 2 elements to rank 2, which expects 3"));
    }
    comm.barrier();
  });
}

TEST(Mismatch, BadArgumentsAreRefusedBeforeAnythingIsSent) {
  run_ranks(2, [](Communicator& comm) {
    std::vector<float> a(10);
    std::vector<float> b(3);
    std::vector<char> flags(4);
    const auto refused = [&](const Act& act, const std::string& text) {
      try {
        act(comm);
        ADD_FAILURE() << "not refused: " << text;
      } catch (const Failure& failure) {
        EXPECT_EQ(failure.kind(), Kind::usage);
        EXPECT_THAT(failure.what(), HasSubstr(text));
      }
    };
    refused([&](Communicator& c) { c.reduce_scatter(piece(std::span(a)), piece(std::span(b)), Op::sum); }, "10 elements");
    refused([&](Communicator& c) { c.all_gather(piece(std::span(a)), piece(std::span(b))); }, "output has 3");
    refused([&](Communicator& c) { c.broadcast(piece(std::span(a)), Rank{2}); }, "rank 2 is not one of 0 .. 1");
    refused([&](Communicator& c) { c.all_reduce({flags.data(), 4, Dtype::boolean}, Op::average); }, "bool has no average");
    refused([&](Communicator& c) { c.all_reduce({nullptr, 4, Dtype::f32}, Op::sum); }, "null pointer");
    refused([&](Communicator& c) { c.all_reduce(piece(std::span(a)), Op::sum, {.algorithm = "rign"}); }, "did you mean 'ring'");
    refused([&](Communicator& c) { c.all_to_all(piece(std::span(b)), piece(std::span(a))); }, "do not part evenly");
    comm.barrier();
  });
}

}  // namespace cohort::collective
