// What a lost rank costs is what the strategy's guarantee says, wherever in a step it is lost: in every operation in turn, where one
// survivor missed how it ended, and with every message that it would still send. Ranks are threads, and the job commits every step by a
// vote of its own, as an elastic one does (train/loop/elastic_entry.cc): survivors end the step that one of them knows to be decided.
#include <fmt/format.h>

#include <condition_variable>
#include <mutex>
#include <set>

#include "cohort/collective/failing_communicator.h"
#include "cohort/engine/testing.h"
#include "cohort/net/transport/faulty.h"
#include "cohort/sync/strategy_row.h"

namespace cohort::engine {
namespace {

using collective::Communicator;
using collective::FailingCommunicator;

constexpr int kRanks = 3;
constexpr int kBefore = 2, kLast = 4;  // the rank is lost after step 2, in step 3, in which no round ends, or in 4, in which one does

// What one rank has.
struct RankState {
  int step = 0;
  std::int64_t rounds = 0;
  std::map<std::string, at::Tensor> items;  // by group, parameter, state and place
  std::map<std::string, std::pair<Share, Merge>> becomes;
};

std::string key_of(const StateItem& item) { return fmt::format("{}/{}@{}", item.group, item.key(), item.run.first); }
bool in_group(const std::string& key, const char* group) { return key.starts_with(std::string(group) + "/"); }

RankState state_of(const Engine& engine, int step) {
  RankState state{step, engine.rounds(), {}, {}};
  engine.visit([&](const StateItem& item) {
    state.items[key_of(item)] = borrowed(item.values).clone();
    state.becomes[key_of(item)] = {item.share, item.merge};
  });
  return state;
}

// Of one group, or all. What begins anew on other ranks (Merge::drop) may be anything in a step that is interrupted: dropped says not to
// look.
enum class Dropped : std::uint8_t { same, any };
void expect_same_items(const RankState& found, const RankState& expected, const std::string& what, const char* group = nullptr,
                       Dropped dropped = Dropped::same) {
  ASSERT_EQ(found.items.size(), expected.items.size()) << what;
  for (const auto& [key, t] : expected.items) {
    if (group != nullptr && !in_group(key, group)) continue;
    if (dropped == Dropped::any && expected.becomes.at(key).second == Merge::drop) continue;
    EXPECT_TRUE(at::equal(found.items.at(key), t)) << what << ": " << key;
  }
}

void expect_finite(const RankState& state, const std::string& what) {
  ASSERT_FALSE(state.items.empty()) << what;
  for (const auto& [key, t] : state.items) EXPECT_TRUE(at::isfinite(t).all().item<bool>()) << what << ": " << key;
}

TrainCase of_job(const std::string& sync, const std::string& codec = "none") {
  TrainCase train_case{.type = codec == "none" ? at::kDouble : at::kFloat, .rule = "adam(lr=0.01)", .steps = kLast, .rows = {4, 4, 4}};
  train_case.options.strategy = sync;
  train_case.options.codec = codec;
  train_case.options.bucket = ByteSize{300};
  return train_case;
}

void commit_together(Engine& engine, Communicator& comm) {
  engine.before_update([&comm] {
    std::int32_t ready = 1;
    comm.all_reduce(collective::piece(std::span(&ready, 1)), collective::Op::sum, {.name = "the job's commit"});
  });
}

// The states of all ranks after each step of a run in which nobody is lost: [step][rank]; and the operations after step 2.
struct Truth {
  std::vector<std::vector<RankState>> after = std::vector<std::vector<RankState>>(kLast + 2, std::vector<RankState>(kRanks));
  int operations = 0;
};

Truth truth_of(TrainCase train_case) {
  Truth truth;
  train_case.steps = kLast + 1;
  collective::run_ranks(kRanks, [&](Communicator& comm) {
    FailingCommunicator failing(comm);
    TrainCase mine = train_case;
    const auto me = static_cast<std::size_t>(comm.rank().value);
    mine.opened = [&](Engine& engine) { commit_together(engine, failing); };
    mine.after_finish = [&](const CallbackContext& c) {
      truth.after[static_cast<std::size_t>(c.step)][me] = state_of(c.engine, c.step);
      if (c.step == kBefore) failing.operations.clear();
      if (c.step == kLast && me == 0) truth.operations = static_cast<int>(failing.operations.size());
    };
    train_one_rank(mine, failing);
  });
  return truth;
}

// Survivors tell each other how far they are.
class Survivors {
 public:
  explicit Survivors(int count) : count_(count) {}
  void report(int step) {
    const std::lock_guard lock(mutex_);
    furthest_ = std::max(furthest_, step);
    ++reported_;
    changed_.notify_all();
  }
  int furthest(int mine) {
    report(mine);
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(60), [&] { return reported_ == count_; }));
    return furthest_;
  }

