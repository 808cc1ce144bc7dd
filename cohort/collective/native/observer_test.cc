#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <mutex>
#include <utility>

#include "cohort/collective/ranks.h"

namespace cohort::collective {
namespace {

using ::testing::ElementsAre;

// Writes down what began, as "all_reduce gradients 16", and what is in flight.
class Recorder final : public OperationObserver {
 public:
  void begin(const RunningOperation& operation) noexcept override {
    const std::lock_guard lock(mutex_);
    began_.push_back(std::string(operation.collective) + " " + std::string(operation.name) + " " + std::to_string(operation.bytes));
    running_.push_back(&operation);
  }
  void end(const RunningOperation& operation) noexcept override {
    const std::lock_guard lock(mutex_);
    std::erase(running_, &operation);
  }
  std::vector<std::string> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(began_, {});
  }
  std::size_t running() {
    const std::lock_guard lock(mutex_);
    return running_.size();
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> began_;
  std::vector<const RunningOperation*> running_;
};

struct Buffers {
  std::array<float, 2> half{};
  std::array<float, 4> all{}, other{};
  Piece part() { return piece(std::span<float>(half)); }
  Piece whole() { return piece(std::span<float>(all)); }
  Piece output() { return piece(std::span<float>(other)); }
};

TEST(OperationObserver, SeesEveryCollectiveBeginAndEnd) {
  run_ranks(2, [](Communicator& comm) {
    Recorder recorder;
    Buffers b;
    comm.observe(&recorder);
    const Piece pieces[] = {b.part(), b.whole()};
    comm.all_reduce(b.whole(), Op::sum, {.name = "one"});
    comm.all_reduce(pieces, Op::sum, {.name = "group"});
    comm.reduce_scatter(b.whole(), b.part(), Op::sum, {.name = "a"});
    comm.all_gather(b.part(), b.whole(), {.name = "b"});
    comm.broadcast(b.part(), Rank{0}, {.name = "c"});
    comm.reduce(b.whole(), b.output(), Op::sum, Rank{0}, {.name = "d"});
    comm.gather(b.part(), b.whole(), Rank{0}, {.name = "e"});
    comm.scatter(b.whole(), b.part(), Rank{0}, {.name = "f"});
    comm.all_to_all(b.whole(), b.output(), {.name = "g"});
    comm.barrier({.name = "h"});
    EXPECT_EQ(recorder.running(), 0u);
    EXPECT_THAT(recorder.take(),
                ElementsAre("all_reduce one 16", "all_reduce group 24", "reduce_scatter a 16", "all_gather b 16", "broadcast c 8",
                            "reduce d 16", "gather e 8", "scatter f 8", "all_to_all g 16", "barrier h 0"));
  });
}

TEST(OperationObserver, SeesPointToPoint) {
  run_ranks(2, [](Communicator& comm) {
    Recorder recorder;
    Buffers b;
    comm.observe(&recorder);
    if (comm.rank() == Rank{0}) {
      comm.send(b.part(), Rank{1}, 0, {.name = "x"});
      comm.send(b.part(), Rank{1}, 1, {.name = "y"});
      EXPECT_THAT(recorder.take(), ElementsAre("send x 8", "send y 8"));
    } else {
      comm.recv(b.part(), Rank{0}, 0, {.name = "x"});
      comm.next(1, 1, {.name = "y"});
      EXPECT_THAT(recorder.take(), ElementsAre("recv x 8", "next y 0"));
    }
    EXPECT_EQ(recorder.running(), 0u);
  });
}

TEST(OperationObserver, SeesChildrenAlsoThoseSplitOffBefore) {
  run_ranks(2, [](Communicator& comm) {
    Recorder recorder;
    const auto before = comm.split(0, 0, {.name = "not observed"});
    comm.observe(&recorder);
    const auto after = comm.split(0, 0, {.name = "s"});
    const Rank all_ranks[] = {Rank{0}, Rank{1}};
    const auto listed = comm.subset(all_ranks, {.name = "t"});
    before->barrier({.name = "1"});
    after->barrier({.name = "2"});
    listed->barrier({.name = "3"});
    EXPECT_THAT(recorder.take(), ElementsAre("split s 0", "subset t 0", "barrier 1 0", "barrier 2 0", "barrier 3 0"));
    comm.observe(nullptr);
    before->barrier();
    comm.barrier();
    EXPECT_THAT(recorder.take(), ElementsAre());
  });
}

TEST(OperationObserver, SeesTheEndOfWhatFails) {
  run_ranks(1, [](Communicator& comm) {
    Recorder recorder;
    Buffers b;
    comm.observe(&recorder);
    EXPECT_THROW(comm.broadcast(b.part(), Rank{7}, {.name = "no such root"}), Failure);
    EXPECT_THAT(recorder.take(), ElementsAre("broadcast no such root 8"));
    EXPECT_EQ(recorder.running(), 0u);
  });
}

}  // namespace
}  // namespace cohort::collective
