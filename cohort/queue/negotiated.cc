// The negotiated progress engine: sends rank 0 what was submitted here, and applies rank 0's responses in order. There is no timer cycle.
// While the driver sleeps, a submitting thread sends its own request; while it works, requests pile up and are sent as one when it is done,
// which gives fusion its members. Idle, every progress thread sleeps in next() until a message comes.
#include <deque>

#include "cohort/base/log.h"
#include "cohort/base/trace.h"
#include "cohort/queue/coordinator.h"
#include "cohort/queue/progress_engine.h"

namespace cohort::queue {

namespace {

constexpr Rank kCoordinator{0};
enum Tags : std::uint32_t { kWake = 1, kRequest = 2, kResponse = 3 };
using Unit = std::vector<std::shared_ptr<const NamedSignature>>;

class NegotiatedProgress final : public ProgressEngine {
 public:
  NegotiatedProgress(std::unique_ptr<collective::Communicator> communicator, QueueOptions options)
      : ProgressEngine(std::move(communicator), std::move(options)) {
    if (comm_->rank() != kCoordinator) return;
    const Rules rules{options_.fusion_bytes, options_.warn_after, options_.shutdown_after, options_.limit_name, options_.rank_labels};
    coordinator_.emplace(comm_->size(), rules, options_.cache_names);
  }

 private:
  struct Item {
    Entry::Type type;
    std::shared_ptr<Submission> submission;  // none with leave
  };

  // ---- callers' threads
  void accept(const std::shared_ptr<Submission>& submission) override { outbox_.push_back({Entry::Type::fresh, submission}); }
  void accept_join(const std::shared_ptr<Submission>& submission) override { outbox_.push_back({Entry::Type::join, submission}); }
  bool wake_driver() override;
  bool listens() const override { return true; }
  void send(const std::vector<std::byte>& bytes, Rank to, Tags tag);
  Request draft();  // mutex_ held: empties the outbox

  // ---- driver
  void work(const DriveLimits& limits) override;
  bool flush();
  bool prepare_to_sleep();
  std::optional<net::Message> listen(Deadline return_by);
  void receive(const net::Message& message);
  void send_responses(const std::optional<Response>& response);
  void apply(const Response& response);
  std::vector<Unit> learn(const Response& response);
  void apply(const Decision& decision, const Unit& affected);
  void run(const Unit& unit);
  void send_leave() noexcept override;

  std::mutex order_;  // requests are sent in the order they were drafted

  // ---- guarded by mutex_
  std::deque<Item> outbox_;
  bool idle_ = false;  // the driver sleeps, or is about to, and has seen an empty outbox
  bool leave_sent_ = false;
  NameCache names_;  // read by drafts, changed by the driver
  std::uint64_t acknowledged_ = 0;

