// The in-order lane: a list, worked off from the front. Ranks submit alike, so nothing needs to be said before the verbs.
#include <deque>

#include "cohort/base/trace.h"
#include "cohort/queue/lane.h"

namespace cohort::queue {

namespace {

class InOrderLane final : public Lane {
 public:
  using Lane::Lane;

 private:
  void accept(const std::shared_ptr<Ticket>& ticket) override { list_.push_back(ticket); }
  void accept_join(const std::shared_ptr<Ticket>&) override {}  // refused before it gets here

  bool knock() override { return false; }  // who works never sleeps here, only inside verbs
  bool listens() const override { return false; }

  void work(const Shift& shift) override {
    bool busy = false;
    while (!shift_over(shift, busy)) {
      const auto ticket = next();
      const Span span{name_of(ticket->operation.verb), ticket->name};
      tell({Event::What::started, ticket->name, ticket->operation.verb});
      Result result;
      auto error = attempt([&] { result = executor_.run(ticket->operation); });
      land(ticket, std::move(result), std::move(error));
    }
  }

  std::shared_ptr<Ticket> next() {
    std::lock_guard lock(mutex_);
    if (failure_) throw Failure{*failure_};
    if (list_.empty()) throw_failure(Kind::bug, "the list is empty and {} operations are in flight", flights_.count());
    auto ticket = std::move(list_.front());
    list_.pop_front();
    return ticket;
  }

  std::deque<std::shared_ptr<Ticket>> list_;  // guarded by mutex_
};

}  // namespace

std::unique_ptr<Lane> in_order_lane(std::unique_ptr<collective::Communicator> communicator, QueueOptions options) {
  return std::make_unique<InOrderLane>(std::move(communicator), std::move(options));
}

}  // namespace cohort::queue
