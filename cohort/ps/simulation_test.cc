// Thousands of schedules: workers that are fast, slow or stuck for a while talk to a Table through a network that drops, doubles and
// reorders what they send, and send again. One checker judges what every read saw against a model that knows only who marked what, when.
// Worker w adds 1 to element (w, c) in its clock c, so a read shows which updates are in, and how often.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <random>

#include "cohort/ps/table.h"

namespace cohort::ps {
namespace {

constexpr std::int64_t kClocks = 12;

struct Message {
  enum class What : std::uint8_t { push, mark, pull, ack, values } what = What::push;
  Stamp stamp;
  std::vector<double> values{};  // what: values
  Read read{};
};

struct Seen {
  int worker = 0;
  std::int64_t clock = 0;
  std::vector<double> values;
  Read read;
  std::vector<std::int64_t> marked;  // by worker, on the table when it was read: clocks ended
  bool ordered = false;
};

// The promises of a gate, about one read. Empty: all kept.
std::string judge(const Gate& gate, const Seen& seen) {
  const std::int64_t low = *std::ranges::min_element(seen.marked);
  if (seen.read.low != low) return "it says another clock of the slowest than there is";
  if (gate.slack && seen.clock - low > *gate.slack) return fmt::format("the reader is {} clocks ahead of the slowest", seen.clock - low);
  for (std::size_t w = 0; w < seen.marked.size(); ++w)
    for (std::int64_t c = 0; c < kClocks; ++c) {
      const double times = seen.values[w * kClocks + static_cast<std::size_t>(c)];
      const auto why = [&](const char* what) { return fmt::format("the update of worker {} at clock {} {}", w, c, what); };
      if (times != 0 && times != 1) return why("counts more than once");
      if (times == 1 && c >= seen.marked[w]) return why("was not marked");
      const bool own = static_cast<int>(w) == seen.worker;
      if (times == 0 && gate.slack && c < seen.clock - *gate.slack) return why("is older than the bound, and not there");
      if (times == 0 && own && c < gate.own(seen.clock)) return why("is the reader's own, and not there");
      if (times == 1 && gate.ordered() && c >= seen.clock) return why("is of the clock that is under way");
    }
  return {};
}

// A worker: pushes and marks go out at once, and again while they are not acknowledged; so does a read that is not answered.
struct Worker {
  std::int64_t clock = 0;
  std::uint64_t acked = 0, sent = 0;
  bool reading = true;  // of this clock; else it computes
  std::deque<Message> unacked;
};

class Simulation {
 public:
  Simulation(const std::string& clock, int workers, std::uint32_t seed)
      : random_(seed), gate_(make_gate(clock)), workers_(static_cast<std::size_t>(workers)), network_() {
    const std::size_t count = workers_.size() * kClocks;
    auto store = std::make_unique<DenseStore>(
        DenseSpec{.name = "t", .dtype = Dtype::f64, .count = count, .parts = {{.count = count}}, .rule = "sgd(lr=1)"}, workers);
    store_ = store.get();
    table_ = std::make_unique<Table>(gate_, workers, std::move(store), false);
    drops_ = below(3) * 0.1;
    doubles_ = below(3) * 0.1;
    slow_ = below(workers_.size());
    slowness_ = 1 + below(30);
    for (std::size_t w = 0; w < workers_.size(); ++w) ask(w);
  }

  // Until every worker has ended its clocks and all is acknowledged.
  void run() {
    for (int steps = 0; !done(); ++steps) {
      ASSERT_LT(steps, 2'000'000) << "somebody waits for ever";
      const bool deliver = !network_.empty() && below(2) == 0;
      deliver ? deliver_one() : let_one_go_on();
      check_spread();
      if (testing::Test::HasFatalFailure()) return;
    }
    check_end();
  }

  std::vector<Seen> reads;
  const Table& table() const { return *table_; }
  std::int64_t widest = 0;  // between the reads of the fastest and the slowest

 private:
  std::size_t below(std::size_t n) { return random_() % n; }
  bool chance(double p) { return static_cast<double>(random_() % 1000) < p * 1000; }
  bool done() const {
    return std::ranges::all_of(workers_, [](const Worker& w) { return w.clock == kClocks && w.unacked.empty(); });
  }
  void put(const Message& m) {
    if (!chance(drops_)) network_.push_back(m);
    if (chance(doubles_)) network_.push_back(m);
  }
  void ask(std::size_t w) { put({Message::What::pull, {static_cast<int>(w), workers_[w].clock, 0}, {}, {}}); }