 private:
  const int count_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int reported_ = 0, furthest_ = 0;
};

struct RankLoss {
  int lost = 1;
  int at = -1;                  // the operation after step 2 that it does not take part in
  int missed = -1;              // another survivor does not learn how this one ended
  std::optional<int> messages;  // or: it sends so many to each peer, from the beginning of the job, and no more
  std::string text() const {
    return messages ? fmt::format("rank {} lost after {} messages", lost, *messages)
                    : fmt::format("rank {} lost in operation {}{}", lost, at, missed < 0 ? "" : ", one survivor missed the one before");
  }
};

// One survivor: ends the step that is decided somewhere, and shows what it has.
RankState end_step(Engine& engine, int done, Survivors& survivors) {
  const bool ended = engine.step_state() == StepState::decided;
  const int furthest = survivors.furthest(done + (ended ? 1 : 0));
  if (done < furthest) {
    EXPECT_NE(engine.step_state(), StepState::open) << "a step was decided without this rank";
    engine.finish_step_alone(engine.decision());  // also where it was in the middle of its updates
  }
  return state_of(engine, furthest);
}

// By rank; without items: the lost one, or all when it was not missed or was lost before the first step.
std::vector<RankState> survivors_of(const TrainCase& train_case, const RankLoss& loss) {
  std::vector<RankState> found(kRanks);
  Survivors survivors(kRanks - 1);
  const auto make_links = [&](int ranks) {
    auto links = net::loopback_world(ranks);
    for (std::size_t r = 0; loss.messages && r < links.size(); ++r) {
      const bool lost = static_cast<int>(r) == loss.lost;
      links[r] = net::faulty_peer_links(std::move(links[r]), {.cut_after = lost ? static_cast<std::uint64_t>(*loss.messages) : ~0ULL});
    }
    return links;
  };
  const auto rank = [&](Communicator& comm) {
    FailingCommunicator failing(comm);
    const int me = comm.rank().value;
    const bool lost = me == loss.lost, uninformed = me == (loss.lost + 1) % kRanks;
    int done = 0;
    bool in_step = false, reported = false;
    TrainCase mine = train_case;
    mine.steps = kLast + 1;
    mine.opened = [&](Engine& engine) {
      commit_together(engine, failing);
      failing.barrier({});  // who is in a step knows that all others came so far
    };
    mine.after_begin = [&](const CallbackContext&) { in_step = true; };
    mine.after_finish = [&](const CallbackContext& c) {
      done = c.step;
      in_step = false;
      if (c.step != kBefore) return;
      failing.operations.clear();
      if (lost) failing.dies_at = loss.at;
      if (uninformed) failing.misses_end_at = loss.missed;
    };
    mine.survived = [&](Engine& engine) {
      comm.abort({Kind::aborted, "this rank has met a failure", comm.rank()});  // or who waits for its messages would wait on
      reported = in_step && !lost;
      if (reported) found[static_cast<std::size_t>(me)] = end_step(engine, done, survivors);
    };
    try {
      train_one_rank(mine, failing);
    } catch (const collective::RankDies&) {
      EXPECT_TRUE(lost);
    } catch (const Failure&) {
      EXPECT_TRUE(loss.messages) << loss.text() << ": before the first step";
    }
    if (!reported && !lost) survivors.report(0);
  };
  try {
    collective::run_ranks(kRanks, rank, {}, make_links);
  } catch (const Failure& failure) {  // no communicator was opened
    EXPECT_TRUE(loss.messages) << failure.what();
  }
  return found;
}

