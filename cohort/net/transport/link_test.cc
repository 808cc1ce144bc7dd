#include "cohort/net/transport/link.h"

#include <gtest/gtest.h>

#include "cohort/base/error.h"

namespace cohort::net {
namespace {

// Times out once; whether it has ended by the next look is up to the test.
class Late final : public Pending::State {
 public:
  Late(bool ends, bool fails) : ends_(ends), fails_(fails) {}
  void wait(Deadline) override {
    if (waits_++ == 0) throw_failure(Kind::timeout, "past its deadline");
    if (fails_) throw_failure(Kind::peer_lost, "rank 1 died");
  }
  bool poll() override { return ends_; }
  bool done() const override { return ends_; }
  void detach() override {}

 private:
  const bool ends_, fails_;
  int waits_ = 0;
};

TEST(Pending, ADeadlineThatPassesIsNoFailureAndTheWaitCanGoOn) {
  Pending pending{std::make_shared<Late>(false, false)};
  EXPECT_FALSE(pending.wait_until(Deadline::in(0s)));
  EXPECT_TRUE(pending.wait_until(Deadline::in(0s)));
}

TEST(Pending, WhatCompletesAtTheDeadlineHasSucceeded) {
  Pending pending{std::make_shared<Late>(true, false)};
  EXPECT_TRUE(pending.wait_until(Deadline::in(0s)));
}

TEST(Pending, WhatFailsAtTheDeadlineSaysWhy) {
  Pending pending{std::make_shared<Late>(true, true)};
  try {
    pending.wait_until(Deadline::in(0s));
    FAIL() << "nothing was thrown";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.kind(), Kind::peer_lost);
  }
}

}  // namespace
}  // namespace cohort::net