  void deliver_one() {
    const std::size_t at = below(network_.size());  // any: they overtake each other
    const Message m = network_[at];
    network_[at] = network_.back();
    network_.pop_back();
    const auto w = static_cast<std::size_t>(m.stamp.worker);
    switch (m.what) {
      case Message::What::push:
      case Message::What::mark: return to_table(m);
      case Message::What::pull:
        if (table_->opens(m.stamp.worker, m.stamp.clock) && table_->clock().at(m.stamp.worker) == m.stamp.clock) read(m.stamp);
        return;  // else it is asked again
      case Message::What::ack:
        workers_[w].acked = std::max(workers_[w].acked, m.stamp.seq);
        std::erase_if(workers_[w].unacked, [&](const Message& u) { return u.stamp.seq <= workers_[w].acked; });
        return;
      case Message::What::values:
        if (workers_[w].reading && workers_[w].clock == m.stamp.clock) workers_[w].reading = false;
        return;
    }
  }

  void to_table(const Message& m) {
    const bool is_push = m.what == Message::What::push;
    const Admission admission = is_push ? table_->push(m.stamp) : table_->mark(m.stamp, {.lr = 1});
    if (admission == Admission::early) return;  // it comes again
    if (admission == Admission::fresh && is_push) {
      const Piece place = store_->staging(m.stamp.worker);
      std::memset(place.data, 0, place.bytes());
      static_cast<double*>(place.data)[m.stamp.worker * kClocks + m.stamp.clock] = -1;
      store_->mark_staged(m.stamp.worker);
    }
    put({Message::What::ack, m.stamp, {}, {}});
  }

  void read(const Stamp& stamp) {
    const auto* const x = static_cast<const double*>(store_->values().data);
    Seen seen{.worker = stamp.worker, .clock = stamp.clock, .values = {x, x + store_->values().count}, .read = table_->read(stamp.worker)};
    for (std::size_t w = 0; w < workers_.size(); ++w) seen.marked.push_back(table_->clock().at(static_cast<int>(w)));
    const std::string wrong = judge(gate_, seen);
    ASSERT_EQ(wrong, "") << gate_.spec << ", read of worker " << stamp.worker << " at clock " << stamp.clock;
    put({Message::What::values, stamp, seen.values, seen.read});
    reads.push_back(std::move(seen));
  }

  // A worker takes its turn: it computes, or sends again. One of them is slow, all may be stuck.
  void let_one_go_on() {
    const std::size_t w = below(workers_.size());
    Worker& worker = workers_[w];
    if (w == slow_ && below(static_cast<std::size_t>(slowness_)) != 0) return;
    for (const Message& m : worker.unacked)
      if (below(4) == 0) put(m);
    if (worker.clock == kClocks) return;
    if (worker.reading) return ask(w);
    for (const auto what : {Message::What::push, Message::What::mark}) {
      worker.unacked.push_back({what, {static_cast<int>(w), worker.clock, ++worker.sent}, {}, {}});
      put(worker.unacked.back());
    }
    ++worker.clock;
    worker.reading = true;
  }

  // A clock begins with its read: the fastest that has read and the slowest that has not are at most the slack apart.
  void check_spread() {
    std::int64_t fastest = 0, slowest = kClocks;
    for (const Worker& w : workers_) {
      fastest = std::max(fastest, w.reading ? w.clock - 1 : w.clock);
      slowest = std::min(slowest, w.clock);
    }
    widest = std::max(widest, fastest - slowest);
    ASSERT_LE(fastest - slowest, gate_.slack.value_or(kClocks)) << gate_.spec;
  }

  void check_end() const {
    const auto* const x = static_cast<const double*>(store_->values().data);
    for (std::size_t i = 0; i < store_->values().count; ++i) ASSERT_EQ(x[i], 1) << gate_.spec << ": element " << i;
    ASSERT_EQ(table_->clock().low(), kClocks);
    ASSERT_FALSE(table_->lag().empty());
    ASSERT_LE(table_->lag().rbegin()->first, gate_.slack.value_or(kClocks));
  }