  // ---- owned by the driver
  std::optional<Coordinator> coordinator_;  // rank 0 only
};

bool NegotiatedProgress::wake_driver() {
  try {
    std::unique_lock order(order_);
    std::unique_lock lock(mutex_);
    if (!idle_) return false;
    if (coordinator_ || closing_ || failure_) {
      idle_ = false;
      lock.unlock();
      send({}, comm_->rank(), kWake);
      return true;
    }
    if (outbox_.empty()) return true;
    const auto bytes = encode(draft());
    lock.unlock();
    send(bytes, kCoordinator, kRequest);
  } catch (const Failure&) {
    // A link has failed; the sleeper, who sleeps on the same links, wakes with the root cause and fails every operation with it.
  }
  return true;
}

void NegotiatedProgress::send(const std::vector<std::byte>& bytes, Rank to, Tags tag) {
  comm_->send({const_cast<std::byte*>(bytes.data()), bytes.size(), Dtype::u8}, to, tag, {.name = "queue"});
}

Request NegotiatedProgress::draft() {
  Request request{acknowledged_};
  for (const Item& item : outbox_) {
    Entry& entry = request.entries.emplace_back(Entry{item.type});
    if (item.type != Entry::Type::fresh) continue;
    entry.signature = signature_of(item.submission->operation);
    entry.id = names_.find(item.submission->name, entry.signature);
    if (entry.id != kNoId)
      entry.type = Entry::Type::known;
    else
      entry.name = item.submission->name;
  }
  outbox_.clear();
  return request;
}

void NegotiatedProgress::work(const DriveLimits& limits) {
  for (bool busy = false;;) {
    if (flush()) continue;  // responding may have taken long: check again
    if (driving_over(limits, busy)) return;
    if (!prepare_to_sleep()) continue;
    if (const auto message = listen(limits.return_by))
      receive(*message);
    else if (coordinator_)
      send_responses(coordinator_->tick(Clock::now()));
  }
}

// Sends rank 0 what has been submitted since; false when nothing was.
bool NegotiatedProgress::flush() {
  std::unique_lock order(order_);
  std::unique_lock lock(mutex_);
  if (failure_) throw Failure{*failure_};
  if (closing_ && !leave_sent_) {
    leave_sent_ = true;
    outbox_.push_back({Entry::Type::leave, nullptr});
  }
  if (outbox_.empty()) return false;
  const Request request = draft();
  lock.unlock();
  if (!coordinator_) {
    send(encode(request), kCoordinator, kRequest);
    return true;
  }
  order.unlock();
  send_responses(coordinator_->receive(kCoordinator, request, Clock::now()));
  return true;
}

// From here on submitters must wake us; false when something came in since flush().
bool NegotiatedProgress::prepare_to_sleep() {
  std::lock_guard lock(mutex_);
  idle_ = outbox_.empty() && !failure_ && !(closing_ && !leave_sent_);
  return idle_;
}

// The next message; nullopt when a time limit has come.
std::optional<net::Message> NegotiatedProgress::listen(Deadline return_by) {
  Deadline until = return_by;
  {
    std::lock_guard lock(mutex_);
    if (closing_) until = until.sooner(drain_until_);
  }
  if (coordinator_) {
    if (const auto look = coordinator_->next_tick()) until = until.sooner(Deadline{*look});
  }
  const auto leave_idle = [this] {
    std::lock_guard lock(mutex_);
    idle_ = false;
  };
  std::optional<net::Message> message;
  try {
    message = comm_->next(kWake, kResponse, {.name = "queue", .deadline = until});
  } catch (const Failure& failure) {
    leave_idle();
    if (failure.kind() != Kind::timeout || !until.passed()) throw;
    return std::nullopt;
  }
  leave_idle();
  return message;
}

void NegotiatedProgress::receive(const net::Message& message) {
  if (message.tag.number == kRequest && coordinator_) {
    send_responses(coordinator_->receive(message.from, decode_request(message.bytes), Clock::now()));
  } else if (message.tag.number == kResponse) {
    heard();
    apply(decode_response(message.bytes));
  }
}

void NegotiatedProgress::send_responses(const std::optional<Response>& response) {
  if (!response) return;
  const auto bytes = encode(*response);
  for (int r = 1; r < comm_->size(); ++r) send(bytes, Rank{r}, kResponse);
  apply(*response);
}

void NegotiatedProgress::apply(const Response& response) {
  const auto units = learn(response);
  emit({Event::What::cycle});
  for (std::size_t i = 0; i < units.size(); ++i) apply(response.decisions[i].decision, units[i]);
}

// The operations of each decision. Ids are looked up before any is forgotten: a response may run a name and forget it.
std::vector<Unit> NegotiatedProgress::learn(const Response& response) {
  std::lock_guard lock(mutex_);
  std::vector<Unit> units;
  for (const DecisionMessage& decision_message : response.decisions) {
    Unit& unit = units.emplace_back();
    for (const NameRef& name_ref : decision_message.name_refs) {
      auto named = name_ref.name.empty() ? names_.at(name_ref.id)
                                         : std::make_shared<const NamedSignature>(NamedSignature{name_ref.name, name_ref.signature});
      if (!named) throw_failure(Kind::corrupt, "rank 0 refers to the operation with id {}, which this rank never received", name_ref.id);
      if (name_ref.id != kNoId && !name_ref.name.empty()) names_.learn(name_ref.id, named);
      unit.push_back(std::move(named));
    }
  }
  for (const NameId id : response.forgotten) names_.forget(id);
  acknowledged_ = response.number;
  return units;
}

void NegotiatedProgress::apply(const Decision& decision, const Unit& affected) {
  const auto find = [&](std::string_view name) {
    std::lock_guard lock(mutex_);
    return operations_.find(name);
  };
  switch (decision.action) {
    case Decision::Action::run: return run(affected);
    case Decision::Action::refuse:
      for (const auto& named : affected) {
        if (const auto submission = find(named->name)) complete(submission, {}, Error{decision.kind, decision.text});
      }
      return;
    case Decision::Action::joined:
      if (const auto submission = find(kJoinName)) complete(submission, {.last_joined = decision.rank}, std::nullopt);
      return;
    case Decision::Action::stalled:
      for (const auto& named : affected) {
        if (const auto submission = find(named->name)) submission->note(decision.text);
      }
      if (!coordinator_) return;
      if (options_.report) return options_.report(decision.text);
      return log_warning("{}", decision.text);
    case Decision::Action::closed: throw Failure{{decision.kind, decision.text}};
  }
}

void NegotiatedProgress::run(const Unit& unit) {
  std::vector<std::shared_ptr<Submission>> submissions;
  std::vector<UnitMember> members;
  {
    std::lock_guard lock(mutex_);
    const bool joined = operations_.find(kJoinName) != nullptr;
    for (const auto& named : unit) {
      auto submission = operations_.find(named->name);
      if (!submission && !joined) throw_failure(Kind::corrupt, "rank 0 runs '{}', which this rank has not submitted", named->name);
      members.push_back({submission ? &submission->operation : nullptr, &named->signature, named->name});
      submissions.push_back(std::move(submission));
    }
  }
  const Signature& first = *members.front().signature;
  const Span span{name_of(first.collective), members.front().name};
  for (const UnitMember& member : members) emit({Event::What::started, member.name, first.collective});
  Result result;
  const auto error = attempt([&] {
    if (members.size() > 1) return executor_.run_unit(members);
    if (first.collective == Collective::barrier) return;  // every rank has submitted it
    if (members.front().operation == nullptr) return executor_.run_zeros(first, std::string(members.front().name));
    result = executor_.run(*members.front().operation);
  });
  for (const auto& submission : submissions) {
    if (submission) complete(submission, result, error);
  }
}

// Rank 0 closes only when all it had submitted is settled, so nothing of the others could still run.
void NegotiatedProgress::send_leave() noexcept {
  if (!coordinator_) return;
  try {
    const auto bytes = encode(coordinator_->closing_response("rank 0 has shut its queue down"));
    for (int r = 1; r < comm_->size(); ++r) send(bytes, Rank{r}, kResponse);
  } catch (const std::exception&) {
    // They are gone already, or will notice that we are.
  }
}

}  // namespace

std::unique_ptr<ProgressEngine> negotiated_progress(std::unique_ptr<collective::Communicator> communicator, QueueOptions options) {
  return std::make_unique<NegotiatedProgress>(std::move(communicator), std::move(options));
}

}  // namespace cohort::queue
