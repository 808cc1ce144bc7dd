#include "cohort/queue/flights.h"

#include <gtest/gtest.h>

namespace cohort::queue {
namespace {

constexpr Clock::time_point kStart{};
const auto kWindow = Seconds{0.005};

Operation named(std::string name) { return {.verb = Verb::all_reduce, .name = std::move(name)}; }

bool refused(Flights& flights, const std::string& name, Clock::time_point now) {
  try {
    flights.open(named(name), now);
    return false;
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.kind(), Kind::usage);
    EXPECT_NE(std::string(failure.what()).find("'" + name + "'"), std::string::npos) << failure.what();
    return true;
  }
}

TEST(Flights, ANameInFlightIsRefusedAtOnce) {
  Flights flights(kWindow);
  flights.open(named("a"), kStart);
  EXPECT_TRUE(refused(flights, "a", kStart + 1h));
  EXPECT_FALSE(refused(flights, "b", kStart));
  EXPECT_EQ(flights.count(), 2u);
}

TEST(Flights, ALandedNameStaysReservedForTheWindowUnlessItsOutcomeWasSeen) {
  Flights flights(kWindow);
  const auto first = flights.open(named("a"), kStart);
  flights.land(first, kStart);
  first->finish({}, std::nullopt);
  EXPECT_EQ(flights.count(), 0u);
  EXPECT_EQ(flights.find("a"), nullptr);
  EXPECT_TRUE(refused(flights, "a", kStart + 4ms));
  first->observe();
  EXPECT_FALSE(refused(flights, "a", kStart + 4ms));
  EXPECT_NE(flights.find("a"), nullptr);
}

TEST(Flights, AfterTheWindowANameIsFreeAlthoughNobodyLooked) {
  Flights flights(kWindow);
  const auto first = flights.open(named("a"), kStart);
  flights.land(first, kStart);
  EXPECT_FALSE(refused(flights, "a", kStart + 6ms));
}

TEST(Flights, NamelessOperationsAreCountedPerVerb) {
  Flights flights(kWindow);
  EXPECT_EQ(flights.open({.verb = Verb::all_reduce}, kStart)->name, "all_reduce.0");
  EXPECT_EQ(flights.open({.verb = Verb::barrier}, kStart)->name, "barrier.0");
  EXPECT_EQ(flights.open({.verb = Verb::all_reduce}, kStart)->name, "all_reduce.1");
}

TEST(Flights, ManyNamesThatNobodyLooksAtAreForgotten) {
  Flights flights(kWindow);
  std::weak_ptr<Ticket> early;
  for (int i = 0; i < 1000; ++i) {
    const auto now = kStart + i * 1ms;
    const auto ticket = flights.open(named(fmt::format("step{}", i)), now);
    if (i == 0) early = ticket;
    flights.land(ticket, now);
  }
  EXPECT_TRUE(early.expired());
}

TEST(Flights, LandingTwiceIsABug) {
  Flights flights(kWindow);
  const auto ticket = flights.open(named("a"), kStart);
  flights.land(ticket, kStart);
  EXPECT_THROW(flights.land(ticket, kStart), Failure);
}

}  // namespace
}  // namespace cohort::queue
