#include "cohort/net/auth/dialer.h"

#include <gtest/gtest.h>
#include <poll.h>

#include "cohort/base/slowdown.h"
#include "cohort/net/auth/testing.h"

namespace cohort::net {
namespace {

TEST(Dialer, RetriesSoonWhenNothingAnswers) {
  const Secret secret = Secret::random();
  const Listener listener = listen_on({"127.0.0.1", 0}, secret);
  ASSERT_EQ(::listen(listener.fd.get(), 0), 0);  // room for one
  const auto others = raw_connections(listener.address, 1);
  Dialer dialer(listener.address, secret, test_hello(1), {}, soon());
  EXPECT_FALSE(dialer.advance());
  const int first = local_address(dialer.fd()).port;
  const auto began = Clock::now();
  while (local_address(dialer.fd()).port == first && Clock::now() - began < 10s * slowdown()) {
    pollfd p{dialer.fd(), dialer.events(), 0};
    poll(&p, 1, dialer.look_again().left_ms());
    EXPECT_FALSE(dialer.advance());
  }
  EXPECT_LT(Clock::now() - began, 0.8s * slowdown()) << "the kernel itself retransmits after a second";
  EXPECT_FALSE(dialer.unreachable_for(5s));
  EXPECT_TRUE(dialer.unreachable_for(0.05s)) << "a new attempt is no answer";
}

}  // namespace
}  // namespace cohort::net
