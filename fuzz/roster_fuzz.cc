// Messages of a worker to the rendezvous, and of the rendezvous to the workers. The first byte says which of the two the rest is.
// Whatever the bytes: refused with Kind::corrupt, or a value that makes the very same bytes again.
#include <algorithm>

#include "cohort/base/error.h"
#include "cohort/group/roster.h"

using namespace cohort;
using namespace cohort::group;

namespace {

void expect_same(ConstBytes bytes, const std::vector<std::byte>& again) {
  if (!std::ranges::equal(bytes, again)) __builtin_trap();
}

void roster(ConstBytes bytes) {
  const Roster roster = decode_roster(bytes);
  for (int r = 0; r < roster.size(); ++r)
    if (roster.members[static_cast<std::size_t>(r)].rank != Rank{r}) __builtin_trap();
  expect_same(bytes, encode(roster));
}

void join(ConstBytes bytes) {
  const Join join = decode_join(bytes);
  if (join.member.rank.value < 0 || join.member.pid < 0) __builtin_trap();
  expect_same(bytes, encode(join));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* input, std::size_t size) {
  if (size == 0) return 0;
  const ConstBytes bytes = std::as_bytes(std::span(input + 1, size - 1));
  try {
    (input[0] & 1) != 0 ? roster(bytes) : join(bytes);
  } catch (const Failure& f) {
    if (f.kind() != Kind::corrupt) __builtin_trap();
  }
  return 0;
}