  std::mt19937 random_;
  const Gate gate_;
  std::vector<Worker> workers_;
  std::vector<Message> network_;
  DenseStore* store_ = nullptr;
  std::unique_ptr<Table> table_;
  double drops_ = 0, doubles_ = 0;
  std::size_t slow_ = 0;
  std::size_t slowness_ = 1;
};

std::vector<std::string> clocks() {
  std::vector<std::string> all{"ssp(0)", "ssp(1)", "ssp(5)", "bounded_delay(1)", "bounded_delay(4)"};
  for (const GateRow& row : gates()) all.emplace_back(row.name);
  return all;
}

class Simulated : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Of, Simulated, testing::ValuesIn(clocks()), [](const auto& given) {
  std::string name;
  for (const char c : given.param)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) name += c;
  return name;
});

TEST_P(Simulated, EveryReadOfEveryScheduleKeepsThePromise) {
  std::size_t reads = 0;
  for (std::uint32_t seed = 1; seed <= 400; ++seed) {
    Simulation simulation(GetParam(), 1 + static_cast<int>(seed % 5), seed);
    simulation.run();
    reads += simulation.reads.size();
    ASSERT_FALSE(HasFatalFailure()) << "seed " << seed;
  }
  EXPECT_GT(reads, 400U * kClocks);
}

// The bound is used, or it would be no different from a tighter one.
TEST(Simulation, FastWorkersGoAheadAsFarAsTheyMay) {
  for (const std::int64_t s : {1, 3}) {
    std::int64_t widest = 0;
    for (std::uint32_t seed = 1; seed <= 100; ++seed) {
      Simulation simulation(fmt::format("ssp({})", s), 4, seed);
      simulation.run();
      widest = std::max(widest, simulation.widest);
    }
    EXPECT_EQ(widest, s);
  }
}

// The looser the bound the staler the reads; no read of bulk synchronous clocks is.
TEST(Simulation, LooserBoundsReadWhatIsStaler) {
  std::vector<double> lags;
  for (const char* clock : {"bsp", "ssp(1)", "ssp(4)", "tap"}) {
    double sum = 0;
    for (std::uint32_t seed = 1; seed <= 200; ++seed) {
      Simulation simulation(clock, 4, seed);
      simulation.run();
      sum += mean_of(simulation.table().lag());
    }
    lags.push_back(sum);
  }
  EXPECT_EQ(lags[0], 0);
  EXPECT_LT(lags[0], lags[1]);
  EXPECT_LT(lags[1], lags[2]);
  EXPECT_LT(lags[2], lags[3]);
}

// The checker finds what it is for: reads that keep no promise.
TEST(Checker, NamesWhatIsWrong) {
  const Gate ssp = make_gate("ssp(1)");
  Seen seen{.worker = 0, .clock = 2, .values = std::vector<double>(2 * kClocks), .read = {1, 0}, .marked = {2, 1}};
  seen.values[0] = seen.values[1] = seen.values[kClocks] = 1;
  EXPECT_EQ(judge(ssp, seen), "");
  auto wrong = seen;
  wrong.values[kClocks] = 0;
  EXPECT_THAT(judge(ssp, wrong), testing::HasSubstr("older than the bound"));
  wrong = seen;
  wrong.values[1] = 0;
  EXPECT_THAT(judge(ssp, wrong), testing::HasSubstr("reader's own"));
  wrong = seen;
  wrong.values[0] = 2;
  EXPECT_THAT(judge(ssp, wrong), testing::HasSubstr("more than once"));
  wrong = seen;
  wrong.values[kClocks + 3] = 1;
  EXPECT_THAT(judge(ssp, wrong), testing::HasSubstr("not marked"));
  wrong = seen;
  wrong.marked = {4, 0};
  wrong.read.low = 0;
  EXPECT_THAT(judge(ssp, wrong), testing::HasSubstr("ahead of the slowest"));
  wrong = seen;
  wrong.clock = 1;
  EXPECT_THAT(judge(make_gate("bsp"), wrong), testing::HasSubstr("under way"));
}

}  // namespace
}  // namespace cohort::ps
