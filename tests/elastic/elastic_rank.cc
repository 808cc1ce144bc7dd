// A worker of an elastic job that trains a vector: elastic_rank <steps> <folder for its history> [<seconds for a peer to answer>]
// The gradient of a sample is a function of its number and the parameters, so a step that used other samples, or the same one twice, shows
// in every later parameter. SIGTERM and SIGUSR1 are the notice to leave. With SIGUSR2 the training thread hangs, and it alone, until the
// next.
#include <fmt/format.h>
#include <pthread.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "cohort/base/error.h"
#include "cohort/data/random.h"
#include "cohort/data/rebalance.h"
#include "cohort/group/history.h"
#include "cohort/train/elastic_job.h"

using namespace cohort;
using group::HistoryLine;
using group::Seat;

namespace {

constexpr std::size_t kParameters = 20000;
constexpr std::int64_t kSamples = 1009, kBatch = 4;

struct State {
  std::int64_t step = 0;
  data::Progress progress;
  std::vector<double> parameters = std::vector<double>(kParameters, 1.0);
};

class Worker {
 public:
  Worker(group::SeatOptions seat, std::int64_t steps, const std::string& folder, Seconds limit)
      : job_(std::move(seat), {.timeout = limit, .start_timeout = limit}),
        steps_(steps),
        history_(fmt::format("{}/{}.jsonl", folder, getpid()), std::ios::app) {}

  int run() {
    std::thread([this] {
      sigset_t asked = notices();
      int number = 0;
      while (sigwait(&asked, &number) == 0 && number == SIGUSR2) hangs_ = !hangs_;
      job_.seat().leave(number == SIGTERM ? "SIGTERM" : "SIGUSR1");
    }).detach();
    while (true) {
      const Seat::Next next = job_.seat().next();
      if (std::holds_alternative<Seat::Released>(next)) return 0;
      if (const auto* over = std::get_if<Seat::Over>(&next)) {
        if (over->error) throw Failure{*over->error};
        return 0;
      }
      train_in(std::get<Seat::Begun>(next));
    }
  }

  static sigset_t notices() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGUSR2);
    return set;
  }

 private:
  void train_in(const Seat::Begun& epoch) {
    std::unique_ptr<collective::Communicator> comm;
    try {
      enter(epoch, comm);
      while (state_.step < steps_)
        if (step(*comm)) return job_.leave_epoch(std::move(comm), nullptr);
      comm->barrier({.name = "the end"});
      job_.seat().ended(state_.step);
    } catch (const Failure& failure) {
      if (!ends_epoch(failure.error())) throw;
      job_.leave_epoch(std::move(comm), &failure.error());
    }
  }

  void enter(const Seat::Begun& epoch, std::unique_ptr<collective::Communicator>& comm) {
    epoch_ = epoch.roster.epoch;
    rank_ = epoch.rank;
    size_ = epoch.roster.size();
    const bool has = epoch.settle != group::Settle::heal && epoch.settle != group::Settle::disk;
    if (epoch.settle == group::Settle::finish) apply();
    next_.reset();
    if (has) job_.seat().have_state(state_.step);
    comm = job_.connect(epoch);
    if (epoch.settle == group::Settle::disk) state_ = {};
    std::int64_t where[] = {state_.step, state_.progress.epoch, state_.progress.taken};
    comm->broadcast(collective::piece(std::span<std::int64_t>(where)), Rank{0}, {.name = "where to go on"});
    comm->broadcast(collective::piece(std::span(state_.parameters)), Rank{0}, {.name = "parameters"});
    state_.step = where[0];
    state_.progress = {where[1], where[2]};
    if (!has) {
      write(line(epoch.settle == group::Settle::heal ? HistoryLine::Event::heal : HistoryLine::Event::restart, epoch_, state_));
      job_.seat().have_state(state_.step);
    }
    comm->barrier({.name = "the beginning"});
    job_.seat().entered(state_.step);
  }

  // Whether the roster changes after this step.
  bool step(collective::Communicator& comm) {
    const auto onward = data::go_on({.samples = kSamples, .batch = kBatch, .seed = 5}, state_.progress, rank_.value, size_);
    const data::EpochPlan plan = data::plan(onward.share, onward.progress.epoch);
    HistoryLine about = line(HistoryLine::Event::start, epoch_, state_);
    about.step = state_.step + 1;
    write(about);
    while (hangs_) std::this_thread::sleep_for(10ms);  // as in a read that never ends: not even the end of its epoch wakes it
    std::vector<double> gradient(kParameters, 0);
    for (const auto sample : plan.mine(0))
      for (std::size_t k = 0; k < kParameters; ++k)
        gradient[k] += state_.parameters[k] * 1e-3 * static_cast<double>(data::mix(static_cast<std::uint64_t>(sample) ^ k) >> 40);
    comm.all_reduce(collective::piece(std::span(gradient)), collective::Op::sum, {.name = "gradients"});
    next_ = state_;
    ++next_->step;
    next_->progress = data::after_step(onward.share, onward.progress);
    for (std::size_t k = 0; k < kParameters; ++k) next_->parameters[k] -= 1e-6 * gradient[k] / static_cast<double>(plan.total(0));
    next_line_ = line(HistoryLine::Event::commit, epoch_, *next_);
    next_line_.data_epoch = onward.progress.epoch;
    next_line_.first = onward.progress.taken;
    next_line_.total = plan.total(0);
    next_line_.of = kSamples;
    next_line_.samples.assign(plan.mine(0).begin(), plan.mine(0).end());
    const bool change = job_.commit(comm);
    apply();
    return change;
  }

  void apply() {
    state_ = *std::exchange(next_, std::nullopt);
    write(next_line_);
  }

  HistoryLine line(HistoryLine::Event event, Epoch epoch, const State& state) const {
    std::uint64_t hash = 0;
    for (const double p : state.parameters) hash = data::mix(hash ^ std::bit_cast<std::uint64_t>(p));
    return {.event = event,
            .epoch = epoch,
            .step = state.step,
            .rank = rank_,
            .worker = fmt::format("{:x}", job_.seat().id().value),
            .size = size_,
            .hash = fmt::format("{:x}", hash)};
  }

  void write(const HistoryLine& what) { history_ << encode_line(what) + "\n" << std::flush; }

  ElasticJob job_;
  const std::int64_t steps_;
  std::ofstream history_;
  State state_;
  std::optional<State> next_;  // what a prepared step makes of it
  HistoryLine next_line_;
  Epoch epoch_;
  Rank rank_;
  int size_ = 0;
  std::atomic<bool> hangs_{false};
};

}  // namespace

int main(int count, char** words) {
  const sigset_t notices = Worker::notices();
  pthread_sigmask(SIG_BLOCK, &notices, nullptr);  // before any thread starts
  if (count != 3 && count != 4) return std::fputs("elastic_rank <steps> <folder> [<seconds>]\n", stderr), 2;
  try {
    auto seat = ElasticJob::from_environment(group::read_environment());
    if (!seat) throw_failure(Kind::usage, "COHORT_ELASTIC is not set");
    const int status = Worker(*std::move(seat), std::atoll(words[1]), words[2], Seconds{count == 4 ? std::atof(words[3]) : 30}).run();
    std::_Exit(status);  // the thread that waits for signals has no end of its own
  } catch (const std::exception& e) {
    fmt::print(stderr, "elastic_rank {}: {}\n", getpid(), e.what());
    std::_Exit(1);
  }
}
