// Elastic jobs of real processes on one host: the coordinator runs in this process, workers (elastic_rank.cc) are started, killed, stopped
// and asked to leave, and their histories are checked. Limits in seconds are those of an idle machine, times slowdown().
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <mutex>

#include "cohort/base/deadline.h"
#include "cohort/base/file.h"
#include "cohort/base/slowdown.h"
#include "cohort/data/random.h"
#include "cohort/elastic/decision_log.h"
#include "cohort/elastic/elastic_coordinator.h"
#include "cohort/elastic/history.h"

extern char** environ;

namespace cohort::elastic {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
namespace fs = std::filesystem;

class Job {
 public:
  Job(ElasticRules rules, std::int64_t steps, double peer_limit = 30)
      : steps_(steps), peer_limit_(peer_limit), folder_(make_folder()), secret_(net::Secret::random()) {
    rules.job = "elastic";
    heartbeat_ = rules.heartbeat;
    std::ofstream(folder_ + "/secret", std::ios::binary)
        << std::string(reinterpret_cast<const char*>(secret_.bytes().data()), secret_.bytes().size());
    fs::permissions(folder_ + "/secret", fs::perms::owner_read | fs::perms::owner_write);
    ElasticCoordinatorOptions o{.rules = rules, .secret = secret_, .log = folder_ + "/log", .say = {}, .respawn = {}};
    o.say = [this](const std::string& text) {
      const std::lock_guard lock(mutex_);
      said_.push_back({Clock::now(), text});
      eventfd_write(wake_.get(), 1);
    };
    o.respawn = [this](int count) {
      const std::lock_guard lock(mutex_);
      respawns_ += count;
      eventfd_write(wake_.get(), 1);
    };
    coordinator_ = std::make_unique<ElasticCoordinator>(std::move(o), net::listen_on({"127.0.0.1", 0}, secret_));
  }
  ~Job() {
    for (const pid_t pid : running_) kill(pid, SIGKILL);
    for (const pid_t pid : running_) waitpid(pid, nullptr, 0);
    coordinator_.reset();
    if (!testing::Test::HasFailure()) fs::remove_all(folder_);
  }

  pid_t start() {
    std::vector<std::string> env;
    for (char** e = environ; *e != nullptr; ++e) env.emplace_back(*e);
    env.push_back(fmt::format("COHORT_ELASTIC={}s", heartbeat_));
    env.push_back("COHORT_JOB=elastic");
    env.push_back("COHORT_RENDEZVOUS=" + coordinator_->address().text());
    env.push_back("COHORT_SECRET_FILE=" + folder_ + "/secret");
    std::vector<std::string> args{ELASTIC_RANK, std::to_string(steps_), folder_, fmt::format("{:g}", peer_limit_)};
    std::vector<char*> argv, envp;
    for (auto& w : args) argv.push_back(w.data());
    for (auto& e : env) envp.push_back(e.data());
    argv.push_back(nullptr);
    envp.push_back(nullptr);
    pid_t pid = 0;
    EXPECT_EQ(posix_spawn(&pid, ELASTIC_RANK, nullptr, nullptr, argv.data(), envp.data()), 0);
    running_.push_back(pid);
    return pid;
  }
  void start(int count) {
    for (int i = 0; i < count; ++i) start();
  }

  // Until it holds, or the time is up.
  bool until(const std::function<bool()>& holds, Seconds limit) {
    const Deadline deadline = Deadline::in(limit);
    while (true) {
      look();
      if (holds()) return true;
      if (deadline.passed()) return false;
      pollfd one{wake_.get(), POLLIN, 0};
      poll(&one, 1, deadline.sooner(Deadline::in(5ms)).left_ms());
    }
  }
  bool ends(Seconds limit) {
    return until([&] { return running_.empty() && coordinator_->ending(); }, limit);
  }

  void look() {
    eventfd_t ignored = 0;
    eventfd_read(wake_.get(), &ignored);
    int status = 0;
    for (pid_t pid = 0; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
      std::erase(running_, pid);
      ended_[pid] = status;
      coordinator_->process_ended({.pid = pid}, WIFSIGNALED(status) ? "killed" : fmt::format("exit status {}", WEXITSTATUS(status)));
    }
    int more = 0;
    {
      const std::lock_guard lock(mutex_);
      more = std::exchange(respawns_, 0);
    }
    start(more);
  }

