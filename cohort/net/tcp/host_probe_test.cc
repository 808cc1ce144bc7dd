#include "cohort/net/tcp/host_probe.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

#include "cohort/net/auth/control_connection.h"
#include "cohort/net/socket/socket.h"
#include "cohort/net/transport/conformance.h"

namespace cohort::net {
namespace {

struct Joined {
  explicit Joined(const Listener& listener) : near(open_socket(AF_INET)) {
    const SocketAddress to = SocketAddress::of(listener.address);
    ::connect(near.get(), to.get(), to.length);
    far.reset(::accept(listener.fd.get(), nullptr, nullptr));
  }
  Fd near, far;
};

bool answered_soon(HostProbe& host_probe) {
  for (const Deadline end = Deadline::in(1s); !end.passed(); std::this_thread::sleep_for(1ms))
    if (host_probe.answered()) return true;
  return false;
}

}  // namespace

TEST(HostProbe, AHostAnswersWhetherOrNotAProcessListens) {
  Listener listener = listen_on({"127.0.0.1", 0}, Secret::random());
  const Joined stream(listener);
  ASSERT_TRUE(stream.far);
  HostProbe host_probe;
  EXPECT_FALSE(host_probe.answered()) << "there was no probe";
  host_probe.probe(stream.near.get());
  EXPECT_TRUE(answered_soon(host_probe));
  listener.fd.reset();
  host_probe = {};
  host_probe.probe(stream.near.get());
  EXPECT_TRUE(answered_soon(host_probe)) << "a refusal is an answer";
  EXPECT_FALSE(host_probe.answered()) << "each counts once";
}

TEST(HostProbe, WithoutAReplyThereIsNoAnswer) {
  const Listener listener = listen_on({"127.0.0.1", 0}, Secret::random());
  const Joined stream(listener);
  ASSERT_EQ(::listen(listener.fd.get(), 0), 0);
  const Joined first(listener);
  std::vector<Fd> crowd;
  const SocketAddress to = SocketAddress::of(listener.address);
  for (int i = 0; i < 4; ++i) {  // a full accept queue drops SYNs
    crowd.push_back(open_socket(AF_INET));
    ::connect(crowd.back().get(), to.get(), to.length);
  }
  HostProbe host_probe;
  host_probe.probe(stream.near.get());
  EXPECT_FALSE(answered_soon(host_probe));
  host_probe.probe(-1);
  EXPECT_FALSE(host_probe.answered());
}

}  // namespace cohort::net
