#include "cohort/net/socket/listener.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/net/socket/testing.h"

namespace cohort::net {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Listener, NeedsASecretBeyondLoopback) {
  for (const char* address : {"0.0.0.0:0", "[::]:0"}) {
    const Error error = failure_of([&] { listen_on(Address::parse(address), {}); });
    EXPECT_EQ(error.kind, Kind::usage);
    EXPECT_THAT(error.what, HasSubstr("without a job secret"));
    EXPECT_NO_THROW(listen_on(Address::parse(address), Secret::random()));
  }
  for (const char* address : {"127.0.0.1:0", "localhost:0", "[::1]:0", "unix:@cohort-listen-test"})
    EXPECT_NO_THROW(listen_on(Address::parse(address), {}));
}

TEST(Listener, ReportsAnAddressInUse) {
  const Listener first = listen_on({"127.0.0.1", 0}, {});
  EXPECT_NE(first.address.port, 0);
  EXPECT_THAT(failure_of([&] { listen_on(first.address, {}); }).what, AllOf(HasSubstr(first.address.text()), HasSubstr("in use")));
}

TEST(Listener, ReturnsNothingWhenNobodyConnects) {
  const Listener listener = listen_on({"127.0.0.1", 0}, {});
  EXPECT_FALSE(accept_one(listener, Deadline::in(10ms)));
}

}  // namespace
}  // namespace cohort::net
