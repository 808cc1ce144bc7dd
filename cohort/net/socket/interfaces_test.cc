#include "cohort/net/socket/interfaces.h"

#include <gtest/gtest.h>

namespace cohort::net {
namespace {

TEST(Interfaces, TheSourceAddressForLoopbackIsLoopback) {
  EXPECT_EQ(address_towards({"127.0.0.1", 9}), "127.0.0.1");
  EXPECT_EQ(address_towards(Address::parse("unix:@cohort.test")), "127.0.0.1");
}

TEST(Interfaces, TheSourceAddressForAnAddressOfThisHostIsThatAddress) {
  for (const Interface& i : list_interfaces()) EXPECT_EQ(address_towards({i.address, 9}), i.address) << i.name;
}

}  // namespace
}  // namespace cohort::net
