// For tests: what a call failed with. EXPECT_THAT(failure_of([&] { parse_bytes("x"); }).what, HasSubstr("'x'"));
#pragma once
#include "cohort/base/error.h"

namespace cohort {

template <class Call>
Error failure_of(Call&& call) {
  try {
    call();
  } catch (const Failure& failure) {
    return failure.error();
  }
  return {Kind::bug, "(it did not fail)", kNoRank};
}

}  // namespace cohort
