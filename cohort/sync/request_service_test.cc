#include "cohort/sync/request_service.h"

#include <gtest/gtest.h>

#include <future>

#include "cohort/collective/ranks.h"

namespace cohort::sync {
namespace {

using collective::Communicator;
using Form = RequestService::Form;

constexpr Seconds kLong{60};
constexpr std::size_t kSmall = 3, kLarge = 100000;  // the second is above what is sent unasked

Piece piece_of(std::vector<double>& values) { return collective::piece(std::span(values)); }

// Rank 1 answers all others, as `answer` says, until `asks` has returned on every other rank.
void with_service(int ranks, const RequestService::Answer& answer, const std::function<void(Communicator&, RequestService&)>& asks,
                  Seconds patience = kLong) {
  collective::run_ranks(ranks, [&](Communicator& comm) {
    const bool serves = comm.rank().value == 1;
    std::vector<Rank> askers;
    for (int r = 0; serves && r < ranks; ++r)
      if (r != 1) askers.push_back(Rank{r});
    RequestService service(comm.channel(), askers, {Form{kSmall, Dtype::f64}, Form{kLarge, Dtype::f64}}, answer, patience);
    if (!serves) asks(comm, service);
    comm.barrier({});
  });
}

bool add_one(std::uint32_t, const Piece& values) {
  for (std::size_t i = 0; i < values.count; ++i) static_cast<double*>(values.data)[i] += 1;
  return true;
}

TEST(RequestService, AnswersWithWhatTheAnswerLeftInPlace) {
  with_service(4, add_one, [](Communicator& comm, RequestService& service) {
    for (int turn = 0; turn < 50; ++turn)
      for (const std::uint32_t index : {0U, 1U}) {
        std::vector<double> sent(index == 0 ? kSmall : kLarge, comm.rank().value + turn), came(sent.size());
        const auto request = service.ask(Rank{1}, index, piece_of(sent), piece_of(came));
        ASSERT_EQ(request->wait(Deadline::in(kLong)), Outcome::answered);
        EXPECT_EQ(came.back(), sent.back() + 1);
        EXPECT_EQ(request->wait(Deadline::in(kLong)), Outcome::answered) << "again: the same";
      }
  });
}

TEST(RequestService, WhatIsRefusedLeavesTheAskerAsItWasAndTheNextRequestIsAnother) {
  int asked = 0;
  with_service(
      2, [&](std::uint32_t index, const Piece& values) { return ++asked % 2 == 0 && add_one(index, values); },
      [](Communicator&, RequestService& service) {
        for (int turn = 0; turn < 100; ++turn) {
          std::vector<double> sent(turn % 4 < 2 ? kSmall : kLarge, turn), came(sent.size(), -1);
          const auto request = service.ask(Rank{1}, turn % 4 < 2 ? 0 : 1, piece_of(sent), piece_of(came));
          EXPECT_EQ(request->wait(Deadline::in(kLong)), turn % 2 == 0 ? Outcome::refused : Outcome::answered);
          EXPECT_EQ(came[0], turn % 2 == 0 ? -1 : turn + 1);
        }
      });
}

TEST(RequestService, WhatTheAnswerThrowsRefusesThatRequestAlone) {
  int asked = 0;
  with_service(
      2,
      [&](std::uint32_t index, const Piece& values) {
        if (++asked == 1) throw_failure(Kind::bug, "on purpose");
        return add_one(index, values);
      },
      [](Communicator&, RequestService& service) {
        std::vector<double> sent(kSmall), came(kSmall);
        EXPECT_EQ(service.ask(Rank{1}, 0, piece_of(sent), piece_of(came))->wait(Deadline::in(kLong)), Outcome::refused);
        EXPECT_EQ(service.ask(Rank{1}, 0, piece_of(sent), piece_of(came))->wait(Deadline::in(kLong)), Outcome::answered);
      });
}

TEST(RequestService, OfABucketThatIsNotThereOrOfAnotherSizeItRefuses) {
  with_service(2, add_one, [](Communicator&, RequestService& service) {
    std::vector<double> sent(kSmall + 1), came(kSmall + 1), right(kSmall), into(kSmall);
    EXPECT_EQ(service.ask(Rank{1}, 7, piece_of(sent), piece_of(came))->wait(Deadline::in(kLong)), Outcome::refused);
    EXPECT_EQ(service.ask(Rank{1}, 0, piece_of(sent), piece_of(came))->wait(Deadline::in(kLong)), Outcome::refused);
    EXPECT_EQ(service.ask(Rank{1}, 0, piece_of(right), piece_of(into))->wait(Deadline::in(kLong)), Outcome::answered);
  });
}

// The asker goes on meanwhile, and the answer counts when it comes.
TEST(RequestService, ALateAnswerIsStillUnderWayAndComes) {
  std::promise<void> now;
  const std::shared_future<void> open = now.get_future().share();
  with_service(
      2,
      [&](std::uint32_t index, const Piece& values) {
        return open.wait_for(std::chrono::seconds(60)) == std::future_status::ready && add_one(index, values);
      },
      [&](Communicator&, RequestService& service) {
        std::vector<double> sent(kLarge, 5), came(kLarge);
        const auto request = service.ask(Rank{1}, 1, piece_of(sent), piece_of(came));
        EXPECT_EQ(request->wait(Deadline::in(Seconds{0.01})), Outcome::pending);
        now.set_value();
        EXPECT_EQ(request->wait(Deadline::in(kLong)), Outcome::answered);
        EXPECT_EQ(came.back(), 6);
      });
}

TEST(RequestService, AServiceThatIsGoneIsLostAndOthersGoOn) {
  collective::run_ranks(3, [](Communicator& comm) {
    std::vector<Rank> askers;
    if (comm.rank().value > 0) askers = {Rank{0}};
    auto service = std::make_unique<RequestService>(comm.channel(), askers, std::vector<Form>{{kSmall, Dtype::f64}}, add_one, kLong);
    if (comm.rank().value == 2) service.reset();
    comm.barrier({});
    if (comm.rank().value == 0) {
      std::vector<double> sent(kSmall), came(kSmall);
      EXPECT_EQ(service->ask(Rank{2}, 0, piece_of(sent), piece_of(came))->wait(Deadline::in(kLong)), Outcome::lost);
      EXPECT_EQ(service->ask(Rank{1}, 0, piece_of(sent), piece_of(came))->wait(Deadline::in(kLong)), Outcome::answered);
    }
    comm.barrier({});
  });
}

TEST(RequestService, AfterAnAbortEveryRequestIsLost) {
  EXPECT_THROW(collective::run_ranks(
                   2,
                   [](Communicator& comm) {
                     std::vector<Rank> askers;
                     if (comm.rank().value == 1) askers = {Rank{0}};
                     RequestService service(comm.channel(), askers, {Form{kSmall, Dtype::f64}}, add_one, kLong);
                     comm.barrier({});
                     comm.abort({Kind::aborted, "on purpose", comm.rank()});
                     std::vector<double> sent(kSmall), came(kSmall);
                     for (int turn = 0; turn < 100; ++turn)
                       EXPECT_EQ(service.ask(Rank{1 - comm.rank().value}, 0, piece_of(sent), piece_of(came))->wait(Deadline::in(kLong)),
                                 Outcome::lost);
                     comm.barrier({});
                   }),
               Failure);
}

// One that asked and went does not keep the service from the others.
TEST(RequestService, AnAskerThatIsGoneHoldsUpNobody) {
  collective::run_ranks(3, [](Communicator& comm) {
    std::vector<Rank> askers;
    if (comm.rank().value == 1) askers = {Rank{0}, Rank{2}};
    auto service = std::make_unique<RequestService>(comm.channel(), askers, std::vector<Form>{{kLarge, Dtype::f64}}, add_one, kLong);
    std::vector<double> sent(kLarge), came(kLarge);
    if (comm.rank().value == 2) {
      service->ask(Rank{1}, 0, piece_of(sent), piece_of(came)).reset();
      service.reset();
    }
    comm.barrier({});
    if (comm.rank().value == 0) {
      EXPECT_EQ(service->ask(Rank{1}, 0, piece_of(sent), piece_of(came))->wait(Deadline::in(kLong)), Outcome::answered);
    }
    comm.barrier({});
  });
}

}  // namespace
}  // namespace cohort::sync
