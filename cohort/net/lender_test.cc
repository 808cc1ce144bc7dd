// Messages whose memory is lent to the kernel: good only once the receiver has read them, void when they are given up before.
#include "cohort/net/lender.h"

#include <linux/tcp.h>  // the C library's tcp_info counts no packets
#include <netinet/in.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "cohort/net/conformance.h"
#include "cohort/net/inflow.h"
#include "cohort/net/outflow.h"
#include "cohort/net/wire.h"

namespace cohort::net {
namespace {

constexpr Tag kTag{0, 1};
constexpr TagRange kAll{0, 0, ~0U};

// One end of a stream, with both its halves, as a mesh holds them.
struct End {
  explicit End(int socket, Rank peer) : fd(socket), out(socket, peer, false), in(mailbox, peer) {}
  Inflow::Pull turn() {  // what TcpMesh::move does
    if (out.waiting()) out.push();
    Inflow::Pull pulled = in.pull(fd.get(), out.lending() ? Haste::now : Haste::none);
    if (pulled.got && !out.lent_was_got()) pulled.end = Inflow::End::corrupt;
    if (pulled.owed && obliging) out.owe_got();
    return pulled;
  }
  std::shared_ptr<Sending> send(ConstBytes bytes) {
    Outflow::Push pushed;
    return out.begin(bytes, kTag, pushed);
  }
  Fd fd;
  Mailbox mailbox{Rank{0}, 3};
  Outflow out;
  Inflow in;
  bool obliging = true;  // says "got"
};

struct Pair {
  Pair() {
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) != 0) throw_system("socketpair");
    a = std::make_unique<End>(fds[0], Rank{1});
    b = std::make_unique<End>(fds[1], Rank{2});
  }
  Pair(Fd one, Fd other) : a(std::make_unique<End>(one.release(), Rank{1})), b(std::make_unique<End>(other.release(), Rank{2})) {}
  template <class Done>
  bool turn_until(const Done& done) const {
    for (const Deadline limit = soon(); !limit.passed();) {
      a->turn();
      b->turn();
      if (done()) return true;
    }
    return false;
  }
  std::unique_ptr<End> a, b;
};

