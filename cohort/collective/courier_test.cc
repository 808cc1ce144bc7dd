#include "cohort/collective/courier.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "cohort/base/bytes.h"

namespace cohort::collective {
namespace {

std::vector<std::byte> counted(std::size_t bytes) {
  std::vector<std::byte> made(bytes);
  for (std::size_t i = 0; i < bytes; ++i) made[i] = static_cast<std::byte>(i * 131 + i / 251);
  return made;
}

// Either way: around the cache, and through it once enough pages went quickly.
void carry(bool quickly) {
  Courier courier;
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{63}, kPageBytes - 1, kPageBytes, kPageBytes + 1, 128_KiB - 1,
                                  128_KiB, 128_KiB + 7, 1_MiB})
    for (const std::size_t offset : {std::size_t{0}, std::size_t{1}, std::size_t{16}, std::size_t{60}}) {
      for (int page = 0; page < 4; ++page) courier.saw(quickly ? 120ns : 1us);
      const auto sent = counted(bytes + offset);
      std::vector<std::byte> stage(bytes + offset + 64, std::byte{0xEE});
      courier.put(stage.data() + offset, sent.data() + offset, bytes);
      const auto first = stage.begin() + static_cast<std::ptrdiff_t>(offset);
      const auto last = first + static_cast<std::ptrdiff_t>(bytes);
      EXPECT_TRUE(std::equal(first, last, sent.begin() + static_cast<std::ptrdiff_t>(offset))) << bytes << " bytes at offset " << offset;
      const auto untouched = [](std::byte b) { return b == std::byte{0xEE}; };
      EXPECT_TRUE(std::all_of(stage.begin(), first, untouched) && std::all_of(last, stage.end(), untouched));
    }
}

TEST(Courier, CarriesEveryByteAndNoOtherFromAnyOffset) {
  carry(false);
  carry(true);
}

TEST(Courier, BelievesInNearCoresAfterTwoQuickPagesAndForgivesALateOne) {
  Courier courier;
  EXPECT_FALSE(courier.near());
  courier.saw(120ns);
  EXPECT_FALSE(courier.near());
  courier.saw(120ns);
  EXPECT_TRUE(courier.near());
  courier.saw(120ns);
  courier.saw(2ms);  // interrupted
  EXPECT_TRUE(courier.near());
  courier.saw(1us);  // the cores have wandered apart
  EXPECT_FALSE(courier.near());
}

TEST(Courier, NeverDoubtsForLong) {
  Courier courier;
  for (int i = 0; i < 1000; ++i) courier.saw(120ns);
  for (int i = 0; i < 3; ++i) courier.saw(1us);
  EXPECT_FALSE(courier.near());
  for (int i = 0; i < 1000; ++i) courier.saw(1us);
  for (int i = 0; i < 2; ++i) courier.saw(120ns);
  EXPECT_TRUE(courier.near());
}

}  // namespace
}  // namespace cohort::collective
