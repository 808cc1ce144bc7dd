#include "cohort/elastic/elastic_coordinator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "cohort/base/file.h"
#include "cohort/base/no_descriptors.h"
#include "cohort/base/slowdown.h"
#include "cohort/elastic/elastic_worker.h"

namespace cohort::elastic {
namespace {

using testing::HasSubstr;

// What the coordinator says, and a wait for a word in it.
class Lines {
 public:
  void add(const std::string& line) {
    const std::lock_guard lock(mutex_);
    text_ += line + "\n";
    changed_.notify_all();
  }
  bool wait_for(const std::string& word) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, 20s * slowdown(), [&] { return text_.find(word) != text_.npos; });
  }
  std::string text() {
    const std::lock_guard lock(mutex_);
    return text_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string text_;
};

TEST(ElasticCoordinator, OutOfDescriptorsItAcceptsLaterAndTheJobGoesOn) {
  const TempDir folder;
  const auto secret = net::Secret::random();
  Lines lines;
  ElasticCoordinatorOptions options{.rules = {.job = "j"}, .secret = secret, .log = folder.file("log"), .say = {}, .respawn = {}};
  options.say = [&](const std::string& line) { lines.add(line); };
  ElasticCoordinator coordinator(std::move(options), net::listen_on({"127.0.0.1", 0}, secret));
  const Fd client{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_in to{.sin_family = AF_INET, .sin_port = htons(static_cast<std::uint16_t>(coordinator.address().port)), .sin_addr = {}};
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  {
    const NoDescriptors none;
    ASSERT_EQ(connect(client.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
    ASSERT_TRUE(lines.wait_for("can accept no connection")) << lines.text();
  }
  EXPECT_THAT(lines.text(), HasSubstr("Too many open files"));
  EXPECT_FALSE(coordinator.ending());
  ElasticWorker worker({.job = "j", .coordinator = coordinator.address(), .secret = secret, .host = "here"});
  EXPECT_TRUE(std::holds_alternative<ElasticWorker::Begun>(worker.next()));
  EXPECT_TRUE(lines.wait_for("connections can be accepted again")) << lines.text();
}

// What this process logs, while it lives.
class Log {
 public:
  Log() : stderr_(dup(STDERR_FILENO)) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) throw_system("pipe");
    out_.reset(ends[0]);
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
  }
  ~Log() { dup2(stderr_.get(), STDERR_FILENO); }
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  // Reads until the word is in it.
  bool wait_for(const std::string& word) {
    const Deadline limit = Deadline::in(20s * slowdown());
    std::array<char, 4096> bytes{};
    while (text.find(word) == text.npos) {
      pollfd one{out_.get(), POLLIN, 0};
      if (poll(&one, 1, limit.left_ms()) <= 0) return false;
      const auto n = read(out_.get(), bytes.data(), bytes.size());
      if (n > 0) text.append(bytes.data(), static_cast<std::size_t>(n));
    }
    return true;
  }
  std::string text;

 private:
  const Fd stderr_;
  Fd out_;
};

// A coordinator whose thread stands still while the test says so, with a worker that trains.
class Silence : public testing::Test {
 protected:
  void open(std::optional<double> silence_limit, Seconds silence_notice = 10s, Seconds coordinator_timeout = 30s) {
    const auto secret = net::Secret::random();
    ElasticCoordinatorOptions options{.rules = {.job = "j"}, .secret = secret, .log = folder_.file("log"), .say = {}, .respawn = {}};
    options.silence_limit = silence_limit;
    options.alive = [this] {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return !held_; });
    };
    coordinator_.emplace(std::move(options), net::listen_on({"127.0.0.1", 0}, secret));
    worker_.emplace(ElasticWorkerOptions{.job = "j",
                                         .coordinator = coordinator_->address(),
                                         .secret = secret,
                                         .host = "here",
                                         .heartbeat = Seconds{0.2},
                                         .coordinator_timeout = coordinator_timeout,
                                         .leave_timeout = Seconds{0.3},
                                         .silence_notice = silence_notice});
    ASSERT_TRUE(std::holds_alternative<ElasticWorker::Begun>(worker_->next()));
    worker_->have_state(3);
    worker_->entered(3);
  }
  void hold(bool held) {
    {
      const std::lock_guard lock(mutex_);
      held_ = held;
    }
    changed_.notify_all();
    if (held) coordinator_->ping();
  }
  // Trains until a step's vote asks all to stop.
  ElasticWorker::Next train() {
    while (!worker_->change_requested() && worker_->prepare() && worker_->decide()) std::this_thread::sleep_for(1ms);
    worker_->left(nullptr);
    return worker_->next();
  }
  ~Silence() override {
    if (coordinator_) hold(false);
  }

