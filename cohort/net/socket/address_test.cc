#include "cohort/net/socket/address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/base/error.h"

namespace cohort::net {
namespace {

TEST(Address, RoundTripsThroughText) {
  for (const char* text : {"127.0.0.1:0", "127.0.0.1:65535", "[::1]:40123", "node7.cluster:1", "unix:@cohort-7", "unix:/tmp/x.sock"})
    EXPECT_EQ(Address::parse(text).text(), text);
}

TEST(Address, RefusesTextThatIsNoAddressAndSaysWhy) {
  for (const char* text :
       {"", ":", "host", ":1", "host:", "host:65536", "host:-1", "host:1x", "::1:80", "[::1:80", "a b:1", "unix:", "[]:1"}) {
    try {
      Address::parse(text);
      ADD_FAILURE() << "'" << text << "' was taken for an address";
    } catch (const Failure& f) {
      EXPECT_EQ(f.kind(), Kind::usage);
      EXPECT_THAT(f.what(), testing::HasSubstr("is no address: "));
    }
  }
}

TEST(Address, RefusesAUnixNameThatDoesNotFit) {
  EXPECT_NO_THROW(Address::parse("unix:@" + std::string(106, 'x')));
  EXPECT_THROW(Address::parse("unix:@" + std::string(107, 'x')), Failure);
}

TEST(Address, KnowsLoopbackByNumber) {
  for (const char* text : {"127.0.0.1:1", "127.9.9.9:1", "localhost:1", "[::1]:1", "unix:@x"})
    EXPECT_TRUE(Address::parse(text).is_loopback()) << text;
  for (const char* text : {"0.0.0.0:1", "128.0.0.1:1", "[::]:1", "example.org:1", "127.evil.org:1"})
    EXPECT_FALSE(Address::parse(text).is_loopback()) << text;
}

TEST(Address, RoundTripsThroughASocketAddress) {
  for (const char* text : {"127.0.0.1:9", "[::1]:9", "unix:@cohort", "unix:/tmp/cohort.sock"})
    EXPECT_EQ(SocketAddress::of(Address::parse(text)).address().text(), text);
  EXPECT_EQ(SocketAddress::of(Address::parse("localhost:9")).address().text(), "127.0.0.1:9");
}

}  // namespace
}  // namespace cohort::net
