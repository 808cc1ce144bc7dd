#include "cohort/group/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <future>
#include <mutex>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/base/slowdown.h"
#include "cohort/base/version.h"
#include "cohort/group/join.h"
#include "cohort/group/secret_server.h"
#include "cohort/net/auth/acceptor.h"
#include "cohort/net/socket/socket.h"

namespace cohort::group {
namespace {

using testing::HasSubstr;

// Lines that were reported, from any thread.
class Lines {
 public:
  std::function<void(const std::string&)> writer() {
    return [this](const std::string& text) {
      const std::lock_guard lock(mutex_);
      text_ += text + "\n";
    };
  }
  std::string all() const {
    const std::lock_guard lock(mutex_);
    return text_;
  }

 private:
  mutable std::mutex mutex_;
  std::string text_;
};

RankInfo ours(int rank, int size) {
  RankInfo p;
  p.source = "cohort";
  p.rank = Rank{rank};
  p.size = p.local_size = size;
  p.local_rank = rank;
  return p;
}

struct TestRendezvous {
  explicit TestRendezvous(int ranks, Seconds start_timeout = 20s, Seconds warn_after = 10s) : size(ranks), secret(net::Secret::random()) {
    RendezvousOptions o{.job = "job", .size = ranks, .secret = secret, .start_timeout = start_timeout, .warn_after = warn_after};
    o.say = said.writer();
    server = std::make_unique<RendezvousServer>(std::move(o), net::listen_on({"127.0.0.1", 0}, secret));
  }
  std::future<Joined> start(int rank) {
    return std::async(std::launch::async, [this, rank] {
      return join_at(ours(rank, size), "job", server->address(), secret, {.start_timeout = 20s, .say = shown.writer()});
    });
  }
  const int size;
  const net::Secret secret;
  Lines said, shown;
  std::unique_ptr<RendezvousServer> server;
};

std::string failure_of(std::future<Joined>& one) {
  try {
    one.get();
  } catch (const Failure& failure) {
    return failure.what();
  }
  return "joined";
}

int open_descriptors() {
  const auto all = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<int>(std::distance(begin(all), end(all)));
}

TEST(Rendezvous, GivesEveryRankTheSameRoster) {
  TestRendezvous test(4);
  std::vector<std::future<Joined>> ranks;
  for (int r = 3; r >= 0; --r) ranks.push_back(test.start(r));
  std::vector<Joined> all;
  for (auto& r : ranks) all.push_back(r.get());
  for (const Joined& one : all) EXPECT_EQ(one.roster, all[0].roster);
  EXPECT_EQ(all[0].roster.epoch, Epoch{0});
  EXPECT_EQ(all[0].roster.members[3].address, all[0].listener.address.text());
}

TEST(Rendezvous, ARankOfAnotherVersionIsToldBothVersions) {
  TestRendezvous test(2);
  auto patched = std::async(std::launch::async, [&] {
    JoinOptions options{.start_timeout = 20s, .say = {}};
    options.version = std::string(version()) + "+patched";
    return join_at(ours(1, 2), "job", test.server->address(), test.secret, options);
  });
  const auto expected = fmt::format("runs Cohort {0}+patched, the coordinator of job 'job' on", version());
  const std::string text = failure_of(patched);
  EXPECT_THAT(text, HasSubstr(expected));
  EXPECT_THAT(text, HasSubstr(fmt::format("runs Cohort {}: install the same version everywhere", version())));
  EXPECT_THAT(test.said.all(), HasSubstr(expected));
  auto zero = test.start(0), one = test.start(1);
  EXPECT_EQ(one.get().roster, zero.get().roster) << "the job goes on";
}

TEST(Rendezvous, FormsLaterEpochsAndLeaksNothing) {
  TestRendezvous test(2);
  int before = 0;
  for (std::uint32_t epoch = 0; epoch < 20; ++epoch) {
    auto other = test.start(1);
    EXPECT_EQ(test.start(0).get().roster.epoch, Epoch{epoch});
    other.get();
    if (epoch == 1) before = open_descriptors();
  }
  EXPECT_LE(open_descriptors(), before + 2);  // a coordinator that has not yet closed the last two connections
}

TEST(Rendezvous, NamesAMissingRankHereAndOnTheRanksThatWait) {
  TestRendezvous test(3, 3s, 1s);
  auto zero = test.start(0);
  auto one = test.start(1);
  EXPECT_THAT(failure_of(zero), HasSubstr("rank 2 of 3 has not joined within 3 s"));
  EXPECT_THAT(failure_of(one), HasSubstr("rank 2 of 3 has not joined within 3 s"));
  EXPECT_THAT(test.said.all(), HasSubstr("waiting for rank 2 of 3"));
  EXPECT_THAT(test.shown.all(), HasSubstr("waiting for rank 2 of 3"));
}

TEST(Rendezvous, ADeadRankEndsTheWaitAtOnceWithItsCause) {
  TestRendezvous test(2);
  auto zero = test.start(0);
  test.server->rank_ended(Rank{1}, "exit status 3");
  const auto begin = Clock::now();
  EXPECT_THAT(failure_of(zero), HasSubstr("rank 1 of 2 ended before all had joined (exit status 3)"));
  EXPECT_LT(Clock::now() - begin, 5s * slowdown());
}

TEST(Rendezvous, UnauthenticatedPeersOtherJobsAndSecondClaimsDoNoHarm) {
  TestRendezvous test(2);
  auto zero = test.start(0);
  const net::Address at = test.server->address();

  const auto refused = [&](const std::string& job, const net::Secret& secret, const RankInfo& info) {
    auto attempt = std::async(std::launch::async, [&] { return join_at(info, job, at, secret, {.start_timeout = 10s}); });
    return failure_of(attempt);
  };
  EXPECT_THAT(refused("job", net::Secret::random(), ours(1, 2)), HasSubstr("secret"));
  EXPECT_THAT(refused("another", test.secret, ours(1, 2)), HasSubstr("two jobs"));
  EXPECT_THAT(refused("job", test.secret, ours(1, 3)), HasSubstr("expects 3 ranks"));
  auto duplicate = test.start(0);  // which of the two comes first is the kernel's choice; the later one is refused
  while (zero.wait_for(5ms) != std::future_status::ready && duplicate.wait_for(5ms) != std::future_status::ready) continue;
  auto one = test.start(1);
  const std::string first = failure_of(zero), second = failure_of(duplicate);
  EXPECT_TRUE((first == "joined") != (second == "joined")) << first << " | " << second;
  EXPECT_THAT(first + second, HasSubstr("is taken by process"));
  EXPECT_EQ(failure_of(one), "joined");
}

TEST(Rendezvous, ManySilentConnectionsKeepNoRankOut) {
  TestRendezvous test(2);
  std::vector<Fd> silent;
  for (std::size_t i = 0; i < 2 * net::Acceptor::kMaxUnauthenticated; ++i) {
    silent.push_back(net::open_socket(AF_INET));
    const auto at = net::SocketAddress::of(test.server->address());
    ::connect(silent.back().get(), at.get(), at.length);
  }
  const auto begin = Clock::now();
  auto zero = test.start(0);
  auto one = test.start(1);
  EXPECT_EQ(zero.get().roster, one.get().roster);
  EXPECT_LT(Clock::now() - begin, net::kHandshakeLimit) << "it waited until the silent connections had timed out";
}

TEST(Rendezvous, ACoordinatorThatEndsIsAnErrorNotATimeout) {
  TestRendezvous test(2, 20s, 1ms);
  auto zero = test.start(0);
  while (test.shown.all().empty() && zero.wait_for(1ms) != std::future_status::ready) continue;  // now it waits
  test.server.reset();
  EXPECT_THAT(failure_of(zero), HasSubstr("rank 0 waited for the others, but the coordinator ended"));
}

RankInfo foreign(int rank, int size, const std::string& job) {
  RankInfo p = ours(rank, size);
  p.source = "torchrun";
  p.job = job;
  return p;
}

TEST(Join, StartedByOtherLaunchersOnOneHostRankZeroSendsTheSecret) {
  const std::string job = fmt::format("test-{}", getpid());
  for (int round = 0; round < 5; ++round) {  // the same name again and again, as a program that calls init() repeatedly has it
    std::vector<std::future<Joined>> ranks;
    for (int r = 2; r >= 0; --r)
      ranks.push_back(std::async(std::launch::async, [=] { return join(foreign(r, 3, job), {.start_timeout = 20s}); }));
    std::vector<Joined> all;
    for (auto& r : ranks) all.push_back(r.get());
    for (const Joined& one : all) {
      EXPECT_EQ(one.roster, all[0].roster);
      EXPECT_TRUE(std::equal(one.secret.bytes().begin(), one.secret.bytes().end(), all[0].secret.bytes().begin()));
    }
  }
}

TEST(Join, WithoutRankZeroTheErrorNamesIt) {
  try {
    join(foreign(1, 2, fmt::format("lonely-{}", getpid())), {.start_timeout = 300ms});
    FAIL() << "joined without rank 0";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.kind(), Kind::timeout);
    EXPECT_EQ(failure.error().rank, Rank{0});
  }
}

TEST(Join, SeveralHostsWithoutASecretAreRefusedWithWhatToSet) {
  RankInfo p = foreign(0, 4, "j");
  p.local_size = 2;
  p.rendezvous = "node0:29501";
  try {
    join(p);
    FAIL();
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.kind(), Kind::usage);
    EXPECT_THAT(failure.what(), HasSubstr("COHORT_SECRET_FILE"));
    EXPECT_THAT(failure.what(), HasSubstr("node0:29501"));
  }
}

TEST(SecretServer, NamesDifferForTwoJobs) {
  EXPECT_NE(secret_socket_name("a"), secret_socket_name("b"));
  EXPECT_EQ(secret_socket_name("a"), secret_socket_name("a"));
  EXPECT_THAT(secret_socket_name("a"), HasSubstr(std::to_string(geteuid())));
}

TEST(SecretServer, TheNameIsFreeOnceClosed) {
  const std::string name = secret_socket_name(fmt::format("close-{}", getpid()));
  const JobCredentials what{net::Secret::random(), {"127.0.0.1", 9}};
  SecretServer first(name, what, Deadline::in(1s));
  EXPECT_EQ(fetch_secret(name, Deadline::in(5s), [] {}).coordinator.port, 9);
  EXPECT_THROW(SecretServer(name, what, Deadline::in(50ms)), Failure);
  first.close();
  SecretServer second(name, what, Deadline::in(5s));
}

}  // namespace
}  // namespace cohort::group
