// The in-order progress engine: a list, run from the front. Ranks submit alike, so nothing needs to be sent before the collectives.
#include <deque>

#include "cohort/base/trace.h"
#include "cohort/queue/progress_engine.h"

namespace cohort::queue {

namespace {

class InOrderProgress final : public ProgressEngine {
 public:
  using ProgressEngine::ProgressEngine;

 private:
  void accept(const std::shared_ptr<Submission>& submission) override { list_.push_back(submission); }
  void accept_join(const std::shared_ptr<Submission>&) override {}  // refused before it gets here

  bool wake_driver() override { return false; }  // the driver never sleeps here, only inside collectives
  bool listens() const override { return false; }

  void work(const DriveLimits& limits) override {
    bool busy = false;
    while (!driving_over(limits, busy)) {
      const auto submission = next();
      const Span span{name_of(submission->operation.collective), submission->name};
      emit({Event::What::started, submission->name, submission->operation.collective});
      Result result;
      auto error = attempt([&] { result = executor_.run(submission->operation); });
      complete(submission, std::move(result), std::move(error));
    }
  }

  std::shared_ptr<Submission> next() {
    std::lock_guard lock(mutex_);
    if (failure_) throw Failure{*failure_};
    if (list_.empty()) throw_failure(Kind::bug, "the list is empty and {} operations are in flight", operations_.count());
    auto submission = std::move(list_.front());
    list_.pop_front();
    return submission;
  }

  std::deque<std::shared_ptr<Submission>> list_;  // guarded by mutex_
};

}  // namespace

std::unique_ptr<ProgressEngine> in_order_progress(std::unique_ptr<collective::Communicator> communicator, QueueOptions options) {
  return std::make_unique<InOrderProgress>(std::move(communicator), std::move(options));
}

}  // namespace cohort::queue
