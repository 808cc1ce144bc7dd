#include "cohort/queue/operation_table.h"

#include <gtest/gtest.h>

namespace cohort::queue {
namespace {

constexpr Clock::time_point kStart{};
const auto kWindow = Seconds{0.005};

Operation named(std::string name) { return {.collective = Collective::all_reduce, .name = std::move(name)}; }

bool refused(OperationTable& flights, const std::string& name, Clock::time_point now) {
  try {
    flights.open(named(name), now);
    return false;
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.kind(), Kind::usage);
    EXPECT_NE(std::string(failure.what()).find("'" + name + "'"), std::string::npos) << failure.what();
    return true;
  }
}

TEST(OperationTable, ANameInFlightIsRefusedAtOnce) {
  OperationTable flights(kWindow);
  flights.open(named("a"), kStart);
  EXPECT_TRUE(refused(flights, "a", kStart + 1h));
  EXPECT_FALSE(refused(flights, "b", kStart));
  EXPECT_EQ(flights.count(), 2u);
}

TEST(OperationTable, ACompletedNameStaysReservedForTheWindowUnlessItsOutcomeWasSeen) {
  OperationTable flights(kWindow);
  const auto first = flights.open(named("a"), kStart);
  flights.complete(first, kStart);
  first->finish({}, std::nullopt);
  EXPECT_EQ(flights.count(), 0u);
  EXPECT_EQ(flights.find("a"), nullptr);
  EXPECT_TRUE(refused(flights, "a", kStart + 4ms));
  first->observe();
  EXPECT_FALSE(refused(flights, "a", kStart + 4ms));
  EXPECT_NE(flights.find("a"), nullptr);
}

TEST(OperationTable, AfterTheWindowANameIsFreeAlthoughNoOutcomeWasRead) {
  OperationTable flights(kWindow);
  const auto first = flights.open(named("a"), kStart);
  flights.complete(first, kStart);
  EXPECT_FALSE(refused(flights, "a", kStart + 6ms));
}

TEST(OperationTable, NamelessOperationsAreCountedPerCollective) {
  OperationTable flights(kWindow);
  EXPECT_EQ(flights.open({.collective = Collective::all_reduce}, kStart)->name, "all_reduce.0");
  EXPECT_EQ(flights.open({.collective = Collective::barrier}, kStart)->name, "barrier.0");
  EXPECT_EQ(flights.open({.collective = Collective::all_reduce}, kStart)->name, "all_reduce.1");
}

TEST(OperationTable, ManyNamesWhoseOutcomeIsNotReadAreForgotten) {
  OperationTable flights(kWindow);
  std::weak_ptr<Submission> early;
  for (int i = 0; i < 1000; ++i) {
    const auto now = kStart + i * 1ms;
    const auto submission = flights.open(named(fmt::format("step{}", i)), now);
    if (i == 0) early = submission;
    flights.complete(submission, now);
  }
  EXPECT_TRUE(early.expired());
}

TEST(OperationTable, CompletingTwiceIsABug) {
  OperationTable flights(kWindow);
  const auto submission = flights.open(named("a"), kStart);
  flights.complete(submission, kStart);
  EXPECT_THROW(flights.complete(submission, kStart), Failure);
}

}  // namespace
}  // namespace cohort::queue