TEST(Lender, CarriesAnySizeFromAnyPlace) {
  for (const std::size_t size : {Lender::kLeast, Lender::kLeast + 1, kBlockBytes, kBlockBytes + 1, 3 * kBlockBytes + 12'345}) {
    for (const std::size_t offset : {0, 1, 4095}) {
      const Pair pair;
      const auto data = pattern(size + offset, 5);
      const auto sending = pair.a->send(ConstBytes(data).subspan(offset));
      ASSERT_TRUE(sending) << "lent memory is in use after the call";
      ASSERT_TRUE(pair.turn_until([&] { return sending->done(); }));
      pair.b->turn();
      const auto message = pair.b->mailbox.take(kAll);
      ASSERT_TRUE(message);
      EXPECT_TRUE(std::ranges::equal(message->bytes, ConstBytes(data).subspan(offset))) << size << " bytes from " << offset;
    }
  }
}

Pair over_tcp() {
  const Listener listener = listen_on({"127.0.0.1", 0}, {});
  Fd one = open_socket(AF_INET);
  const SocketAddress where = SocketAddress::of(listener.address);
  ::connect(one.get(), where.get(), where.length);  // under way, and over when accept has it
  Fd other = accept_one(listener, soon());
  for (const int fd : {one.get(), other.get()}) prepare_socket(fd);
  return {std::move(one), std::move(other)};
}

tcp_info info_of(const Fd& fd) {
  tcp_info info{};
  socklen_t size = sizeof info;
  EXPECT_EQ(getsockopt(fd.get(), IPPROTO_TCP, TCP_INFO, &info, &size), 0);
  return info;
}

// Pages and packets are not of one length. What is left of a page must not travel alone, nor wait for more where nothing follows.
TEST(Lender, FillsPacketsAndHoldsNothingBackAtTheEnd) {
  const Pair pair = over_tcp();
  const auto data = pattern(32_MiB, 1);
  for (std::size_t at = 0; at < data.size(); at += 2_MiB) {
    const auto sending = pair.a->send(ConstBytes(data).subspan(at, 2_MiB));
    ASSERT_TRUE(pair.turn_until([&] { return sending->done(); }));
    int corked = 1;
    socklen_t size = sizeof corked;
    ASSERT_EQ(getsockopt(pair.a->fd.get(), IPPROTO_TCP, TCP_CORK, &corked, &size), 0);
    EXPECT_EQ(corked, 0);
  }
  const tcp_info info = info_of(pair.a->fd);
  const double fewest = static_cast<double>(data.size()) / info.tcpi_snd_mss;
  EXPECT_LT(info.tcpi_data_segs_out, 1.12 * fewest) << "of " << info.tcpi_snd_mss << " bytes each; " << fewest << " would do";
}

TEST(Lender, CallsAMessageGoodOnlyWhenItsReaderHasSaidGot) {
  const Pair pair;
  pair.b->obliging = false;
  const auto data = pattern(1_MiB, 1);
  const auto sending = pair.a->send(data);
  bool read = false;
  for (const Deadline limit = soon(); !read && !limit.passed();) pair.a->turn(), read = pair.b->turn().owed;
  ASSERT_TRUE(read);
  for (int i = 0; i < 10; ++i) pair.a->turn(), pair.b->turn();
  EXPECT_FALSE(sending->done());
  EXPECT_FALSE(pair.a->out.waiting()) << "there is nothing to do until the peer has spoken";
  EXPECT_FALSE(pair.b->mailbox.take(kAll));
  pair.b->out.owe_got();
  EXPECT_TRUE(pair.turn_until([&] { return sending->done(); }));
  pair.b->turn();
  EXPECT_TRUE(pair.b->mailbox.take(kAll)->bytes == data);
}

TEST(Lender, VoidsAMessageThatIsGivenUpWheneverThatHappens) {
  for (int turns = 0; turns < 8; ++turns) {
    const Pair pair;
    pair.b->obliging = false;
    auto data = pattern(3 * kBlockBytes / 2, 1);
    const auto sending = pair.a->send(data);
    for (int i = 0; i < turns; ++i) pair.a->turn(), pair.b->turn();
    sending->cancel();
    std::ranges::fill(data, std::byte{0xEE});  // its owner's again
    pair.a->out.stop(kAbortFrame, as_bytes("----given up"));
    Inflow::Pull pulled;
    for (const Deadline limit = soon(); pulled.end == Inflow::End::none && !limit.passed();) pair.a->out.push(), pulled = pair.b->turn();
    EXPECT_EQ(pulled.end, Inflow::End::aborted) << pulled.text;
    EXPECT_EQ(pulled.text, "----given up");
    EXPECT_FALSE(pair.b->mailbox.take(kAll)) << "changed memory was taken for good after " << turns << " turns";
  }
}

TEST(Lender, LendsBothWaysAtOnceThoughNobodyHasAskedYet) {
  const Pair pair;
  const auto there = pattern(5_MiB + 3, 1), back = pattern(7_MiB + 1, 2), small = pattern(100, 3);
  const auto one = pair.a->send(there), other = pair.b->send(back);
  const auto behind = pair.a->send(small);
  EXPECT_TRUE(pair.turn_until([&] { return one->done() && other->done() && (!behind || behind->done()); }));
  pair.a->turn(), pair.b->turn();
  EXPECT_TRUE(pair.b->mailbox.take(kAll)->bytes == there);
  EXPECT_TRUE(pair.a->mailbox.take(kAll)->bytes == back);
  EXPECT_TRUE(pair.b->mailbox.take(kAll)->bytes == small);
}

TEST(Lender, CopiesWhereThereIsNoDescriptorForAPipe) {
  const auto data = pattern(2_MiB, 1);
  {  // UBSan looks at objects through a pipe, once per type: let it do so while there are descriptors
    const Pair other;
    const auto sending = other.a->send(data);
    ASSERT_TRUE(other.turn_until([&] { return sending->done(); }));
  }
  const Pair pair;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto sending = pair.a->send(data);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_TRUE(pair.turn_until([&] { return sending->done(); }));
  std::optional<Message> message;  // a copy has left when the kernel has it: its reader may need more turns
  ASSERT_TRUE(pair.turn_until([&] { return (message = pair.b->mailbox.take(kAll)).has_value(); }));
  EXPECT_TRUE(message->bytes == data);
}

TEST(Lender, MeetsABrokenConnectionWithoutASignalAndSaysSoEveryTime) {
  const Pair pair;
  struct sigaction before {};
  struct sigaction deadly {};
  deadly.sa_handler = SIG_DFL;
  sigaction(SIGPIPE, &deadly, &before);
  pair.b.get()->fd.reset();
  const auto data = pattern(1_MiB, 1);
  const auto sending = pair.a->send(data);  // nobody looks at what begin() found
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(pair.a->out.waiting());
    EXPECT_TRUE(pair.a->out.push().broken);
  }
  EXPECT_TRUE(pair.a->out.lent_was_got()) << "what the peer said before it went is no lie";
  pair.a->out.drop();
  EXPECT_FALSE(pair.a->out.waiting());
  sigaction(SIGPIPE, &before, nullptr);
}

// The pages outlive their process in the socket, but nobody is left to call them good.
TEST(Lender, LeavesNothingGoodWhenItsProcessDies) {
  Pair pair;
  const auto data = pattern(1_MiB, 1);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    pair.b->fd.reset();
    const auto sending = pair.a->send(data);
    while (true) pair.a->out.push();
  }
  pair.a.reset();
  bool read = false;
  pair.b->obliging = false;
  for (const Deadline limit = soon(); !read && !limit.passed();) read = pair.b->turn().owed;
  EXPECT_TRUE(read);
  kill(child, SIGKILL);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  Inflow::Pull pulled;
  for (const Deadline limit = soon(); pulled.end == Inflow::End::none && !limit.passed();) pulled = pair.b->turn();
  EXPECT_EQ(pulled.end, Inflow::End::closed);
  EXPECT_FALSE(pair.b->mailbox.take(kAll));
}

}  // namespace
}  // namespace cohort::net
