#include "cohort/net/shm/shm.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "cohort/base/slowdown.h"
#include "cohort/net/shm/ring.h"
#include "cohort/net/transport/conformance.h"

namespace cohort::net {
namespace {

// Every pair connects over a real socket, as separate processes do.
std::vector<ShmPlan> connected_plans(int ranks) {
  std::vector<ShmPlan> plans(static_cast<std::size_t>(ranks));
  const Secret secret = Secret::random();
  std::vector<Listener> listeners;
  for (auto& plan : plans) {
    plan.own = make_shm_inbox(ranks);
    plan.epoch = Epoch{7};
    plan.connections.resize(plans.size());
    listeners.push_back(listen_on(Address::parse("127.0.0.1:0"), secret));
  }
  std::vector<std::future<void>> ready;
  for (std::size_t me = 0; me < plans.size(); ++me)
    ready.push_back(std::async(std::launch::async, [&, me] {
      ShmPlan& plan = plans[me];
      plan.me = Rank{static_cast<int>(me)};
      const Hello hello{"shm-test", Epoch{7}, plan.me, Role::worker};
      for (std::size_t peer = 0; peer < plans.size(); ++peer) {
        std::string why;
        plan.peers.push_back(peer == me ? Segment{} : Segment::open(plans[peer].own.name(), false, &why).value());
        if (peer < me) plan.connections[peer] = ControlConnection::connect(listeners[peer].address, secret, hello, soon());
      }
      for (std::size_t more = me + 1; more < plans.size(); ++more) {
        ControlConnection connection = ControlConnection::accept(accept_one(listeners[me], soon()), secret, hello, soon());
        const auto peer = static_cast<std::size_t>(connection.peer().rank.value);
        plan.connections[peer] = std::move(connection);
      }
    }));
  for (auto& r : ready) r.get();
  return plans;
}

struct Shm {
  static AllPeerLinks make(int ranks) { return shm_world(ranks, Epoch{7}); }
};
struct ShmSmallRings {  // everything wraps and waits
  static AllPeerLinks make(int ranks) { return shm_world(ranks, Epoch{7}, 32_KiB); }
};
struct ShmWithConnections {
  static AllPeerLinks make(int ranks) {
    AllPeerLinks world;
    for (auto& plan : connected_plans(ranks)) world.push_back(shm_peer_links(std::move(plan)));
    return world;
  }
};
INSTANTIATE_TEST_SUITE_P(Shm, Conformance, testing::Values(Factory{Shm::make}));
INSTANTIATE_TEST_SUITE_P(ShmSmallRings, Conformance, testing::Values(Factory{ShmSmallRings::make}));
INSTANTIATE_TEST_SUITE_P(ShmWithConnections, Conformance, testing::Values(Factory{ShmWithConnections::make}));

TEST(Shm, ReportsItsProperties) {
  const auto world = shm_world(2, Epoch{7});
  EXPECT_EQ(world[0]->transport(), "shm");
  EXPECT_EQ(world[0]->epoch(), Epoch{7});
  EXPECT_TRUE(world[0]->shares_memory());
}

// Rank 1 in a process of its own, which runs `work` and must not return from it.
template <class Work>
pid_t start_rank_1(std::vector<ShmPlan>& plans, const Work& work) {
  const pid_t child = fork();
  if (child == 0) {
    plans.erase(plans.begin());  // our copies of rank 0's sockets: only rank 0 must hold them
    work(*shm_peer_links(std::move(plans[0])));
    _exit(0);
  }
  plans.pop_back();
  return child;
}

TEST(Shm, CarriesMessagesBetweenProcesses) {
  auto plans = connected_plans(2);
  const pid_t child = start_rank_1(plans, [](PeerLinks& links) {
    for (std::uint32_t i = 0; i < 100; ++i) send_now(links, 0, recv_now(links, 0, i * 5000, {0, i}), {1, i});
  });
  const auto links = shm_peer_links(std::move(plans[0]));
  for (std::uint32_t i = 0; i < 100; ++i) {
    const auto data = pattern(i * 5000, i);
    std::vector<std::byte> back(data.size());
    auto sending = links->link(Rank{1}).send(data, {0, i});
    links->link(Rank{1}).recv(back, {1, i}).wait(soon());
    sending.wait(soon());
    ASSERT_TRUE(back == data);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(Shm, DetectsAKilledProcessAtOnce) {
  auto plans = connected_plans(2);
  const pid_t child = start_rank_1(plans, [](PeerLinks& links) {
    send_now(links, 0, pattern(1, 1), {0, 0});
    recv_now(links, 0, 1, {0, 9});
  });
  const auto links = shm_peer_links(std::move(plans[0]));
  recv_now(*links, 1, 1, {0, 0});
  std::promise<std::string> told;
  links->watch([&](Rank, const Error& error) { told.set_value(error.what); });
  std::vector<std::byte> buffer(1);
  auto pending = links->link(Rank{1}).recv(buffer, {0, 1});
  const auto begin = Clock::now();
  kill(child, SIGKILL);
  const Error error = failure_of([&] { pending.wait(soon()); });
  EXPECT_LT(Seconds(Clock::now() - begin).count(), slowdown());  // milliseconds on an idle machine
  EXPECT_EQ(error.kind, Kind::peer_lost);
  EXPECT_THAT(error.what, ::testing::HasSubstr("rank 1 died"));
  EXPECT_EQ(told.get_future().get(), error.what);
  waitpid(child, nullptr, 0);
}

TEST(Shm, DetectsAProcessThatDiesWhileWeSendToIt) {
  auto plans = connected_plans(2);
  const pid_t child = start_rank_1(plans, [](PeerLinks& links) {
    recv_now(links, 0, 1, {0, 0});
    raise(SIGKILL);
  });
  const auto links = shm_peer_links(std::move(plans[0]));
  const auto data = pattern(8_MiB, 1);
  auto first = links->link(Rank{1}).send(pattern(1, 1), {0, 0});
  EXPECT_EQ(failure_of([&] { links->link(Rank{1}).send(data, {0, 1}).wait(soon()); }).kind, Kind::peer_lost);  // dead before, or while
  waitpid(child, nullptr, 0);
}

TEST(Shm, FailsTheLinkOfAnAbandonedSend) {
  const auto world = shm_world(3);
  const auto data = pattern(8_MiB, 1);
  const Error error = failure_of([&] { world[0]->link(Rank{1}).send(data, {0, 5}).wait(Deadline::in(20ms)); });
  EXPECT_EQ(error.kind, Kind::timeout);
  EXPECT_THAT(error.what, ::testing::AllOf(::testing::HasSubstr("rank 1"), ::testing::HasSubstr("tag 0:5")));
  EXPECT_EQ(world[0]->failure(Rank{1})->kind, Kind::aborted);
  EXPECT_FALSE(world[0]->failure(Rank{2}));
}

// Corrupts a ring of rank 0: the count of bytes written, and a header.
void corrupt_ring(const Segment& inbox, Rank writer, std::uint64_t written, RingHeader header) {
  std::byte* const ring = Inbox(inbox).ring(writer, kRingBytes);
  std::memcpy(ring + kPageBytes, &header, sizeof header);
  reinterpret_cast<RingCounts*>(ring)->written = written;
}

TEST(Shm, SurvivesACorruptRing) {
  struct {
    std::uint64_t written;
    RingHeader header;
  } const rows[] = {{7, {}}, {kRingBytes + 16, {}}, {~0ULL, {}}, {~15ULL, {}}, {16, {0, 1, ~0ULL}}, {16, {0, 1, 1ULL << 50}}};
  for (const auto& bad : rows) {
    auto plans = std::vector<ShmPlan>(3);
    for (auto& plan : plans) plan.own = make_shm_inbox(3);
    std::string why;
    const Segment target = Segment::open(plans[0].own.name(), false, &why).value();
    AllPeerLinks world;
    for (std::size_t me = 0; me < 3; ++me) {
      plans[me].me = Rank{static_cast<int>(me)};
      for (std::size_t p = 0; p < 3; ++p)
        plans[me].peers.push_back(p == me ? Segment{} : Segment::open(plans[p].own.name(), false, &why).value());
    }
    for (auto& plan : plans) world.push_back(shm_peer_links(std::move(plan)));
    corrupt_ring(target, Rank{1}, bad.written, bad.header);
    const Error error = failure_of([&] { recv_now(*world[0], 1, 4, {0, 1}); });
    EXPECT_EQ(error.kind, Kind::corrupt) << error.what;
    EXPECT_THAT(error.what, ::testing::HasSubstr("rank 1"));
    send_now(*world[2], 0, pattern(4, 1), {0, 1});
    EXPECT_EQ(recv_now(*world[0], 2, 4, {0, 1}), pattern(4, 1)) << "other links work";
  }
}

TEST(Shm, SurvivesACorruptCountOfAReader) {
  ShmPlan plan;
  plan.me = Rank{0};
  plan.own = make_shm_inbox(2);
  const Segment theirs = make_shm_inbox(2);  // nobody reads it: we set the reader's count
  std::string why;
  plan.peers.emplace_back();
  plan.peers.push_back(Segment::open(theirs.name(), false, &why).value());
  const auto links = shm_peer_links(std::move(plan));
  reinterpret_cast<RingCounts*>(Inbox(theirs).ring(Rank{0}, kRingBytes))->read = 1234567;
  EXPECT_EQ(failure_of([&] { send_now(*links, 1, pattern(kRingBytes * 2, 1), {0, 1}); }).kind, Kind::corrupt);
}

TEST(Shm, RefusesAnInboxThatDoesNotFit) {
  for (const auto& [ranks, ring] : {std::pair{3, kRingBytes}, std::pair{2, kRingBytes * 2}}) {
    ShmPlan plan;
    plan.me = Rank{0};
    plan.own = make_shm_inbox(2);
    plan.peers.emplace_back();
    plan.peers.push_back(make_shm_inbox(ranks, ring));
    EXPECT_EQ(failure_of([&] { shm_peer_links(std::move(plan)); }).kind, Kind::corrupt);
  }
  EXPECT_EQ(failure_of([] { make_shm_inbox(2, 5000); }).kind, Kind::usage);
}

TEST(Shm, CostsNoMemoryForRingsNobodyUses) {
  const Segment inbox = make_shm_inbox(64);
  const auto path = fmt::format("/proc/self/fd/{}", inbox.name().fd);
  struct stat st {};
  ASSERT_EQ(stat(path.c_str(), &st), 0);
  EXPECT_GT(st.st_size, static_cast<off_t>(64 * kRingBytes));
  EXPECT_LT(st.st_blocks * 512, static_cast<long>(64_KiB));
}

}  // namespace
}  // namespace cohort::net
