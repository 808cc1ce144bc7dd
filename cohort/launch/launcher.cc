#include "cohort/launch/launcher.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include "cohort/launch/elastic_job.h"

namespace cohort::launch {
namespace {

// Its ranks are the same from the beginning to the end; the first that fails ends it.
class FixedJob final : public JobLoop {
 public:
  using JobLoop::JobLoop;

 private:
  void start() override {
    if (plan_.hosts.empty())
      start_here();
    else
      start_agents();
  }

  void note_end(const Ranks::Ended& ended) override {
    rendezvous_.rank_ended(ended.rank, ended.how);
    say_verbose(fmt::format("rank {} ended: {}", ended.rank, ended.how));
    if (ended.status != 0) fail(ended.rank, ended.status);
  }

  bool ended_badly() const override {
    for (int r = ranks_->first(); r < ranks_->first() + ranks_->size(); ++r)
      if ((*ranks_)[r].status != 0) return true;
    return false;
  }
};

}  // namespace

int launch(LaunchPlan plan, Signals& signals) {
  if (plan.options.elastic()) return ElasticJob(std::move(plan), signals).run();
  return FixedJob(std::move(plan), signals).run();
}

}  // namespace cohort::launch
