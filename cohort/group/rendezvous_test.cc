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
#include "cohort/group/handover.h"
#include "cohort/group/join.h"
#include "cohort/net/door.h"
#include "cohort/net/socket.h"

namespace cohort::group {
namespace {

using testing::HasSubstr;

// What people are told, from any thread.
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

Place ours(int rank, int size) {
  Place p;
  p.source = "cohort";
  p.rank = Rank{rank};
  p.size = p.local_size = size;
  p.local_rank = rank;
  return p;
}

struct Meeting {
  explicit Meeting(int ranks, Seconds start_timeout = 20s, Seconds warn_after = 10s) : size(ranks), secret(net::Secret::random()) {
    CoordinatorOptions o{.job = "job", .size = ranks, .secret = secret, .start_timeout = start_timeout, .warn_after = warn_after};
    o.say = said.writer();
    coordinator = std::make_unique<Coordinator>(std::move(o), net::listen_on({"127.0.0.1", 0}, secret));
  }
  std::future<Joined> start(int rank) {
    return std::async(std::launch::async, [this, rank] {
      return join_at(ours(rank, size), "job", coordinator->address(), secret, {.start_timeout = 20s, .say = told.writer()});
    });
  }
  const int size;
  const net::Secret secret;
  Lines said, told;
  std::unique_ptr<Coordinator> coordinator;
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
  Meeting meeting(4);
  std::vector<std::future<Joined>> ranks;
  for (int r = 3; r >= 0; --r) ranks.push_back(meeting.start(r));
  std::vector<Joined> all;
  for (auto& r : ranks) all.push_back(r.get());
  for (const Joined& one : all) EXPECT_EQ(one.roster, all[0].roster);
  EXPECT_EQ(all[0].roster.epoch, Epoch{0});
  EXPECT_EQ(all[0].roster.members[3].address, all[0].listener.address.text());
}

TEST(Rendezvous, MeetsAgainInALaterEpochAndLeaksNothing) {
  Meeting meeting(2);
  int before = 0;
  for (std::uint32_t epoch = 0; epoch < 20; ++epoch) {
    auto other = meeting.start(1);
    EXPECT_EQ(meeting.start(0).get().roster.epoch, Epoch{epoch});
    other.get();
    if (epoch == 1) before = open_descriptors();
  }
  EXPECT_LE(open_descriptors(), before + 2);  // a coordinator that has not yet closed the last two connections
}

TEST(Rendezvous, NamesAMissingRankHereAndOnTheOnesThatWait) {
  Meeting meeting(3, 3s, 1s);
  auto zero = meeting.start(0);
  auto one = meeting.start(1);
  EXPECT_THAT(failure_of(zero), HasSubstr("rank 2 of 3 has not joined within 3 s"));
  EXPECT_THAT(failure_of(one), HasSubstr("rank 2 of 3 has not joined within 3 s"));
  EXPECT_THAT(meeting.said.all(), HasSubstr("waiting for rank 2 of 3"));
  EXPECT_THAT(meeting.told.all(), HasSubstr("waiting for rank 2 of 3"));
}

TEST(Rendezvous, ADeadRankEndsTheWaitAtOnceWithItsCause) {
  Meeting meeting(2);
  auto zero = meeting.start(0);
  meeting.coordinator->rank_ended(Rank{1}, "exit status 3");
  const auto begin = Clock::now();
  EXPECT_THAT(failure_of(zero), HasSubstr("rank 1 of 2 ended before all had joined (exit status 3)"));
  EXPECT_LT(Clock::now() - begin, 5s * slowdown());
}

TEST(Rendezvous, StrangersOtherJobsAndSecondClaimsDoNoHarm) {
  Meeting meeting(2);
  auto zero = meeting.start(0);
  const net::Address at = meeting.coordinator->address();

  const auto refused = [&](const std::string& job, const net::Secret& secret, const Place& place) {
    auto attempt = std::async(std::launch::async, [&] { return join_at(place, job, at, secret, {.start_timeout = 10s}); });
    return failure_of(attempt);
  };
  EXPECT_THAT(refused("job", net::Secret::random(), ours(1, 2)), HasSubstr("secret"));
  EXPECT_THAT(refused("another", meeting.secret, ours(1, 2)), HasSubstr("two jobs"));
  EXPECT_THAT(refused("job", meeting.secret, ours(1, 3)), HasSubstr("believes in 3 ranks"));
  auto twin = meeting.start(0);  // which of the two comes first is the kernel's choice; the later one is refused
  while (zero.wait_for(5ms) != std::future_status::ready && twin.wait_for(5ms) != std::future_status::ready) continue;
  auto one = meeting.start(1);
  const std::string first = failure_of(zero), second = failure_of(twin);
  EXPECT_TRUE((first == "joined") != (second == "joined")) << first << " | " << second;
  EXPECT_THAT(first + second, HasSubstr("is taken by process"));
  EXPECT_EQ(failure_of(one), "joined");
}

TEST(Rendezvous, ACrowdThatSaysNothingKeepsNoRankOut) {
  Meeting meeting(2);
  std::vector<Fd> crowd;
  for (std::size_t i = 0; i < 2 * net::Door::kStrangers; ++i) {
    crowd.push_back(net::open_socket(AF_INET));
    const auto at = net::SocketAddress::of(meeting.coordinator->address());
    ::connect(crowd.back().get(), at.get(), at.length);
  }
  const auto begin = Clock::now();
  auto zero = meeting.start(0);
  auto one = meeting.start(1);
  EXPECT_EQ(zero.get().roster, one.get().roster);
  EXPECT_LT(Clock::now() - begin, net::kHandshakeLimit) << "it waited until the crowd had gone by itself";
}

TEST(Rendezvous, ADepartingCoordinatorIsAnErrorNotASilence) {
  Meeting meeting(2, 20s, 1ms);
  auto zero = meeting.start(0);
  while (meeting.told.all().empty() && zero.wait_for(1ms) != std::future_status::ready) continue;  // now it waits
  meeting.coordinator.reset();
  EXPECT_THAT(failure_of(zero), HasSubstr("rank 0 waited for the others, but the coordinator ended"));
}

Place foreign(int rank, int size, const std::string& job) {
  Place p = ours(rank, size);
  p.source = "torchrun";
  p.job = job;
  return p;
}

TEST(Join, StartedByOthersOnOneHostRankZeroHandsOverTheSecret) {
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

TEST(Join, WithoutRankZeroItIsTheOneThatIsNamed) {
  try {
    join(foreign(1, 2, fmt::format("lonely-{}", getpid())), {.start_timeout = 300ms});
    FAIL() << "joined nobody";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.kind(), Kind::timeout);
    EXPECT_EQ(failure.error().rank, Rank{0});
  }
}

TEST(Join, SeveralHostsWithoutASecretAreRefusedWithWhatToSet) {
  Place p = foreign(0, 4, "j");
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

TEST(Handover, NamesDifferForTwoJobs) {
  EXPECT_NE(handover_name("a"), handover_name("b"));
  EXPECT_EQ(handover_name("a"), handover_name("a"));
  EXPECT_THAT(handover_name("a"), HasSubstr(std::to_string(geteuid())));
}

TEST(Handover, TheNameIsFreeOnceClosed) {
  const std::string name = handover_name(fmt::format("close-{}", getpid()));
  const Handed what{net::Secret::random(), {"127.0.0.1", 9}};
  Handover first(name, what, Deadline::in(1s));
  EXPECT_EQ(receive_handover(name, Deadline::in(5s), [] {}).coordinator.port, 9);
  EXPECT_THROW(Handover(name, what, Deadline::in(50ms)), Failure);
  first.close();
  Handover second(name, what, Deadline::in(5s));
}

}  // namespace
}  // namespace cohort::group