// The survivors as a job of their own, each with what it had: as ElasticTrainer::receive_state().
std::vector<RankState> go_on(TrainCase train_case, const std::vector<RankState>& with) {
  std::vector<RankState> merged(with.size());
  train_case.rows.assign(with.size(), 4);
  train_case.steps = 2;
  collective::run_ranks(static_cast<int>(with.size()), [&](Communicator& comm) {
    const auto me = static_cast<std::size_t>(comm.rank().value);
    TrainCase mine = train_case;
    mine.opened = [&](Engine& engine) {
      engine.visit([&](const StateItem& item) { borrowed(item.values).copy_(with[me].items.at(key_of(item))); });
      engine.set_rounds(with[me].rounds);
      engine.merge_drifted_state(true);
      engine.publish_loaded_state();
      engine.start_at(with[me].step);
      merged[me] = state_of(engine, with[me].step);
    };
    mine.after_finish = [&](const CallbackContext& c) { expect_finite(state_of(c.engine, c.step), "afterwards"); };
    train_one_rank(mine, comm);
  });
  return merged;
}

// --- where the world commits a step: it is whole on all survivors, or not at all

using SyncAndCodec = std::pair<std::string, std::string>;
class LostRankOfStep : public testing::TestWithParam<SyncAndCodec> {};
INSTANTIATE_TEST_SUITE_P(Of, LostRankOfStep,
                         testing::Values(SyncAndCodec{"all_reduce", "none"}, SyncAndCodec{"all_reduce", "int8"},
                                         SyncAndCodec{"all_reduce", "topk(ratio=0.25)"}, SyncAndCodec{"zero(stage=1)", "topk(ratio=0.25)"}),
                         [](const auto& given) {
                           const auto word = [](const std::string& spec) { return spec.substr(0, spec.find('(')); };
                           return word(given.param.first) + "_" + word(given.param.second);
                         });

TEST_P(LostRankOfStep, CostsNothingOrTheStepOnAllSurvivors) {
  const TrainCase train_case = of_job(GetParam().first, GetParam().second);
  const Truth truth = truth_of(train_case);
  ASSERT_GE(truth.operations, 2 * 4) << "gradients of two buckets, the vote and the commit of each step";
  std::set<int> ends;
  for (int at = 0; at <= truth.operations; ++at)
    for (const int lost : {0, 1})
      for (const bool missed : {false, true}) {
        if (missed && at == truth.operations) continue;  // the one after it would come after the end of the run
        const RankLoss loss{.lost = lost, .at = at + (missed ? 1 : 0), .missed = missed ? at : -1};
        const auto found = survivors_of(train_case, loss);
        for (std::size_t r = 0; r < kRanks; ++r) {
          if (static_cast<int>(r) == lost) continue;
          expect_same_items(found[r], truth.after[static_cast<std::size_t>(found[r].step)][r], loss.text());
          ends.insert(found[r].step);
        }
      }
  EXPECT_THAT(ends, testing::ElementsAre(2, 3, 4)) << "some steps were decided, others not";
}

// --- where replicas drift

class LostRank : public testing::TestWithParam<const sync::StrategyRow*> {
 protected:
  static TrainCase train_case() { return of_job(std::string(sync::law_spec(*GetParam()))); }
  static sync::Guarantee guarantee() { return sync::make(sync::law_spec(*GetParam()))->semantics().guarantee; }

  // A rank has made a step and mixed, or made it and not mixed; its own update is whole.
  static void expect_whole_step(const RankState& found, std::size_t rank, const Truth& truth, const std::string& what) {
    const auto step = static_cast<std::size_t>(found.step);
    expect_finite(found, what);
    if (step == 0 || !GetParam()->whole_steps) return;
    const RankState& expected = truth.after[step][rank];
    if (found.rounds == expected.rounds) return expect_same_items(found, expected, what, nullptr, Dropped::any);
    EXPECT_EQ(found.rounds, expected.rounds - 1) << what;
    expect_same_items(found, expected, what + ", not mixed", "optimizer");
    if (step > 1) expect_same_items(found, truth.after[step - 1][rank], what + ", not mixed", "strategy", Dropped::any);
  }

  // All begin with the mean of those that count, and with what the strategy keeps of the same round.
  static void expect_merged(const std::vector<RankState>& had, const std::string& what) {
    std::int64_t most = 0;
    for (const auto& s : had) most = std::max(most, s.rounds);
    std::vector<const RankState*> count;
    for (const auto& s : had)
      if (s.rounds == most || guarantee() != sync::Guarantee::sync_round) count.push_back(&s);
    const auto merged = go_on(train_case(), had);
    for (const RankState& m : merged) {
      EXPECT_EQ(m.rounds, most) << what;
      expect_same_items(m, merged[0], what + ", merged");
      for (const auto& [key, t] : m.items) {
        at::Tensor mean = at::zeros_like(t);
        for (const RankState* s : count) mean += s->items.at(key) / static_cast<double>(count.size());
        const RankState& newest = *std::ranges::find(had, most, &RankState::rounds);
        const auto [share, merge] = m.becomes.at(key);
        if (merge == Merge::drop) continue;  // it begins anew, the same on all ranks
        const at::Tensor expected = share == Share::identical ? newest.items.at(key) : mean;
        EXPECT_LE((t - expected).abs().max().item<double>(), 1e-14) << what << ", merged: " << key;
      }
    }
  }

