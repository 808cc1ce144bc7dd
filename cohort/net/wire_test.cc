#include "cohort/net/wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <ctime>
#include <future>
#include <set>

#include "cohort/base/error.h"
#include "cohort/base/slowdown.h"
#include "cohort/net/dial.h"
#include "cohort/net/door.h"
#include "cohort/net/socket.h"

namespace cohort::net {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Deadline soon() { return Deadline::in(20s); }
Hello hello(int rank) { return {"wires", Epoch{1}, Rank{rank}, Role::worker}; }

Error failure_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Failure& f) {
    return f.error();
  }
  return {Kind::bug, "no failure", kNoRank};
}

// A plain socket of somebody who is no peer.
Fd raw_connection(const Address& to) {
  const SocketAddress where = SocketAddress::of(to);
  Fd fd{::socket(where.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  if (::connect(fd.get(), where.get(), where.length) != 0) throw_system("connect");
  return fd;
}

struct Pair {
  explicit Pair(const std::string& at = "127.0.0.1:0") : listener(listen_on(Address::parse(at), secret)) {
    auto dialer = std::async(std::launch::async, [this] { return Wire::connect(listener.address, secret, hello(1), soon()); });
    zero.emplace(Wire::accept(accept_one(listener, soon()), secret, hello(0), soon()));
    one.emplace(dialer.get());
  }
  Secret secret = Secret::random();
  Listener listener;
  std::optional<Wire> zero, one;
};

class Wires : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(On, Wires, testing::Values("127.0.0.1:0", "[::1]:0", "unix:@cohort-wire-test"));

TEST_P(Wires, CarryFramesBothWaysInOrder) {
  Pair p(GetParam());
  EXPECT_EQ(p.zero->peer().rank, Rank{1});
  EXPECT_EQ(p.one->peer().rank, Rank{0});
  EXPECT_FALSE(p.zero->readable());
  for (std::uint16_t i = 1; i < 100; ++i) p.one->send(i, as_bytes(std::string(i, 'x')), soon());
  p.zero->send(5, as_bytes("back"), soon());
  EXPECT_TRUE(p.one->readable());
  for (std::uint16_t i = 1; i < 100; ++i) {
    const Frame frame = p.zero->recv(soon());
    EXPECT_EQ(frame.type, i);
    EXPECT_EQ(frame.body.size(), i);
  }
  EXPECT_TRUE(std::ranges::equal(p.one->recv(soon()).body, as_bytes("back")));
}

TEST(Wire, CarriesABodyUpToTheCap) {
  Pair p;
  const std::vector<std::byte> body(kControlCap, std::byte{7});
  auto sender = std::async(std::launch::async, [&] { p.one->send(1, body, soon()); });
  EXPECT_EQ(p.zero->recv(soon()).body, body);
  sender.get();
  const std::vector<std::byte> more(kControlCap + 1);
  EXPECT_EQ(failure_of([&] { p.one->send(1, more, soon()); }).kind, Kind::usage);
  p.one->send(2, {}, soon());
  EXPECT_EQ(p.zero->recv(soon()).type, 2);
}

TEST(Wire, GoesOnAfterATimeout) {
  Pair p;
  const Error error = failure_of([&] { p.zero->recv(Deadline::in(20ms)); });
  EXPECT_EQ(error.kind, Kind::timeout);
  EXPECT_THAT(error.what, HasSubstr("rank 1"));
  p.one->send(3, as_bytes("late"), soon());
  EXPECT_EQ(p.zero->recv(soon()).type, 3);
}

TEST(Wire, NamesThePeerThatClosed) {
  Pair p;
  p.one.reset();
  const Error error = failure_of([&] { p.zero->recv(soon()); });
  EXPECT_EQ(error.kind, Kind::peer_lost);
  EXPECT_EQ(error.rank, Rank{1});
  EXPECT_THAT(error.what, AllOf(HasSubstr("rank 1"), HasSubstr("127.0.0.1")));
  EXPECT_EQ(failure_of([&] { p.zero->recv(soon()); }).what, error.what);
}

TEST(Wire, BreaksOnForeignBytes) {
  Pair p;
  const std::string junk(200, 'j');
  ASSERT_EQ(::send(p.one->fd(), junk.data(), junk.size(), MSG_NOSIGNAL), 200);
  EXPECT_EQ(failure_of([&] { p.zero->recv(soon()); }).kind, Kind::corrupt);
  EXPECT_EQ(failure_of([&] { p.zero->recv(soon()); }).kind, Kind::corrupt) << "and stays broken";
}

TEST(Wire, WaitsForAListenerThatComesLate) {
  const Secret secret = Secret::random();
  const Address place = listen_on({"127.0.0.1", 0}, secret).address;  // free again at once
  auto dialer = std::async(std::launch::async, [&] { return Wire::connect(place, secret, hello(1), soon()); });
  EXPECT_EQ(dialer.wait_for(50ms), std::future_status::timeout);
  const Listener listener = listen_on(place, secret);
  const Wire zero = Wire::accept(accept_one(listener, soon()), secret, hello(0), soon());
  EXPECT_EQ(dialer.get().peer().rank, Rank{0});
}

TEST(Wire, SaysWhyNobodyAnswered) {
  const Secret secret = Secret::random();
  const Address place = listen_on({"127.0.0.1", 0}, secret).address;
  const Error error = failure_of([&] { Wire::connect(place, secret, hello(1), Deadline::in(50ms)); });
  EXPECT_EQ(error.kind, Kind::timeout);
  EXPECT_THAT(error.what, AllOf(HasSubstr(place.text()), HasSubstr("Connection refused")));
}

TEST(Wire, TellsTheOwnerOfAnotherSecretWithinASecond) {
  const Secret secret = Secret::random();
  const Listener listener = listen_on({"127.0.0.1", 0}, secret);
  Door door(listener, secret, hello(0));
  auto dialer = std::async(std::launch::async,
                           [&] { return failure_of([&] { Wire::connect(listener.address, Secret::random(), hello(1), soon()); }); });
  const auto begin = Clock::now();
  while (dialer.wait_for(0s) != std::future_status::ready) EXPECT_FALSE(door.next(Deadline::in(10ms)));
  EXPECT_LT(Seconds(Clock::now() - begin).count(), 1.0 * slowdown());
  const Error error = dialer.get();
  EXPECT_EQ(error.kind, Kind::corrupt);
  EXPECT_THAT(error.what, HasSubstr("another job secret"));
  EXPECT_THAT(door.counts().last_refusal, HasSubstr("does not know this job's secret"));
}

TEST(Wire, TellsAnotherVersionWithinASecond) {
  const Secret secret = Secret::random();
  const Listener listener = listen_on({"127.0.0.1", 0}, secret);
  const Fd other = raw_connection(listener.address);
  std::vector<char> opening(Handshake::kOpening);
  std::copy_n("COHO\x02\x00", 6, opening.begin());
  ASSERT_EQ(::send(other.get(), opening.data(), opening.size(), 0), 40);
  const auto begin = Clock::now();
  const Error error = failure_of([&] { Wire::accept(accept_one(listener, soon()), secret, hello(0), soon()); });
  EXPECT_LT(Seconds(Clock::now() - begin).count(), 1.0 * slowdown());
  EXPECT_THAT(error.what, AllOf(HasSubstr("version 2"), HasSubstr("speaks 1")));
  EXPECT_EQ(::recv(other.get(), opening.data(), opening.size(), MSG_WAITALL), 40) << "it learns our version";
  EXPECT_EQ(opening[4], 1);
}

TEST(Wire, GivesAStrangerItsDeadlineAndNoMore) {
  const Secret secret = Secret::random();
  const Listener listener = listen_on({"127.0.0.1", 0}, secret);
  const Fd silent = raw_connection(listener.address);
  const Error error = failure_of([&] { Wire::accept(accept_one(listener, soon()), secret, hello(0), Deadline::in(50ms)); });
  EXPECT_EQ(error.kind, Kind::timeout);
  EXPECT_THAT(error.what, HasSubstr("handshake"));
}

TEST(Listen, NeedsASecretBeyondLoopback) {
  for (const char* place : {"0.0.0.0:0", "[::]:0"}) {
    const Error error = failure_of([&] { listen_on(Address::parse(place), {}); });
    EXPECT_EQ(error.kind, Kind::usage);
    EXPECT_THAT(error.what, HasSubstr("without a job secret"));
    EXPECT_NO_THROW(listen_on(Address::parse(place), Secret::random()));
  }
  for (const char* place : {"127.0.0.1:0", "localhost:0", "[::1]:0", "unix:@cohort-listen-test"})
    EXPECT_NO_THROW(listen_on(Address::parse(place), {}));
}

TEST(Listen, SaysWhenThePlaceIsTaken) {
  const Listener first = listen_on({"127.0.0.1", 0}, {});
  EXPECT_NE(first.address.port, 0);
  EXPECT_THAT(failure_of([&] { listen_on(first.address, {}); }).what, AllOf(HasSubstr(first.address.text()), HasSubstr("in use")));
}

TEST(Listen, GivesNothingWhenNobodyCalls) {
  const Listener listener = listen_on({"127.0.0.1", 0}, {});
  EXPECT_FALSE(accept_one(listener, Deadline::in(10ms)));
}

TEST(Door, LetsManyInWhileStrangersCrowdIt) {
  const Secret secret = Secret::random();
  const Listener listener = listen_on({"127.0.0.1", 0}, secret);
  std::vector<Fd> strangers;
  for (std::size_t i = 0; i < 2 * Door::kStrangers; ++i) strangers.push_back(raw_connection(listener.address));
  std::vector<std::future<Wire>> dialers;
  for (int r = 1; r <= 8; ++r)
    dialers.push_back(std::async(std::launch::async, [&, r] { return Wire::connect(listener.address, secret, hello(r), soon()); }));
  Door door(listener, secret, hello(0));
  std::set<int> came;
  std::vector<Wire> wires;
  while (came.size() < 8) {
    auto wire = door.next(soon());
    ASSERT_TRUE(wire);
    came.insert(wire->peer().rank.value);
    wires.push_back(std::move(*wire));
  }
  for (auto& d : dialers) EXPECT_EQ(d.get().peer().rank, Rank{0});
  EXPECT_EQ(door.counts().admitted, 8U);
  EXPECT_GE(door.counts().refused + door.counts().sent_away, Door::kStrangers);
}

std::vector<Fd> crowd(const Address& at, std::size_t count) {
  std::vector<Fd> strangers;
  for (std::size_t i = 0; i < count; ++i) strangers.push_back(raw_connection(at));
  return strangers;
}

bool is_open(const Fd& fd) {
  char byte = 0;
  const ssize_t n = ::recv(fd.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return n > 0 || (n < 0 && errno == EAGAIN);
}

TEST(Door, SendsAwayACrowdThatFilledTheQueueBeforeItOpened) {
  const Secret secret = Secret::random();
  const Listener listener = listen_on({"127.0.0.1", 0}, secret);
  const auto strangers = crowd(listener.address, 3 * Door::kStrangers);
  auto dialer = std::async(std::launch::async, [&] { return Wire::connect(listener.address, secret, hello(1), soon()); });
  Door door(listener, secret, hello(0));
  EXPECT_GE(door.counts().sent_away, strangers.size());
  EXPECT_EQ(door.counts().refused, 0U) << "ranks of a large job are no strangers";
  const auto wire = door.next(soon());
  ASSERT_TRUE(wire);
  EXPECT_EQ(dialer.get().peer().rank, Rank{0});
}

TEST(Door, SendsNobodyAwayWhomItCanHear) {
  const Secret secret = Secret::random();
  const Listener listener = listen_on({"127.0.0.1", 0}, secret);
  const auto strangers = crowd(listener.address, Door::kStrangers);
  Door door(listener, secret, hello(0));
  EXPECT_EQ(door.counts().refused + door.counts().sent_away, 0U);
  EXPECT_TRUE(std::all_of(strangers.begin(), strangers.end(), is_open));
}

void say(const Fd& to, ConstBytes words) {
  ASSERT_EQ(::send(to.get(), words.data(), words.size(), MSG_NOSIGNAL), static_cast<ssize_t>(words.size()));
}

// What he was told, without waiting.
bool got_opening(const Fd& fd) {
  std::array<std::byte, Handshake::kOpening> opening;
  return ::recv(fd.get(), opening.data(), opening.size(), MSG_DONTWAIT) == 40;
}

// He says his first words and no more for a while, with a crowd before and behind him that wants his place.
TEST(Door, StrangersGiveWayBeforeWhomTheirFirstBytesVouchFor) {
  const Secret secret = Secret::random();
  const Listener listener = listen_on({"127.0.0.1", 0}, secret);
  Door door(listener, secret, hello(0));
  const auto before = crowd(listener.address, Door::kStrangers / 2);
  const Fd slow = raw_connection(listener.address), liar = raw_connection(listener.address);
  const auto behind = crowd(listener.address, 2 * Door::kStrangers);
  const Handshake words(Handshake::Side::dialer, secret, hello(1)), other(Handshake::Side::dialer, Secret::random(), hello(1));
  say(slow, words.to_send());
  say(liar, other.to_send());
  const Deadline limit = Deadline::in(20s * slowdown());
  bool slow_heard = false, liar_heard = false;
  while (std::any_of(before.begin(), before.end(), is_open) || is_open(liar)) {
    ASSERT_FALSE(limit.passed());
    EXPECT_FALSE(door.advance());
    slow_heard = slow_heard || got_opening(slow);
    liar_heard = liar_heard || got_opening(liar);
    poll(nullptr, 0, 1);
  }
  EXPECT_TRUE(slow_heard && liar_heard) << "who does not hold the secret cannot speak for himself, but was heard";
  EXPECT_TRUE(is_open(slow));
}

// Whose first words lie there when nobody has listened for longer than a glance.
TEST(Door, HearsWhatWasSaidWhileItsOwnerWasAway) {
  const Secret secret = Secret::random();
  const Listener listener = listen_on({"127.0.0.1", 0}, secret);
  Door door(listener, secret, hello(0));
  const Fd first = raw_connection(listener.address);
  const auto others = crowd(listener.address, Door::kStrangers - 1);
  for (int turn = 0; turn < 8; ++turn) EXPECT_FALSE(door.advance());
  const Handshake words(Handshake::Side::dialer, secret, hello(1));
  say(first, words.to_send());
  const auto behind = crowd(listener.address, 8);
  poll(nullptr, 0, Deadline::in(1.5 * Door::kGlance).left_ms());
  EXPECT_FALSE(door.advance());
  EXPECT_EQ(door.counts().refused, behind.size());
  EXPECT_TRUE(got_opening(first));
  EXPECT_TRUE(is_open(first));
  EXPECT_FALSE(is_open(others.front()));
}

// Under TLS his first words cannot vouch for him.
TEST(Door, GivesEverybodyTimeForTheRoundTripOfTls) {
  const Secret secret = Secret::random().use_tls(true);
  const Listener listener = listen_on({"127.0.0.1", 0}, secret);
  Door door(listener, secret, hello(0));
  const auto strangers = crowd(listener.address, Door::kStrangers + 8);
  const auto began = Clock::now();
  while (door.counts().refused == 0 && Clock::now() - began < 20s * slowdown()) EXPECT_FALSE(door.next(Deadline::in(10ms)));
  EXPECT_GE(Clock::now() - began, Door::kHearing);
  EXPECT_GE(door.counts().refused, 1U);
}

Seconds processor_time() {
  timespec spent{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
  return std::chrono::seconds(spent.tv_sec) + std::chrono::nanoseconds(spent.tv_nsec);
}

TEST(Door, GivesUpAStrangerForWantOfDescriptors) {
  const Secret secret = Secret::random();
  const Listener listener = listen_on({"127.0.0.1", 0}, secret);
  const auto strangers = crowd(listener.address, 32);
  Door door(listener, secret, hello(0));
  EXPECT_THROW(listen_on(listener.address, secret), Failure);  // UBSan looks through a pipe what a Failure is: while there is one to be had
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const Fd highest{::dup(0)};
  const rlimit few{static_cast<rlim_t>(highest.get()) + 9, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  const Seconds spent = processor_time();
  EXPECT_NO_THROW(EXPECT_FALSE(door.next(Deadline::in(Door::kGlance * 3))));
  EXPECT_LT(processor_time() - spent, 0.4 * slowdown() * Door::kGlance) << "it sleeps until somebody gives way";
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_THAT(door.counts().last_refusal, HasSubstr("Too many open files"));
}

// Who repeats what he overheard is heard no longer than any stranger.
TEST(Door, HearsAnOpeningOnce) {
  const Secret secret = Secret::random();
  const Listener listener = listen_on({"127.0.0.1", 0}, secret);
  Door door(listener, secret, hello(0));
  const Handshake words(Handshake::Side::dialer, secret, hello(1));
  const Fd first = raw_connection(listener.address), echo = raw_connection(listener.address);
  say(first, words.to_send());
  const Deadline limit = Deadline::in(20s * slowdown());
  while (!is_open(first) || !got_opening(first)) {
    ASSERT_FALSE(limit.passed());
    EXPECT_FALSE(door.next(Deadline::in(1ms)));
  }
  say(echo, words.to_send());
  while (door.counts().refused == 0 && !limit.passed()) EXPECT_FALSE(door.next(Deadline::in(1ms)));
  EXPECT_THAT(door.counts().last_refusal, HasSubstr("was heard before"));
  EXPECT_FALSE(is_open(echo));
  EXPECT_TRUE(is_open(first));
}

// A process that is being started holds copies of all descriptors until it becomes another program.
TEST(Door, AChildThatHoldsAStrangersSocketDoesNoHarm) {
  const Secret secret = Secret::random();
  const Listener listener = listen_on({"127.0.0.1", 0}, secret);
  Door door(listener, secret, hello(0));
  const Fd stranger = raw_connection(listener.address);
  EXPECT_FALSE(door.next(Deadline::in(20ms)));
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  ASSERT_GT(child, 0);
  say(stranger, as_bytes("GET / HTTP/1.1"));
  const Deadline limit = Deadline::in(20s * slowdown());
  while (door.counts().refused == 0 && !limit.passed()) EXPECT_FALSE(door.next(Deadline::in(1ms)));
  EXPECT_NO_THROW(EXPECT_FALSE(door.next(Deadline::in(3 * Door::kRest)))) << "and nobody is heard who has gone";
  EXPECT_EQ(door.counts().refused, 1U);
  kill(child, SIGKILL);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
}

// One a millisecond, and one who belongs here among them.
TEST(Door, StrangersWhoComeOneByOneAreMetAFewAtATime) {
  constexpr std::size_t kCallers = 150;
  const Secret secret = Secret::random();
  const Listener listener = listen_on({"127.0.0.1", 0}, secret);
  Door door(listener, secret, hello(0));
  auto strangers = std::async(std::launch::async, [&] {
    std::vector<Fd> here;
    for (std::size_t i = 0; i < kCallers; ++i) {
      here.push_back(raw_connection(listener.address));
      say(here.back(), as_bytes("GET / HTTP/1.1\r\n"));
      poll(nullptr, 0, 1);
    }
    return here;
  });
  auto dialer = std::async(std::launch::async, [&] { return Wire::connect(listener.address, secret, hello(1), soon()); });
  const auto began = Clock::now();
  std::optional<Wire> wire;
  int wakings = 0;
  for (std::vector<pollfd> polls; (door.counts().refused < kCallers || !wire) && Clock::now() - began < 20s * slowdown(); ++wakings) {
    while (auto came = door.advance()) wire = std::move(came);
    const Deadline until = door.look_again();
    polls.clear();
    door.watch(polls);
    poll(polls.data(), polls.size(), until.left_ms());
  }
  EXPECT_EQ(door.counts().refused, kCallers);
  EXPECT_LT(wakings, 4 * Seconds(Clock::now() - began) / Door::kRest + 10);
  ASSERT_TRUE(wire);
  EXPECT_EQ(dialer.get().peer().rank, Rank{0});
}

TEST(Dial, CallsAgainSoonWhenNothingAnswers) {
  const Secret secret = Secret::random();
  const Listener listener = listen_on({"127.0.0.1", 0}, secret);
  ASSERT_EQ(::listen(listener.fd.get(), 0), 0);  // room for one
  const auto strangers = crowd(listener.address, 1);
  Dial dial(listener.address, secret, hello(1), {}, soon());
  EXPECT_FALSE(dial.advance());
  const int first = local_address(dial.fd()).port;
  const auto began = Clock::now();
  while (local_address(dial.fd()).port == first && Clock::now() - began < 10s * slowdown()) {
    pollfd p{dial.fd(), dial.events(), 0};
    poll(&p, 1, dial.look_again().left_ms());
    EXPECT_FALSE(dial.advance());
  }
  EXPECT_LT(Clock::now() - began, 0.8s * slowdown()) << "the kernel itself asks again after a second";
  EXPECT_FALSE(dial.unheard_for(5s));
  EXPECT_TRUE(dial.unheard_for(0.05s)) << "a call for another is no answer";
}

}  // namespace
}  // namespace cohort::net
