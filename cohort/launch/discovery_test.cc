#include "cohort/launch/discovery.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cohort/base/error.h"
#include "cohort/base/file.h"

namespace cohort::launch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A script that prints what is in a file, run as a launcher would.
class ScriptedDiscovery {
 public:
  ScriptedDiscovery() {
    if (mkdtemp(folder_.data()) == nullptr) throw_system("mkdtemp");
    answer("h1:2\n");
    discovery_.emplace(DiscoveryPlan{.command = ". " + folder_ + "/script",
                                     .every = 10ms,
                                     .known = {{"h1", 2}},
                                     .environment = group::read_environment(),
                                     .signal_mask = {}});
  }
  ~ScriptedDiscovery() { remove_tree(folder_); }
  void answer(const std::string& text) { script("cat <<E\n" + text + "E\n"); }
  void script(const std::string& text) { write_file_atomically(folder_ + "/script", text); }

  void poll_once() {
    std::vector<pollfd> fds;
    discovery_->add_polls(fds);
    poll(fds.data(), fds.size(), discovery_->next_look().sooner(Deadline::in(20ms)).left_ms());
    discovery_->move();
    int status = 0;
    for (pid_t pid = 0; (pid = waitpid(-1, &status, WNOHANG)) > 0;) discovery_->ended(pid, status);
  }
  std::optional<group::Hosts> next_hosts() {
    for (const Deadline limit = Deadline::in(10s); !limit.passed(); poll_once())
      if (auto hosts = discovery_->take_hosts()) return hosts;
    return std::nullopt;
  }
  std::string next_message() {
    for (const Deadline limit = Deadline::in(10s); !limit.passed(); poll_once())
      if (auto lines = discovery_->take_messages(); !lines.empty()) return lines.front();
    return "";
  }
  std::optional<Discovery> discovery_;

 private:
  std::string folder_ = "/tmp/cohort-discovery.XXXXXX";
};

TEST(DiscoveryProcess, ReportsAnswersThatDiffer) {
  ScriptedDiscovery discovery;
  for (int i = 0; i < 10; ++i) discovery.poll_once();
  EXPECT_FALSE(discovery.discovery_->take_hosts());
  discovery.answer("h1:2\nh2\n");
  EXPECT_EQ(discovery.next_hosts(), (group::Hosts{{"h1", 2}, {"h2", 1}}));
  EXPECT_FALSE(discovery.discovery_->take_hosts());
}

TEST(DiscoveryProcess, KeepsTheLastAnswerWhenTheScriptFailsAndSaysSoOnce) {
  ScriptedDiscovery discovery;
  discovery.script("echo h9; echo broken >&2; exit 3\n");
  EXPECT_THAT(discovery.next_message(), AllOf(HasSubstr("exit status 3 (broken)"), HasSubstr("the hosts stay as they were")));
  discovery.script("true\n");  // no host at all
  for (int i = 0; i < 20; ++i) discovery.poll_once();
  EXPECT_FALSE(discovery.discovery_->take_hosts());
  EXPECT_THAT(discovery.discovery_->take_messages(), ElementsAre());
  discovery.answer("h2:4\n");
  EXPECT_EQ(discovery.next_hosts(), (group::Hosts{{"h2", 4}}));
  EXPECT_THAT(discovery.next_message(), HasSubstr("answers again"));
}

DiscoveryPlan single_run(std::string command, Seconds limit = 10s) {
  return {.command = std::move(command),
          .answer_limit = limit,
          .slots_per_host = 3,
          .known = {},
          .environment = group::read_environment(),
          .signal_mask = {}};
}

TEST(DiscoveryProcess, TheFirstAnswerIsWaitedForAndHasADeadline) {
  EXPECT_EQ(Discovery::ask_once(single_run("sleep 0.1; echo h1:2; echo h2")), (group::Hosts{{"h1", 2}, {"h2", 3}}));
  const auto refusal = [](std::string command, Seconds limit) -> std::string {
    try {
      Discovery::ask_once(single_run(std::move(command), limit));
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.kind(), Kind::usage);
      return failure.what();
    }
    return "";
  };
  EXPECT_THAT(refusal("sleep 1000", 200ms), HasSubstr("'sleep 1000' failed: no answer within 200 ms"));
  EXPECT_THAT(refusal("echo no scheduler >&2; exit 3", 10s), HasSubstr("failed: exit status 3 (no scheduler)"));
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a script was left behind";
}

}  // namespace
}  // namespace cohort::launch