  const TempDir folder_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = false;
  std::optional<ElasticCoordinator> coordinator_;
  std::optional<ElasticWorker> worker_;
};

TEST_F(Silence, OfTheCoordinatorIsSaidOnceAndTrainingGoesOn) {
  Log log;
  open(600, 300ms);
  hold(true);
  ASSERT_TRUE(log.wait_for("after 10 min without an answer the workers save and end\n")) << log.text;
  EXPECT_THAT(log.text, HasSubstr(fmt::format("the coordinator of 'j' (process {} on ", getpid())));
  EXPECT_THAT(log.text, HasSubstr("has not answered for 300 ms: it is stopped, or hangs; roster changes wait, training goes on"));
  EXPECT_TRUE(worker_->prepare() && worker_->decide());
  hold(false);
  ASSERT_TRUE(log.wait_for("the coordinator of 'j' answers again, after ")) << log.text;
  EXPECT_TRUE(worker_->prepare() && worker_->decide());
}

TEST_F(Silence, ThatLastsTooLongEndsTheWorkerAndRank0Saves) {
  open(0.5);
  hold(true);
  const auto next = train();
  ASSERT_TRUE(std::holds_alternative<ElasticWorker::Released>(next));
  const auto& released = std::get<ElasticWorker::Released>(next);
  EXPECT_TRUE(released.save && released.finish);
  ASSERT_TRUE(released.why);
  EXPECT_EQ(released.why->kind, Kind::peer_lost);
  EXPECT_THAT(released.why->what, HasSubstr("has not answered for 500 ms: it is stopped, or hangs"));
}

TEST_F(Silence, DoesNotKeepAWorkerThatIsAskedToLeave) {
  open(600);
  hold(true);
  worker_->leave("SIGTERM");
  const auto next = train();
  ASSERT_TRUE(std::holds_alternative<ElasticWorker::Released>(next));
  EXPECT_TRUE(std::get<ElasticWorker::Released>(next).save);
  EXPECT_FALSE(std::get<ElasticWorker::Released>(next).why) << "it was asked to";
}

TEST_F(Silence, OfOneThatIsGoneForGoodEndsTheWorkerAndRank0Saves) {
  open({}, 10s, 500ms);
  coordinator_.reset();
  const auto next = train();
  ASSERT_TRUE(std::holds_alternative<ElasticWorker::Released>(next));
  const auto& released = std::get<ElasticWorker::Released>(next);
  EXPECT_TRUE(released.save && released.finish);
  ASSERT_TRUE(released.why);
  EXPECT_THAT(released.why->what, HasSubstr("did not answer for 0.5 s"));
}

TEST(ElasticCoordinator, AWorkerOfAnotherVersionIsToldBothVersions) {
  const TempDir folder;
  const auto secret = net::Secret::random();
  Lines lines;
  ElasticCoordinatorOptions options{.rules = {.job = "j"}, .secret = secret, .log = folder.file("log"), .say = {}, .respawn = {}};
  options.say = [&](const std::string& line) { lines.add(line); };
  ElasticCoordinator coordinator(std::move(options), net::listen_on({"127.0.0.1", 0}, secret));
  ElasticWorkerOptions patched{.job = "j", .coordinator = coordinator.address(), .secret = secret, .host = "here"};
  patched.version = "0.0.9";
  ElasticWorker refused(std::move(patched));
  const auto next = refused.next();
  ASSERT_TRUE(std::holds_alternative<ElasticWorker::Over>(next));
  const auto error = std::get<ElasticWorker::Over>(next).error;
  ASSERT_TRUE(error);
  EXPECT_THAT(error->what, HasSubstr("on here runs Cohort 0.0.9, the coordinator of job 'j' on "));
  EXPECT_THAT(error->what, HasSubstr(fmt::format("runs Cohort {}: install the same version", version())));
  EXPECT_TRUE(lines.wait_for("runs Cohort 0.0.9")) << lines.text();
  ElasticWorker worker({.job = "j", .coordinator = coordinator.address(), .secret = secret, .host = "here"});
  EXPECT_TRUE(std::holds_alternative<ElasticWorker::Begun>(worker.next())) << "the job goes on";
}

}  // namespace
}  // namespace cohort::elastic
