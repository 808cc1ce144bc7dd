#include "cohort/engine/job_thread.h"

#include <gtest/gtest.h>

#include <future>
#include <stdexcept>
#include <vector>

namespace cohort::engine {
namespace {

TEST(JobThread, DoesJobsInTheirOrderAndWaitsForTheOneThatIsAskedFor) {
  JobThread thread("test", [] {});
  thread.await(0);
  std::vector<int> done;
  std::promise<void> go;
  const auto first = thread.give([&] { done.push_back(1); });
  const auto second = thread.give([&] {
    go.get_future().wait();
    done.push_back(2);
  });
  thread.await(first);
  EXPECT_EQ(done, std::vector{1}) << "the second waits for the one that gave it";
  go.set_value();
  thread.await(second);
  EXPECT_EQ(done, (std::vector{1, 2}));
  thread.await_all();
}

TEST(JobThread, KeepsItsFirstFailureAndRunsNoJobAfterIt) {
  JobThread thread("test", [] {});
  bool ran = false;
  const auto good = thread.give([] {});
  thread.await(good);
  const auto bad = thread.give([] { throw std::runtime_error("lost"); });
  const auto later = thread.give([&] { ran = true; });
  for (const auto job : {bad, later, good}) EXPECT_THROW(thread.await(job), std::runtime_error);
  EXPECT_THROW(thread.await_all(), std::runtime_error);
  EXPECT_FALSE(ran);
}

TEST(JobThread, EndsTheJobThatRunsWhenItIsDestroyed) {
  std::promise<void> aborted, running;
  bool after = false;
  {
    JobThread thread("test", [&] { aborted.set_value(); });
    thread.give([&] {
      running.set_value();
      aborted.get_future().wait();
    });
    thread.give([&] { after = true; });
    running.get_future().wait();
  }
  EXPECT_FALSE(after);
}

}  // namespace
}  // namespace cohort::engine
