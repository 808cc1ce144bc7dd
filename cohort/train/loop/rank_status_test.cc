#include "cohort/train/loop/rank_status.h"

#include <gmock/gmock.h>

#include "cohort/net/transport/loopback.h"

namespace cohort::train {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;

TEST(RankStatus, TellsStepAndPhase) {
  RankStatus status;
  EXPECT_THAT(status.text(), MatchesRegex("starting for .*"));
  status.step(12, 400);
  status.set_phase("evaluating");
  EXPECT_THAT(status.text(), MatchesRegex("step 12 of 400, evaluating for .*"));
}

TEST(RankStatus, NamesTheOperationsItIsInside) {
  RankStatus status;
  const collective::RunningOperation first{"all_reduce", "bucket 3", 2048}, second{"barrier", "the end", 0};
  status.begin(first);
  status.begin(second);
  EXPECT_THAT(status.text(), MatchesRegex(".*; in all_reduce 'bucket 3', 2 KiB, for .*; in barrier 'the end' for .*"));
  status.end(first);
  EXPECT_THAT(status.text(), Not(HasSubstr("in all_reduce")));
  EXPECT_THAT(status.text(), HasSubstr("in barrier"));
  status.end(second);
  EXPECT_THAT(status.text(), Not(HasSubstr("; in ")));
}

// Notes what the status says while an operation runs.
class DuringOperations final : public collective::OperationObserver {
 public:
  void begin(const collective::RunningOperation& operation) noexcept override {
    status.begin(operation);
    seen += status.text() + "\n";
  }
  void end(const collective::RunningOperation& operation) noexcept override { status.end(operation); }
  RankStatus status;
  std::string seen;
};

TEST(RankStatus, OfAnObservedCommunicatorShowsItsOperationsAndItsChildrensAndLeavesNothingBehind) {
  DuringOperations observer;
  const auto comm = collective::open(std::move(net::loopback_world(1).front()));
  comm->observe(&observer);
  double values[] = {1, 2};
  comm->all_reduce(collective::piece(std::span<double>(values)), collective::Op::sum, {.name = "values"});
  const auto child = comm->split(0);
  child->barrier({.name = "of the child"});
  EXPECT_THAT(observer.seen, HasSubstr("; in all_reduce 'values', 16 B, for "));
  EXPECT_THAT(observer.seen, HasSubstr("; in barrier 'of the child' for "));
  EXPECT_THAT(observer.status.text(), Not(HasSubstr("; in ")));
  comm->observe(nullptr);
}

TEST(ScopedObservation, EndsWithItsScope) {
  const auto comm = collective::open(std::move(net::loopback_world(1).front()));
  {
    RankStatus status;
    const ScopedObservation observed(*comm, status);
    comm->barrier({.name = "seen"});
  }
  comm->barrier({.name = "after the status has gone"});
}

}  // namespace
}  // namespace cohort::train
