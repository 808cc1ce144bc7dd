// A ServiceThread answers while its rank computes, and ends when it is told to, whatever its peers do.
#include "cohort/collective/service_thread.h"

#include <algorithm>
#include <latch>

#include "cohort/base/trace.h"
#include "tests/laws/channel_world.h"

namespace cohort::collective {
namespace {

using ::testing::HasSubstr;

constexpr std::uint32_t kPush = 1, kPull = 2;
constexpr std::size_t kElements = 50'000;

// A shard of a parameter server: adds what workers push, and answers each push with the sum so far.
void serve_sums(PeerChannel& channel) {
  const auto n = static_cast<std::size_t>(channel.size());
  std::vector<double> sum(kElements, 0.0);
  std::vector<std::vector<double>> pushed(n, std::vector<double>(kElements));
  const auto listen = [&](std::size_t r) { return channel.recv(Rank{static_cast<int>(r)}, kPush, piece(std::span(pushed[r]))); };
  std::vector<Pending> requests;
  for (std::size_t r = 0; r < n; ++r) requests.push_back(listen(r));
  while (true) {
    const std::size_t r = channel.wait_any(requests, Deadline{});
    requests[r].wait(Deadline{});
    std::transform(sum.begin(), sum.end(), pushed[r].begin(), sum.begin(), std::plus<>());
    channel.send(Rank{static_cast<int>(r)}, kPull, piece(std::span(sum))).wait(Deadline{});
    requests[r] = listen(r);
  }
}

}  // namespace

class ServiceThreads : public ChannelLaws {};
INSTANTIATE_TEST_SUITE_P(On, ServiceThreads, ::testing::Values("loopback", "shm", "tcp", "tls", "mixed"),
                         [](const auto& given) { return given.param; });

TEST_P(ServiceThreads, AnswerEveryRankWhileTheirOwnIsInCollectives) {
  world(3).on_all([](Communicator& comm, PeerChannel& channel) {
    std::unique_ptr<ServiceThread> service;
    auto other = comm.channel();  // rank 0 serves on its second channel, so the workers use theirs
    if (channel.rank() == Rank{0}) service = std::make_unique<ServiceThread>("sums", std::move(other), serve_sums);
    for (int i = 0; i < 5; ++i) {
      std::vector<double> mine(kElements, 1.0), sum(kElements);
      if (!service) {
        auto pulling = other->recv(Rank{0}, kPull, piece(std::span(sum)));
        auto pushing = other->send(Rank{0}, kPush, piece(std::span(mine)));
        pushing.wait(soon());
        pulling.wait(soon());
        EXPECT_GE(sum.back(), i + 1.0);
        EXPECT_LE(sum.back(), 2.0 * (i + 1));
      }
      comm.all_reduce(piece(std::span(mine)), Op::sum);
      EXPECT_EQ(mine.back(), 3.0);
    }
    if (service) service->stop();
    comm.barrier();
  });
}

TEST_P(ServiceThreads, StopWithPeersThatAreAliveSilentOrGone) {
  for (const bool gone : {false, true}) {
    ChannelWorld both = world(2);
    std::latch serving(1);
    ServiceThread service("silent", std::move(both.channels[0]), [&](PeerChannel& channel) {
      Buffer never(4), large(16_MiB);
      auto receiving = channel.recv(Rank{1}, 1, piece_of(never));
      auto sending = channel.send(Rank{1}, 2, piece_of(large));
      auto to_self = channel.recv(Rank{0}, 3, piece_of(never));
      serving.count_down();
      to_self.wait(Deadline{});
    });
    serving.wait();
    if (gone) both.leave(1);
    EXPECT_TRUE(service.running());
    service.check();
    service.stop();
    service.stop();
    EXPECT_FALSE(service.running());
  }
}

TEST_P(ServiceThreads, KeepWhatEndedThemForTheOwnerAndThrowItOnce) {
  ChannelWorld both = world(2);
  Buffer got(4);
  auto asking = both[1].recv(Rank{0}, 1, piece_of(got));
  ServiceThread service("failing", std::move(both.channels[0]), [](PeerChannel& channel) { recv_now(channel, 1, 1, 4); });
  both.leave(1);
  for (const Deadline limit = soon(); service.running() && !limit.passed();) std::this_thread::yield();
  const Error error = failure_of([&] { service.check(); });
  EXPECT_EQ(error.kind, Kind::peer_lost);
  EXPECT_THAT(error.what, HasSubstr("rank 1"));
  service.check();
  service.stop();
}

TEST_P(ServiceThreads, ThatEndEndTheCallsOfTheirPeers) {
  ChannelWorld both = world(2);
  ServiceThread service("short", std::move(both.channels[0]), [](PeerChannel&) { throw std::runtime_error("out of ideas"); });
  EXPECT_THAT(failure_of([&] { recv_now(both[1], 0, 1, 4); }).what, HasSubstr("rank 0 closed its channel"));
  EXPECT_THROW(service.stop(), std::runtime_error);
  both.channels[0] = both.comm(0).channel();
  both.on_all([](Communicator& comm, PeerChannel&) { comm.barrier(); });  // and nothing else
}

TEST(ServiceThreadTrace, HasItsNameInTraces) {
  ChannelWorld one("loopback", 1);
  Trace::start("unused", Rank{0}, [](const std::string&) {});
  std::latch traced(1);
  ServiceThread service("metrics service", std::move(one.channels[0]), [&](PeerChannel& channel) {
    { const Span span{"answer"}; }
    traced.count_down();
    recv_now(channel, 0, 1, 4);
  });
  traced.wait();
  std::vector<std::string> names;
  for (const auto& thread : Trace::snapshot()) names.push_back(thread.name);
  EXPECT_THAT(names, ::testing::Contains("metrics service"));
  service.stop();
  Trace::stop();
}

}  // namespace cohort::collective