  static void expect_guaranteed(const std::vector<RankState>& found, const RankLoss& loss, const Truth& truth) {
    std::vector<RankState> had;
    for (std::size_t r = 0; r < kRanks; ++r) {
      if (static_cast<int>(r) == loss.lost) continue;
      expect_whole_step(found[r], r, truth, loss.text());
      had.push_back(found[r]);
    }
    EXPECT_EQ(had[0].step, had[1].step) << loss.text();
    expect_merged(had, loss.text());
  }
};

std::vector<const sync::StrategyRow*> rows_that_drift() {
  std::vector<const sync::StrategyRow*> all;
  for (const auto* row : sync::strategies())
    if (sync::make(row->name)->semantics().drifts()) all.push_back(row);
  return all;
}
INSTANTIATE_TEST_SUITE_P(Of, LostRank, testing::ValuesIn(rows_that_drift()),
                         [](const auto& given) { return std::string(given.param->name); });

TEST_P(LostRank, InAnyOperationCostsWhatItsGuaranteeSays) {
  const Truth truth = truth_of(train_case());
  ASSERT_GE(truth.operations, 2) << "the commit of each step";
  for (int at = 0; at <= truth.operations; ++at)
    for (const int lost : {0, 1})
      for (const bool missed : {false, true}) {
        if (missed && at == truth.operations) continue;  // the one after it would come after the end of the run
        const RankLoss loss{.lost = lost, .at = at + (missed ? 1 : 0), .missed = missed ? at : -1};
        expect_guaranteed(survivors_of(train_case(), loss), loss, truth);
        if (HasFailure()) return;
      }
}

// Messages of peer channels, too.
TEST_P(LostRank, AfterAnyMessageCostsWhatItsGuaranteeSays) {
  const Truth truth = truth_of(train_case());
  int in_steps = 0;
  for (int messages = 1;; ++messages) {
    const RankLoss loss{.lost = messages % 2, .messages = messages};
    const auto found = survivors_of(train_case(), loss);
    const auto here = std::ranges::count_if(found, [](const RankState& s) { return !s.items.empty(); });
    if (here == 0 && in_steps > 0) break;  // it sent all it had to send
    if (here < kRanks - 1) continue;       // before the first step of one of them
    ++in_steps;
    expect_guaranteed(found, loss, truth);
    if (HasFailure()) return;
  }
  EXPECT_GT(in_steps, 2 * kLast);
}

// Halfway into the one model that the job stands for, every rank has its own again.
TEST_P(LostRank, WhileAConsensusIsMadeLeavesEverySurvivorItsOwn) {
  for (int at = 0;; ++at) {
    std::vector<RankState> before(kRanks), found(kRanks);
    bool reached = false;
    collective::run_ranks(kRanks, [&](Communicator& comm) {
      FailingCommunicator failing(comm);
      const auto me = static_cast<std::size_t>(comm.rank().value);
      TrainCase mine = train_case();
      mine.after_finish = [&](const CallbackContext& c) {
        if (c.step != 3) return;
        before[me] = state_of(c.engine, c.step);
        failing.operations.clear();
        if (me == 1) failing.dies_at = at;
        try {
          const Consensus consensus(c.engine);
          if (me == 1) reached = true;
        } catch (const Failure&) {
          found[me] = state_of(c.engine, c.step);
          throw;
        }
        found[me] = state_of(c.engine, c.step);
      };
      mine.survived = [](Engine&) {};
      try {
        train_one_rank(mine, failing);
      } catch (const collective::RankDies&) {
        EXPECT_EQ(me, 1U);
      }
    });
    for (const std::size_t r : {0U, 2U}) expect_same_items(found[r], before[r], fmt::format("operation {}", at));
    if (reached) break;
  }
}

}  // namespace
}  // namespace cohort::engine
