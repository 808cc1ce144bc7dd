#include "cohort/launch/remote_ranks.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>

#include "cohort/base/error.h"

namespace cohort::launch {
namespace {

class NoOutput : public RankSink {
 public:
  void write(int, int, std::string_view, Clock::time_point) override {}
  void finish(int, int) override {}
};

// No descriptor beyond those that are open.
class NoDescriptors {
 public:
  NoDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const Fd lowest{open("/dev/null", O_RDONLY | O_CLOEXEC)};
    rlimit none = before_;
    none.rlim_cur = static_cast<rlim_t>(lowest.get());
    setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
};

TEST(RemoteRanks, AnAgentThatCannotBeStartedLeavesNoWorkerBehind) {
  NoOutput sink;
  RemoteRanks ranks(sink);
  RemotePlan plan;
  plan.elastic = true;
  plan.pool = {{"one", 1}, {"two", 1}};
  plan.hosts = {{"one", 0, 1}};
  plan.shell = [](const std::string&) -> std::vector<std::string> { return {"/bin/sleep", "1000"}; };
  ranks.start(std::move(plan));
  {
    const NoDescriptors none;
    EXPECT_THROW(ranks.add(), Failure);
  }
  EXPECT_EQ(ranks.size(), 1);
  EXPECT_TRUE(ranks.has_free_slot());
  EXPECT_EQ(ranks.add(), 1);
  EXPECT_EQ(ranks[1].host, "two");
  ranks.signal(SIGKILL);
}

}  // namespace
}  // namespace cohort::launch
