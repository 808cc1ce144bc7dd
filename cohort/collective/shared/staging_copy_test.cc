#include "cohort/collective/shared/staging_copy.h"

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
  StagingCopy staging_copy;
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{63}, kPageBytes - 1, kPageBytes, kPageBytes + 1, 128_KiB - 1,
                                  128_KiB, 128_KiB + 7, 1_MiB})
    for (const std::size_t offset : {std::size_t{0}, std::size_t{1}, std::size_t{16}, std::size_t{60}}) {
      for (int page = 0; page < 4; ++page) staging_copy.record(quickly ? 120ns : 1us);
      const auto sent = counted(bytes + offset);
      std::vector<std::byte> stage(bytes + offset + 64, std::byte{0xEE});
      staging_copy.put(stage.data() + offset, sent.data() + offset, bytes);
      const auto first = stage.begin() + static_cast<std::ptrdiff_t>(offset);
      const auto last = first + static_cast<std::ptrdiff_t>(bytes);
      EXPECT_TRUE(std::equal(first, last, sent.begin() + static_cast<std::ptrdiff_t>(offset))) << bytes << " bytes at offset " << offset;
      const auto untouched = [](std::byte b) { return b == std::byte{0xEE}; };
      EXPECT_TRUE(std::all_of(stage.begin(), first, untouched) && std::all_of(last, stage.end(), untouched));
    }
}

TEST(StagingCopy, CarriesEveryByteAndNoOtherFromAnyOffset) {
  carry(false);
  carry(true);
}

TEST(StagingCopy, BelievesInNearCoresAfterTwoQuickPagesAndForgivesALateOne) {
  StagingCopy staging_copy;
  EXPECT_FALSE(staging_copy.near());
  staging_copy.record(120ns);
  EXPECT_FALSE(staging_copy.near());
  staging_copy.record(120ns);
  EXPECT_TRUE(staging_copy.near());
  staging_copy.record(120ns);
  staging_copy.record(2ms);  // interrupted
  EXPECT_TRUE(staging_copy.near());
  staging_copy.record(1us);  // the virtual cores have migrated apart
  EXPECT_FALSE(staging_copy.near());
}

TEST(StagingCopy, NeverDoubtsForLong) {
  StagingCopy staging_copy;
  for (int i = 0; i < 1000; ++i) staging_copy.record(120ns);
  for (int i = 0; i < 3; ++i) staging_copy.record(1us);
  EXPECT_FALSE(staging_copy.near());
  for (int i = 0; i < 1000; ++i) staging_copy.record(1us);
  for (int i = 0; i < 2; ++i) staging_copy.record(120ns);
  EXPECT_TRUE(staging_copy.near());
}

}  // namespace
}  // namespace cohort::collective
