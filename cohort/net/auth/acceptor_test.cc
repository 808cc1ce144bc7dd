#include "cohort/net/auth/acceptor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <ctime>
#include <future>
#include <set>

#include "cohort/base/slowdown.h"
#include "cohort/net/auth/testing.h"

namespace cohort::net {
namespace {

using ::testing::HasSubstr;

TEST(Acceptor, AdmitsManyPeersAmongManyUnauthenticatedOnes) {
  const Secret secret = Secret::random();
  const Listener listener = listen_on({"127.0.0.1", 0}, secret);
  const auto idle = raw_connections(listener.address, 2 * Acceptor::kMaxUnauthenticated);
  std::vector<std::future<ControlConnection>> dialers;
  for (int r = 1; r <= 8; ++r)
    dialers.push_back(
        std::async(std::launch::async, [&, r] { return ControlConnection::connect(listener.address, secret, test_hello(r), soon()); }));
  Acceptor acceptor(listener, secret, test_hello(0));
  std::set<int> admitted;
  std::vector<ControlConnection> connections;
  while (admitted.size() < 8) {
    auto connection = acceptor.next(soon());
    ASSERT_TRUE(connection);
    admitted.insert(connection->peer().rank.value);
    connections.push_back(std::move(*connection));
  }
  for (auto& d : dialers) EXPECT_EQ(d.get().peer().rank, Rank{0});
  EXPECT_EQ(acceptor.counts().admitted, 8U);
  EXPECT_GE(acceptor.counts().refused + acceptor.counts().unserved, Acceptor::kMaxUnauthenticated);
}

TEST(Acceptor, ClosesConnectionsThatFilledTheQueueBeforeItWasCreated) {
  const Secret secret = Secret::random();
  const Listener listener = listen_on({"127.0.0.1", 0}, secret);
  const auto others = raw_connections(listener.address, 3 * Acceptor::kMaxUnauthenticated);
  auto dialer = std::async(std::launch::async, [&] { return ControlConnection::connect(listener.address, secret, test_hello(1), soon()); });
  Acceptor acceptor(listener, secret, test_hello(0));
  EXPECT_GE(acceptor.counts().unserved, others.size());
  EXPECT_EQ(acceptor.counts().refused, 0U) << "ranks of a large job may be among them";
  const auto connection = acceptor.next(soon());
  ASSERT_TRUE(connection);
  EXPECT_EQ(dialer.get().peer().rank, Rank{0});
}

TEST(Acceptor, ClosesNoConnectionThatItCanServe) {
  const Secret secret = Secret::random();
  const Listener listener = listen_on({"127.0.0.1", 0}, secret);
  const auto others = raw_connections(listener.address, Acceptor::kMaxUnauthenticated);
  Acceptor acceptor(listener, secret, test_hello(0));
  EXPECT_EQ(acceptor.counts().refused + acceptor.counts().unserved, 0U);
  EXPECT_TRUE(std::all_of(others.begin(), others.end(), is_open));
}

// It sends its opening and no more for a while, with many connections before and after it.
TEST(Acceptor, UnauthenticatedPeersGiveWayToThoseWithAProofInTheHello) {
  const Secret secret = Secret::random();
  const Listener listener = listen_on({"127.0.0.1", 0}, secret);
  Acceptor acceptor(listener, secret, test_hello(0));
  const auto before = raw_connections(listener.address, Acceptor::kMaxUnauthenticated / 2);
  const Fd slow = raw_connection(listener.address), wrong_key = raw_connection(listener.address);
  const auto behind = raw_connections(listener.address, 2 * Acceptor::kMaxUnauthenticated);
  const Handshake proved(Handshake::Side::dialer, secret, test_hello(1)),
      unproved(Handshake::Side::dialer, Secret::random(), test_hello(1));
  send_raw(slow, proved.to_send());
  send_raw(wrong_key, unproved.to_send());
  const Deadline limit = Deadline::in(20s * slowdown());
  bool slow_answered = false, wrong_key_answered = false;
  while (std::any_of(before.begin(), before.end(), is_open) || is_open(wrong_key)) {
    ASSERT_FALSE(limit.passed());
    EXPECT_FALSE(acceptor.advance());
    slow_answered = slow_answered || received_opening(slow);
    wrong_key_answered = wrong_key_answered || received_opening(wrong_key);
    poll(nullptr, 0, 1);
  }
  EXPECT_TRUE(slow_answered && wrong_key_answered) << "a peer with a wrong key is refused, but its opening was answered";
  EXPECT_TRUE(is_open(slow));
}

// Its opening came while advance() was not called for longer than kPreCheckTime.
TEST(Acceptor, ReadsWhatWasSentWhileItsOwnerWasBusy) {
  const Secret secret = Secret::random();
  const Listener listener = listen_on({"127.0.0.1", 0}, secret);
  Acceptor acceptor(listener, secret, test_hello(0));
  const Fd first = raw_connection(listener.address);
  const auto others = raw_connections(listener.address, Acceptor::kMaxUnauthenticated - 1);
  for (int turn = 0; turn < 8; ++turn) EXPECT_FALSE(acceptor.advance());
  const Handshake proved(Handshake::Side::dialer, secret, test_hello(1));
  send_raw(first, proved.to_send());
  const auto behind = raw_connections(listener.address, 8);
  poll(nullptr, 0, Deadline::in(1.5 * Acceptor::kPreCheckTime).left_ms());
  EXPECT_FALSE(acceptor.advance());
  EXPECT_EQ(acceptor.counts().refused, behind.size());
  EXPECT_TRUE(received_opening(first));
  EXPECT_TRUE(is_open(first));
  EXPECT_FALSE(is_open(others.front()));
}

// Under TLS the first bytes carry no proof.
TEST(Acceptor, GivesEveryPeerTimeForTheRoundTripOfTls) {
  const Secret secret = Secret::random().use_tls(true);
  const Listener listener = listen_on({"127.0.0.1", 0}, secret);
  Acceptor acceptor(listener, secret, test_hello(0));
  const auto others = raw_connections(listener.address, Acceptor::kMaxUnauthenticated + 8);
  const auto began = Clock::now();
  while (acceptor.counts().refused == 0 && Clock::now() - began < 20s * slowdown()) EXPECT_FALSE(acceptor.next(Deadline::in(10ms)));
  EXPECT_GE(Clock::now() - began, Acceptor::kHandshakeTime);
  EXPECT_GE(acceptor.counts().refused, 1U);
}

Seconds processor_time() {
  timespec spent{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
  return std::chrono::seconds(spent.tv_sec) + std::chrono::nanoseconds(spent.tv_nsec);
}

TEST(Acceptor, ClosesAnUnauthenticatedPeerForWantOfDescriptors) {
  const Secret secret = Secret::random();
  const Listener listener = listen_on({"127.0.0.1", 0}, secret);
  const auto others = raw_connections(listener.address, 32);
  Acceptor acceptor(listener, secret, test_hello(0));
  EXPECT_THROW(listen_on(listener.address, secret),
               Failure);  // UBSan checks the type of a Failure through a pipe: while descriptors are left
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const Fd highest{::dup(0)};
  const rlimit few{static_cast<rlim_t>(highest.get()) + 9, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  const Seconds spent = processor_time();
  EXPECT_NO_THROW(EXPECT_FALSE(acceptor.next(Deadline::in(Acceptor::kPreCheckTime * 3))));
  EXPECT_LT(processor_time() - spent, 0.4 * slowdown() * Acceptor::kPreCheckTime) << "it sleeps until a peer can be closed";
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_THAT(acceptor.counts().last_refusal, HasSubstr("Too many open files"));
}

// Whoever repeats an overheard opening is refused.
TEST(Acceptor, AcceptsAnOpeningOnce) {
  const Secret secret = Secret::random();
  const Listener listener = listen_on({"127.0.0.1", 0}, secret);
  Acceptor acceptor(listener, secret, test_hello(0));
  const Handshake proved(Handshake::Side::dialer, secret, test_hello(1));
  const Fd first = raw_connection(listener.address), replay = raw_connection(listener.address);
  send_raw(first, proved.to_send());
  const Deadline limit = Deadline::in(20s * slowdown());
  while (!is_open(first) || !received_opening(first)) {
    ASSERT_FALSE(limit.passed());
    EXPECT_FALSE(acceptor.next(Deadline::in(1ms)));
  }
  send_raw(replay, proved.to_send());
  while (acceptor.counts().refused == 0 && !limit.passed()) EXPECT_FALSE(acceptor.next(Deadline::in(1ms)));
  EXPECT_THAT(acceptor.counts().last_refusal, HasSubstr("was received before"));
  EXPECT_FALSE(is_open(replay));
  EXPECT_TRUE(is_open(first));
}

// A forked process holds copies of all descriptors until exec.
TEST(Acceptor, AChildThatHoldsAnUnauthenticatedPeersSocketDoesNoHarm) {
  const Secret secret = Secret::random();
  const Listener listener = listen_on({"127.0.0.1", 0}, secret);
  Acceptor acceptor(listener, secret, test_hello(0));
  const Fd other = raw_connection(listener.address);
  EXPECT_FALSE(acceptor.next(Deadline::in(20ms)));
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  ASSERT_GT(child, 0);
  send_raw(other, as_bytes("GET / HTTP/1.1"));
  const Deadline limit = Deadline::in(20s * slowdown());
  while (acceptor.counts().refused == 0 && !limit.passed()) EXPECT_FALSE(acceptor.next(Deadline::in(1ms)));
  EXPECT_NO_THROW(EXPECT_FALSE(acceptor.next(Deadline::in(3 * Acceptor::kBackOff)))) << "and the closed connection is not read again";
  EXPECT_EQ(acceptor.counts().refused, 1U);
  kill(child, SIGKILL);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
}

// One a millisecond, and a process of the job among them.
TEST(Acceptor, UnauthenticatedPeersThatComeOneByOneAreAcceptedAFewAtATime) {
  constexpr std::size_t kConnections = 150;
  const Secret secret = Secret::random();
  const Listener listener = listen_on({"127.0.0.1", 0}, secret);
  Acceptor acceptor(listener, secret, test_hello(0));
  auto others = std::async(std::launch::async, [&] {
    std::vector<Fd> opened;
    for (std::size_t i = 0; i < kConnections; ++i) {
      opened.push_back(raw_connection(listener.address));
      send_raw(opened.back(), as_bytes("GET / HTTP/1.1\r\n"));
      poll(nullptr, 0, 1);
    }
    return opened;
  });
  auto dialer = std::async(std::launch::async, [&] { return ControlConnection::connect(listener.address, secret, test_hello(1), soon()); });
  const auto began = Clock::now();
  std::optional<ControlConnection> connection;
  int wakeups = 0;
  for (std::vector<pollfd> polls; (acceptor.counts().refused < kConnections || !connection) && Clock::now() - began < 20s * slowdown();
       ++wakeups) {
    while (auto peer = acceptor.advance()) connection = std::move(peer);
    const Deadline until = acceptor.look_again();
    polls.clear();
    acceptor.watch(polls);
    poll(polls.data(), polls.size(), until.left_ms());
  }
  EXPECT_EQ(acceptor.counts().refused, kConnections);
  EXPECT_LT(wakeups, 4 * Seconds(Clock::now() - began) / Acceptor::kBackOff + 10);
  ASSERT_TRUE(connection);
  EXPECT_EQ(dialer.get().peer().rank, Rank{0});
}

}  // namespace
}  // namespace cohort::net