  // --- what happened
  std::vector<HistoryLine> history() const {
    std::vector<HistoryLine> all;
    for (const auto& file : fs::directory_iterator(folder_))
      if (file.path().extension() == ".jsonl")
        for (auto& line : decode_history(read_file(file.path().string(), 1_GiB), file.path().string())) all.push_back(std::move(line));
    return all;
  }
  std::int64_t committed() const {
    std::int64_t last = 0;
    for (const auto& line : history())
      if (line.event == HistoryLine::Event::commit) last = std::max(last, line.step);
    return last;
  }
  int size_of(std::uint32_t epoch) const {
    for (const auto& line : history())
      if (line.epoch.value == epoch) return line.size;
    return 0;
  }
  std::uint32_t newest_epoch() const {
    std::uint32_t newest = 0;
    for (const auto& line : history())
      if (line.event == HistoryLine::Event::commit) newest = std::max(newest, line.epoch.value);
    return newest;
  }
  std::string hash_of(std::int64_t step) const {
    for (const auto& line : history())
      if (line.event == HistoryLine::Event::commit && line.step == step) return line.hash;
    return "";
  }
  // One line per broken promise; empty: all kept.
  std::vector<std::string> broken() const {
    std::vector<std::string> all;
    for (const auto& v : judge(history())) all.push_back(v.promise + ": " + v.what);
    return all;
  }
  std::string said() const {
    const std::lock_guard lock(mutex_);
    std::string all;
    for (const auto& [when, text] : said_) all += text + "\n";
    return all;
  }
  std::optional<Clock::time_point> when(const std::string& words, Clock::time_point after) const {
    const std::lock_guard lock(mutex_);
    for (const auto& [at, text] : said_)
      if (at >= after && text.find(words) != std::string::npos) return at;
    return std::nullopt;
  }
  const std::vector<pid_t>& running() const { return running_; }
  int status(pid_t pid) const { return ended_.at(pid); }
  std::optional<ElasticCoordinator::Ending> ending() const { return coordinator_->ending(); }

 private:
  static std::string make_folder() {
    std::string path = (fs::temp_directory_path() / "cohort_elastic.XXXXXX").string();
    if (mkdtemp(path.data()) == nullptr) throw_system("mkdtemp");
    return path;
  }

