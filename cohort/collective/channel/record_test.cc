#include "cohort/collective/channel/record.h"

#include <gtest/gtest.h>

#include <cstring>

namespace cohort::collective {
namespace {

TEST(ChannelRecord, IsReadBackAsItWasWritten) {
  const Record small{.kind = Record::Kind::announce_inline, .tag = 7, .id = 9, .length = 3};
  const std::vector<std::byte> payload{std::byte{1}, std::byte{2}, std::byte{3}};
  const auto bytes = encode(small, payload);
  const auto back = decode(bytes);
  ASSERT_TRUE(back);
  EXPECT_EQ(std::memcmp(&*back, &small, sizeof small), 0);
  EXPECT_TRUE(std::equal(payload.begin(), payload.end(), bytes.begin() + sizeof small, bytes.end()));
  EXPECT_TRUE(decode(encode({.kind = Record::Kind::close})));
}

TEST(ChannelRecord, OfAnyOtherLengthOrKindIsNone) {
  const Record small{.kind = Record::Kind::announce_inline, .length = 3};
  const std::vector<std::byte> payload(3);
  auto bytes = encode(small, payload);
  for (std::size_t length = 0; length < bytes.size(); ++length) EXPECT_FALSE(decode(ConstBytes(bytes).first(length))) << length;
  bytes.push_back({});
  EXPECT_FALSE(decode(bytes));
  auto grant = encode({.kind = Record::Kind::grant, .length = 3});
  grant.resize(grant.size() + 3);
  EXPECT_FALSE(decode(grant)) << "only an inline message has bytes";
  auto unknown = encode({.kind = Record::Kind::close});
  unknown[0] = std::byte{kRecordKinds};
  EXPECT_FALSE(decode(unknown));
}

}  // namespace
}  // namespace cohort::collective
