#include "cohort/base/ledger.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <thread>
#include <vector>

namespace cohort {
namespace {

TEST(Ledger, CountsWhatIsHeldAndTheHighestOfIt) {
  Ledger books;
  {
    const Ledger::Entry first{MemoryClass::gradients, 100, books};
    { const Ledger::Entry second{MemoryClass::gradients, 50, books}; }
    EXPECT_EQ(books.of(MemoryClass::gradients).now, 100U);
    EXPECT_EQ(books.of(MemoryClass::gradients).peak, 150U);
    EXPECT_EQ(books.of(MemoryClass::parameters).peak, 0U);
  }
  EXPECT_EQ(books.of(MemoryClass::gradients).now, 0U);
  EXPECT_EQ(books.of(MemoryClass::gradients).peak, 150U);
}

TEST(Ledger, ThePeakOfTheSumIsNotTheSumOfThePeaks) {
  Ledger books;
  { const Ledger::Entry parameters{MemoryClass::parameters, 70, books}; }
  { const Ledger::Entry gradients{MemoryClass::gradients, 30, books}; }
  EXPECT_EQ(books.total().peak, 70U);
  EXPECT_EQ(books.total().now, 0U);
}

TEST(Ledger, AnEntryMovesWithItsBuffer) {
  Ledger books;
  Ledger::Entry from{MemoryClass::buckets, 10, books};
  Ledger::Entry to{std::move(from)};
  EXPECT_EQ(books.of(MemoryClass::buckets).now, 10U);
  to = Ledger::Entry{MemoryClass::parameters, 7, books};  // what it held before is gone
  EXPECT_EQ(books.of(MemoryClass::buckets).now, 0U);
  EXPECT_EQ(books.of(MemoryClass::parameters).now, 7U);
  to = {};
  EXPECT_EQ(books.total().now, 0U);
}

TEST(Ledger, AnEntryGrowsAndShrinksAndAnEmptyOneCountsNothing) {
  Ledger books;
  Ledger::Entry entry{MemoryClass::activations, 10, books};
  entry.resize(40);
  entry.resize(5);
  EXPECT_EQ(entry.bytes(), 5U);
  EXPECT_EQ(books.of(MemoryClass::activations).now, 5U);
  EXPECT_EQ(books.of(MemoryClass::activations).peak, 40U);
  Ledger::Entry none;
  none.resize(100);
  EXPECT_EQ(none.bytes(), 0U);
}

TEST(Ledger, PeaksStartAnewFromWhatIsHeld) {
  Ledger books;
  const Ledger::Entry held{MemoryClass::optimizer, 10, books};
  { const Ledger::Entry more{MemoryClass::optimizer, 90, books}; }
  books.restart_peaks();
  EXPECT_EQ(books.of(MemoryClass::optimizer).peak, 10U);
  EXPECT_EQ(books.total().peak, 10U);
}

TEST(Ledger, ThreadsLoseNoByte) {
  constexpr int kThreads = 4, kTimes = 1000;
  Ledger books;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kTimes; ++i) const Ledger::Entry entry{MemoryClass::temporaries, 3, books};
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(books.of(MemoryClass::temporaries).now, 0U);
  EXPECT_GE(books.of(MemoryClass::temporaries).peak, 3U);
  EXPECT_LE(books.of(MemoryClass::temporaries).peak, 3U * kThreads);
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
