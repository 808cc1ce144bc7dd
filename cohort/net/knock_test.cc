#include "cohort/net/knock.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

#include "cohort/net/conformance.h"
#include "cohort/net/socket.h"
#include "cohort/net/wire.h"

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

bool answered_soon(Knock& knock) {
  for (const Deadline end = Deadline::in(1s); !end.passed(); std::this_thread::sleep_for(1ms))
    if (knock.answered()) return true;
  return false;
}

}  // namespace

TEST(Knock, AHostAnswersWhetherAnybodyListensOrNot) {
  Listener listener = listen_on({"127.0.0.1", 0}, Secret::random());
  const Joined stream(listener);
  ASSERT_TRUE(stream.far);
  Knock knock;
  EXPECT_FALSE(knock.answered()) << "nobody was called";
  knock.call(stream.near.get());
  EXPECT_TRUE(answered_soon(knock));
  listener.fd.reset();
  knock = {};
  knock.call(stream.near.get());
  EXPECT_TRUE(answered_soon(knock)) << "a refusal is an answer";
  EXPECT_FALSE(knock.answered()) << "each counts once";
}

TEST(Knock, WhereNothingComesBackNobodyAnswers) {
  const Listener listener = listen_on({"127.0.0.1", 0}, Secret::random());
  const Joined stream(listener);
  ASSERT_EQ(::listen(listener.fd.get(), 0), 0);
  const Joined first(listener);
  std::vector<Fd> crowd;
  const SocketAddress to = SocketAddress::of(listener.address);
  for (int i = 0; i < 4; ++i) {  // a queue that is full drops calls
    crowd.push_back(open_socket(AF_INET));
    ::connect(crowd.back().get(), to.get(), to.length);
  }
  Knock knock;
  knock.call(stream.near.get());
  EXPECT_FALSE(answered_soon(knock));
  knock.call(-1);
  EXPECT_FALSE(knock.answered());
}

}  // namespace cohort::net
