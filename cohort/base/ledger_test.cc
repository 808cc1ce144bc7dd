#include "cohort/base/ledger.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <thread>
#include <vector>

namespace cohort {
namespace {

TEST(Ledger, CountsWhatIsHeldAndTheHighestOfIt) {
  Ledger ledger;
  {
    const Ledger::Entry first{MemoryClass::gradients, 100, ledger};
    { const Ledger::Entry second{MemoryClass::gradients, 50, ledger}; }
    EXPECT_EQ(ledger.of(MemoryClass::gradients).now, 100U);
    EXPECT_EQ(ledger.of(MemoryClass::gradients).peak, 150U);
    EXPECT_EQ(ledger.of(MemoryClass::parameters).peak, 0U);
  }
  EXPECT_EQ(ledger.of(MemoryClass::gradients).now, 0U);
  EXPECT_EQ(ledger.of(MemoryClass::gradients).peak, 150U);
}

TEST(Ledger, ThePeakOfTheSumIsNotTheSumOfThePeaks) {
  Ledger ledger;
  { const Ledger::Entry parameters{MemoryClass::parameters, 70, ledger}; }
  { const Ledger::Entry gradients{MemoryClass::gradients, 30, ledger}; }
  EXPECT_EQ(ledger.total().peak, 70U);
  EXPECT_EQ(ledger.total().now, 0U);
}

TEST(Ledger, AnEntryMovesWithItsBuffer) {
  Ledger ledger;
  Ledger::Entry from{MemoryClass::buckets, 10, ledger};
  Ledger::Entry to{std::move(from)};
  EXPECT_EQ(ledger.of(MemoryClass::buckets).now, 10U);
  to = Ledger::Entry{MemoryClass::parameters, 7, ledger};  // what it held before is gone
  EXPECT_EQ(ledger.of(MemoryClass::buckets).now, 0U);
  EXPECT_EQ(ledger.of(MemoryClass::parameters).now, 7U);
  to = {};
  EXPECT_EQ(ledger.total().now, 0U);
}

TEST(Ledger, AnEntryGrowsAndShrinksAndAnEmptyOneCountsNothing) {
  Ledger ledger;
  Ledger::Entry entry{MemoryClass::activations, 10, ledger};
  entry.resize(40);
  entry.resize(5);
  EXPECT_EQ(entry.bytes(), 5U);
  EXPECT_EQ(ledger.of(MemoryClass::activations).now, 5U);
  EXPECT_EQ(ledger.of(MemoryClass::activations).peak, 40U);
  Ledger::Entry none;
  none.resize(100);
  EXPECT_EQ(none.bytes(), 0U);
}

TEST(Ledger, PeaksStartAnewFromWhatIsHeld) {
  Ledger ledger;
  const Ledger::Entry held{MemoryClass::optimizer, 10, ledger};
  { const Ledger::Entry more{MemoryClass::optimizer, 90, ledger}; }
  ledger.restart_peaks();
  EXPECT_EQ(ledger.of(MemoryClass::optimizer).peak, 10U);
  EXPECT_EQ(ledger.total().peak, 10U);
}

TEST(Ledger, ThreadsLoseNoByte) {
  constexpr int kThreads = 4, kTimes = 1000;
  Ledger ledger;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kTimes; ++i) const Ledger::Entry entry{MemoryClass::temporaries, 3, ledger};
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ledger.of(MemoryClass::temporaries).now, 0U);
  EXPECT_GE(ledger.of(MemoryClass::temporaries).peak, 3U);
  EXPECT_LE(ledger.of(MemoryClass::temporaries).peak, 3U * kThreads);
}

TEST(Ledger, EveryClassHasItsOwnName) {
  std::set<std::string> names;
  for (std::size_t i = 0; i < kMemoryClasses; ++i) names.emplace(memory_class_name(static_cast<MemoryClass>(i)));
  EXPECT_EQ(names.size(), kMemoryClasses);
  EXPECT_FALSE(names.contains("unknown"));
}

TEST(Ledger, TheProcessHasOne) {
  const std::size_t before = Ledger::process().of(MemoryClass::data).now;
  const Ledger::Entry entry{MemoryClass::data, 12};
  EXPECT_EQ(Ledger::process().of(MemoryClass::data).now, before + 12);
}

}  // namespace
}  // namespace cohort
