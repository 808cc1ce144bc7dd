#include "cohort/base/pages.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <limits>
#include <vector>

#include "cohort/base/bytes.h"
#include "cohort/base/failure_of.h"

namespace cohort {
namespace {

TEST(HugePages, AreZeroedAndOnABoundaryWhateverTheSize) {
  for (const std::size_t bytes : {0UL, 1UL, 4097UL, 2_MiB, 2_MiB + 1}) {
    const auto pages = huge_pages(bytes);
    const auto* const data = static_cast<const std::byte*>(pages.get());
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % 2_MiB, 0U) << bytes;
    EXPECT_TRUE(std::all_of(data, data + bytes, [](std::byte b) { return b == std::byte{0}; })) << bytes;
  }
}

TEST(HugePages, AreResidentBeforeTheyAreUsed) {
  const auto pages = huge_pages(3_MiB);
  std::vector<unsigned char> resident(3_MiB / kPageBytes);
  ASSERT_EQ(mincore(pages.get(), 3_MiB, resident.data()), 0);
  EXPECT_TRUE(std::all_of(resident.begin(), resident.end(), [](unsigned char page) { return (page & 1) != 0; }));
}

TEST(HugePages, GoBackWithTheirLastOwner) {
  auto pages = huge_pages(2_MiB);
  auto shared = pages;
  void* const data = pages.get();
  unsigned char resident = 0;
  pages.reset();
  EXPECT_EQ(mincore(data, kPageBytes, &resident), 0) << "one owner is left";
  shared.reset();
  EXPECT_EQ(mincore(data, kPageBytes, &resident), -1);
  EXPECT_EQ(errno, ENOMEM) << "nothing is mapped there any more";
}

TEST(HugePages, RefuseWhatNoMachineHas) {
  for (const std::size_t bytes : {std::numeric_limits<std::size_t>::max(), std::size_t{1} << 60, std::size_t{1} << 47})
    EXPECT_EQ(failure_of([&] { huge_pages(bytes); }).kind, Kind::system) << bytes;
}

}  // namespace
}  // namespace cohort