  const std::int64_t steps_;
  const double peer_limit_;  // seconds
  const std::string folder_;
  const net::Secret secret_;
  double heartbeat_ = 0;
  const Fd wake_{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  mutable std::mutex mutex_;
  std::vector<std::pair<Clock::time_point, std::string>> said_;  // guarded by mutex_
  int respawns_ = 0;                                             // guarded by mutex_
  std::vector<pid_t> running_;
  std::map<pid_t, int> ended_;
  std::unique_ptr<ElasticCoordinator> coordinator_;
};

TEST(ElasticProcesses, TrainToTheEndWithoutFaults) {
  Job job({.min_workers = 1, .max_workers = 3, .target_workers = 3}, 40);
  job.start(3);
  ASSERT_TRUE(job.ends(30s)) << job.said();
  EXPECT_FALSE(job.ending()->error);
  EXPECT_EQ(job.committed(), 40);
  EXPECT_EQ(job.newest_epoch(), 1u);
  EXPECT_THAT(job.broken(), IsEmpty());
}

TEST(ElasticProcesses, ContinueWithoutAKilledOneAndWithItsReplacement) {
  Job job({.min_workers = 2, .max_workers = 3, .target_workers = 3, .respawns = 10}, 4000);
  job.start(3);
  data::Rng dice(20261116);
  for (int i = 0; i < 4; ++i) {
    const std::int64_t at = job.committed() + 5 + static_cast<std::int64_t>(dice.below(30));
    ASSERT_TRUE(job.until([&] { return job.committed() >= at && job.size_of(job.newest_epoch()) == 3; }, 30s * slowdown())) << job.said();
    const std::uint32_t epoch = job.newest_epoch();
    const auto killed = Clock::now();
    kill(job.running()[dice.below(job.running().size())], SIGKILL);
    ASSERT_TRUE(job.until([&] { return job.newest_epoch() > epoch; }, 30s)) << job.said();
    const Seconds recovered = Clock::now() - killed;
    const auto seen = job.when("is lost", killed);
    ASSERT_TRUE(seen) << job.said();
    fmt::print("kill {}: detected after {:.3f} s, next step committed after {:.3f} s\n", i, Seconds(*seen - killed).count(),
               recovered.count());
  }
  ASSERT_TRUE(job.ends(60s * slowdown())) << job.said();
  EXPECT_FALSE(job.ending()->error);
  EXPECT_EQ(job.committed(), 4000);
  EXPECT_THAT(job.broken(), IsEmpty()) << job.said();
}

TEST(ElasticProcesses, ReleaseAPreemptedOneAfterTheStep) {
  Job job({.min_workers = 1, .max_workers = 3, .target_workers = 3}, 3000);
  job.start(3);
  ASSERT_TRUE(job.until([&] { return job.committed() >= 20; }, 30s)) << job.said();
  const pid_t leaver = job.running()[1];
  kill(leaver, SIGUSR1);
  ASSERT_TRUE(job.until([&] { return job.running().size() == 2; }, 10s)) << job.said();
  EXPECT_EQ(job.status(leaver), 0);
  ASSERT_TRUE(job.ends(60s * slowdown())) << job.said();
  EXPECT_FALSE(job.ending()->error);
  EXPECT_EQ(job.size_of(2), 2);
  EXPECT_THAT(job.said(), HasSubstr("leaves: SIGUSR1"));
  EXPECT_THAT(job.broken(), IsEmpty());
  std::int64_t starts = 0, commits = 0;  // nothing was computed in vain
  for (const auto& line : job.history()) {
    starts += line.event == HistoryLine::Event::start ? 1 : 0;
    commits += line.event == HistoryLine::Event::commit ? 1 : 0;
  }
  EXPECT_EQ(starts, commits);
}

TEST(ElasticProcesses, EvictAStoppedOneThatJoinsAsNew) {
  Job job({.min_workers = 1, .max_workers = 3, .target_workers = 3, .respawns = 0, .heartbeat = 0.2 * slowdown()}, 8000);
  job.start(3);
  ASSERT_TRUE(job.until([&] { return job.committed() >= 20; }, 30s)) << job.said();
  const pid_t stopped = job.running()[0];
  kill(stopped, SIGSTOP);
  ASSERT_TRUE(job.until([&] { return job.size_of(2) == 2; }, 10s * slowdown())) << job.said();
  EXPECT_THAT(job.said(), HasSubstr(fmt::format("no heartbeat for {:g} s", 0.6 * slowdown())));
  kill(stopped, SIGCONT);
  ASSERT_TRUE(job.until([&] { return job.size_of(job.newest_epoch()) == 3; }, 10s * slowdown())) << job.said();
  ASSERT_TRUE(job.ends(60s * slowdown())) << job.said();
  EXPECT_FALSE(job.ending()->error) << job.said();
  EXPECT_THAT(job.broken(), IsEmpty()) << job.said();
}

// Not called a test of processes: for half a minute it waits, and another may run beside it.
TEST(ElasticHang, IsEvictedUntilItAsksForAnEpochAgain) {
  Job job({.min_workers = 1, .max_workers = 3, .target_workers = 3, .respawns = 0, .report_limit = slowdown(), .cool_down = 0.1}, 1'000'000,
          2 * slowdown());
  job.start(3);
  ASSERT_TRUE(job.until([&] { return job.committed() >= 20; }, 30s)) << job.said();
  const pid_t hung = job.running()[0];
  kill(hung, SIGUSR2);
  ASSERT_TRUE(job.until([&] { return job.when(": 2 workers continue", {}).has_value(); }, 60s)) << job.said();
  EXPECT_THAT(job.said(), HasSubstr("is lost: it did not report its progress within "));
  const auto evicted = Clock::now();
  EXPECT_FALSE(job.until([&] { return job.when("epoch", evicted).has_value(); }, 5s * slowdown())) << "its heartbeats still arrive:\n"
                                                                                                   << job.said();
  kill(hung, SIGUSR2);
  ASSERT_TRUE(job.until([&] { return job.when(": 3 workers continue", evicted).has_value(); }, 10s)) << job.said();
  EXPECT_THAT(job.broken(), IsEmpty()) << job.said();
}

TEST(ElasticProcesses, AdmitNewcomersWithoutARestart) {
  Job job({.min_workers = 1, .max_workers = 4, .target_workers = 2}, 6000);
  job.start(2);
  ASSERT_TRUE(job.until([&] { return job.committed() >= 20; }, 30s)) << job.said();
  job.start(2);
  ASSERT_TRUE(job.until([&] { return job.size_of(job.newest_epoch()) == 4; }, 20s)) << job.said();
  ASSERT_TRUE(job.ends(60s * slowdown())) << job.said();
  EXPECT_THAT(job.broken(), IsEmpty()) << job.said();
}

TEST(ElasticProcesses, WaitBelowTheMinimumAndReportWhy) {
  Job job({.min_workers = 2, .max_workers = 3, .target_workers = 3, .respawns = 0, .wait_limit = 2, .warn_every = 1}, 100000);
  job.start(3);
  ASSERT_TRUE(job.until([&] { return job.committed() >= 10; }, 30s)) << job.said();
  kill(job.running()[0], SIGKILL);
  kill(job.running()[1], SIGKILL);
  ASSERT_TRUE(job.ends(30s)) << job.said();
  ASSERT_TRUE(job.ending()->error);
  EXPECT_THAT(job.ending()->error->what, HasSubstr("waited 2 s: 1 of at least 2 workers"));
  EXPECT_THAT(job.broken(), IsEmpty()) << job.said();
}

}  // namespace
}  // namespace cohort::elastic
