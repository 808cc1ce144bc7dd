// A worker of an elastic job that trains a vector: elastic_rank <steps> <folder for its history> [<timeout of a peer in seconds>]
// The gradient of a sample is a function of its number and the parameters, so a step that used other samples, or the same one twice,
// changes every later parameter. SIGTERM and SIGUSR1 are the notice to leave. SIGUSR2 makes the training thread alone hang, until the next
// SIGUSR2.
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
#include "cohort/elastic/history.h"
#include "cohort/job/elastic_job.h"

using namespace cohort;
using elastic::ElasticWorker;
using elastic::HistoryLine;
using job::ElasticJob;
using job::ends_epoch;

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
  Worker(elastic::ElasticWorkerOptions elastic_worker, std::int64_t steps, const std::string& folder, Seconds limit)
      : job_(std::move(elastic_worker), {.timeout = limit, .start_timeout = limit}),
        steps_(steps),
        history_(fmt::format("{}/{}.jsonl", folder, getpid()), std::ios::app) {}

  int run() {
    std::thread([this] {
      sigset_t asked = notices();
      int number = 0;
      while (sigwait(&asked, &number) == 0 && number == SIGUSR2) hangs_ = !hangs_;
      job_.elastic_worker().leave(number == SIGTERM ? "SIGTERM" : "SIGUSR1");
    }).detach();
    while (true) {
      const ElasticWorker::Next next = job_.elastic_worker().next();
      if (const auto* released = std::get_if<ElasticWorker::Released>(&next)) {
        if (released->why) throw Failure{*released->why};
        return 0;
      }
      if (const auto* over = std::get_if<ElasticWorker::Over>(&next)) {
        if (over->error) throw Failure{*over->error};
        return 0;
      }
      train_in(std::get<ElasticWorker::Begun>(next));
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
  void train_in(const ElasticWorker::Begun& epoch) {
    std::unique_ptr<collective::Communicator> comm;
    try {
      enter(epoch, comm);
      while (state_.step < steps_)
        if (step(*comm)) return job_.leave_epoch(std::move(comm), nullptr);
      comm->barrier({.name = "the end"});
      job_.elastic_worker().ended(state_.step);
    } catch (const Failure& failure) {
      if (!ends_epoch(failure.error())) throw;
      job_.leave_epoch(std::move(comm), &failure.error());
    }
  }

  void enter(const ElasticWorker::Begun& epoch, std::unique_ptr<collective::Communicator>& comm) {
    epoch_ = epoch.roster.epoch;
    rank_ = epoch.rank;
    size_ = epoch.roster.size();
    const bool has = epoch.recovery != elastic::StateRecovery::heal && epoch.recovery != elastic::StateRecovery::disk;
    if (epoch.recovery == elastic::StateRecovery::finish) apply();
    next_.reset();
    if (has) job_.elastic_worker().have_state(state_.step);
    comm = job_.connect(epoch);
    if (epoch.recovery == elastic::StateRecovery::disk) state_ = {};
    std::int64_t where[] = {state_.step, state_.progress.epoch, state_.progress.taken};
    comm->broadcast(collective::piece(std::span<std::int64_t>(where)), Rank{0}, {.name = "position"});
    comm->broadcast(collective::piece(std::span(state_.parameters)), Rank{0}, {.name = "parameters"});
    state_.step = where[0];
    state_.progress = {where[1], where[2]};
    if (!has) {
      write(line(epoch.recovery == elastic::StateRecovery::heal ? HistoryLine::Event::heal : HistoryLine::Event::restart, epoch_, state_));
      job_.elastic_worker().have_state(state_.step);
    }
    comm->barrier({.name = "the beginning"});
    job_.elastic_worker().entered(state_.step);
  }

  // Whether the roster is to change after this step.
  bool step(collective::Communicator& comm) {
    const auto rebalanced = data::rebalance({.samples = kSamples, .batch = kBatch, .seed = 5}, state_.progress, rank_.value, size_);
    const data::EpochPlan plan = data::plan(rebalanced.share, rebalanced.progress.epoch);
    HistoryLine about = line(HistoryLine::Event::start, epoch_, state_);
    about.step = state_.step + 1;
    write(about);
    while (hangs_) std::this_thread::sleep_for(10ms);  // as in a read that never returns: not even the end of its epoch wakes it
    std::vector<double> gradient(kParameters, 0);
    for (const auto sample : plan.mine(0))
      for (std::size_t k = 0; k < kParameters; ++k)
        gradient[k] += state_.parameters[k] * 1e-3 * static_cast<double>(data::mix(static_cast<std::uint64_t>(sample) ^ k) >> 40);
    comm.all_reduce(collective::piece(std::span(gradient)), collective::Op::sum, {.name = "gradients"});
    next_ = state_;
    ++next_->step;
    next_->progress = data::after_step(rebalanced.share, rebalanced.progress);
    for (std::size_t k = 0; k < kParameters; ++k) next_->parameters[k] -= 1e-6 * gradient[k] / static_cast<double>(plan.total(0));
    next_line_ = line(HistoryLine::Event::commit, epoch_, *next_);
    next_line_.data_epoch = rebalanced.progress.epoch;
    next_line_.first = rebalanced.progress.taken;
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
            .worker = fmt::format("{:x}", job_.elastic_worker().id().value),
            .size = size_,
            .hash = fmt::format("{:x}", hash)};
  }

  void write(const HistoryLine& what) { history_ << encode_line(what) + "\n" << std::flush; }

  ElasticJob job_;
  const std::int64_t steps_;
  std::ofstream history_;
  State state_;
  std::optional<State> next_;  // the state after a prepared step
  HistoryLine next_line_;
  Epoch epoch_;
  Rank rank_;
  int size_ = 0;
  std::atomic<bool> hangs_{false};
};

}  // namespace

int main(int argc, char** argv) {
  const sigset_t notices = Worker::notices();
  pthread_sigmask(SIG_BLOCK, &notices, nullptr);  // before any thread starts
  if (argc != 3 && argc != 4) return std::fputs("elastic_rank <steps> <folder> [<seconds>]\n", stderr), 2;
  try {
    auto elastic_worker = ElasticJob::from_environment(group::read_environment());
    if (!elastic_worker) throw_failure(Kind::usage, "COHORT_ELASTIC is not set");
    const int status = Worker(*std::move(elastic_worker), std::atoll(argv[1]), argv[2], Seconds{argc == 4 ? std::atof(argv[3]) : 30}).run();
    std::_Exit(status);  // the thread that waits for signals never returns
  } catch (const std::exception& e) {
    fmt::print(stderr, "elastic_rank {}: {}\n", getpid(), e.what());
    std::_Exit(1);
  }
}
