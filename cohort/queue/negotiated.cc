// The negotiated lane: tells rank 0 what was submitted here, does what rank 0 says, in that order.
// Nothing ticks. While the holder of the wheel sleeps, a submitting thread sends its own request; while it works, requests pile up and
// leave as one when it is done, which is when fusion finds its members. Idle, every lane sleeps in next() until a message comes.
#include <deque>

#include "cohort/base/log.h"
#include "cohort/base/trace.h"
#include "cohort/queue/coordinator.h"
#include "cohort/queue/lane.h"

namespace cohort::queue {

namespace {

constexpr Rank kCoordinator{0};
enum Tags : std::uint32_t { kWake = 1, kRequest = 2, kResponse = 3 };
using Unit = std::vector<std::shared_ptr<const Named>>;

class NegotiatedLane final : public Lane {
 public:
  NegotiatedLane(std::unique_ptr<collective::Communicator> communicator, QueueOptions options)
      : Lane(std::move(communicator), std::move(options)) {
    if (comm_->rank() != kCoordinator) return;
    const Rules rules{options_.fusion_bytes, options_.warn_after, options_.shutdown_after, options_.spoken};
    coordinator_.emplace(comm_->size(), rules, options_.cache_names);
  }

 private:
  struct Item {
    Entry::Says says;
    std::shared_ptr<Ticket> ticket;  // none with leave
  };

  // ---- callers' threads
  void accept(const std::shared_ptr<Ticket>& ticket) override { outbox_.push_back({Entry::Says::fresh, ticket}); }
  void accept_join(const std::shared_ptr<Ticket>& ticket) override { outbox_.push_back({Entry::Says::join, ticket}); }
  bool knock() override;
  bool listens() const override { return true; }
  void send(const std::vector<std::byte>& bytes, Rank to, Tags tag);
  Request draft();  // mutex_ held: empties the outbox

  // ---- holder of the wheel
  void work(const Shift& shift) override;
  bool flush();
  bool lie_down();
  std::optional<net::Message> listen(Deadline look_up);
  void hear(const net::Message& message);
  void answer(const std::optional<Response>& response);
  void obey(const Response& response);
  std::vector<Unit> learn(const Response& response);
  void obey(const Verdict& verdict, const Unit& whom);
  void run(const Unit& unit);
  void say_goodbye() noexcept override;

  std::mutex order_;  // requests leave in the order they were drafted

  // ---- guarded by mutex_
  std::deque<Item> outbox_;
  bool idle_ = false;  // the lane sleeps, or is about to, and has seen an empty outbox
  bool leave_told_ = false;
  Names names_;  // read by drafts, changed by the lane
  std::uint64_t obeyed_ = 0;

  // ---- owned by the holder of the wheel
  std::optional<Coordinator> coordinator_;  // rank 0 only
};

bool NegotiatedLane::knock() {
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
    // A link has failed; the sleeper, who sleeps on the same links, wakes with the root cause and fails every ticket with it.
  }
  return true;
}

void NegotiatedLane::send(const std::vector<std::byte>& bytes, Rank to, Tags tag) {
  comm_->send({const_cast<std::byte*>(bytes.data()), bytes.size(), Dtype::u8}, to, tag, {.name = "queue"});
}

Request NegotiatedLane::draft() {
  Request request{obeyed_};
  for (const Item& item : outbox_) {
    Entry& entry = request.entries.emplace_back(Entry{item.says});
    if (item.says != Entry::Says::fresh) continue;
    entry.signature = signature_of(item.ticket->operation);
    entry.id = names_.find(item.ticket->name, entry.signature);
    if (entry.id != kNoId)
      entry.says = Entry::Says::known;
    else
      entry.name = item.ticket->name;
  }
  outbox_.clear();
  return request;
}

void NegotiatedLane::work(const Shift& shift) {
  for (bool busy = false;;) {
    if (flush()) continue;  // answering may have taken long: look again
    if (shift_over(shift, busy)) return;
    if (!lie_down()) continue;
    if (const auto message = listen(shift.look_up))
      hear(*message);
    else if (coordinator_)
      answer(coordinator_->look(Clock::now()));
  }
}

// Tells rank 0 what piled up; false when nothing had.
bool NegotiatedLane::flush() {
  std::unique_lock order(order_);
  std::unique_lock lock(mutex_);
  if (failure_) throw Failure{*failure_};
  if (closing_ && !leave_told_) {
    leave_told_ = true;
    outbox_.push_back({Entry::Says::leave, nullptr});
  }
  if (outbox_.empty()) return false;
  const Request request = draft();
  lock.unlock();
  if (!coordinator_) {
    send(encode(request), kCoordinator, kRequest);
    return true;
  }
  order.unlock();
  answer(coordinator_->hear(kCoordinator, request, Clock::now()));
  return true;
}

// From here on submitters must knock; false when something came in since flush().
bool NegotiatedLane::lie_down() {
  std::lock_guard lock(mutex_);
  idle_ = outbox_.empty() && !failure_ && !(closing_ && !leave_told_);
  return idle_;
}

// The next message; nullopt when it is time to look at the clock.
std::optional<net::Message> NegotiatedLane::listen(Deadline look_up) {
  Deadline until = look_up;
  {
    std::lock_guard lock(mutex_);
    if (closing_) until = until.sooner(drain_until_);
  }
  if (coordinator_) {
    if (const auto look = coordinator_->next_look()) until = until.sooner(Deadline{*look});
  }
  const auto get_up = [this] {
    std::lock_guard lock(mutex_);
    idle_ = false;
  };
  std::optional<net::Message> message;
  try {
    message = comm_->next(kWake, kResponse, {.name = "queue", .deadline = until});
  } catch (const Failure& failure) {
    get_up();
    if (failure.kind() != Kind::timeout || !until.passed()) throw;
    return std::nullopt;
  }
  get_up();
  return message;
}

void NegotiatedLane::hear(const net::Message& message) {
  if (message.tag.number == kRequest && coordinator_) {
    answer(coordinator_->hear(message.from, decode_request(message.bytes), Clock::now()));
  } else if (message.tag.number == kResponse) {
    obey(decode_response(message.bytes));
  }
}

void NegotiatedLane::answer(const std::optional<Response>& response) {
  if (!response) return;
  const auto bytes = encode(*response);
  for (int r = 1; r < comm_->size(); ++r) send(bytes, Rank{r}, kResponse);
  obey(*response);
}

void NegotiatedLane::obey(const Response& response) {
  const auto units = learn(response);
  tell({Event::What::cycle});
  for (std::size_t i = 0; i < units.size(); ++i) obey(response.rulings[i].verdict, units[i]);
}

// Whom each ruling is about. Ids are looked up before any is forgotten: a response may run a name and forget it.
std::vector<Unit> NegotiatedLane::learn(const Response& response) {
  std::lock_guard lock(mutex_);
  std::vector<Unit> units;
  for (const Ruling& ruling : response.rulings) {
    Unit& unit = units.emplace_back();
    for (const Mention& mention : ruling.mentions) {
      auto named = mention.name.empty() ? names_.at(mention.id) : std::make_shared<const Named>(Named{mention.name, mention.signature});
      if (!named) throw_failure(Kind::corrupt, "rank 0 mentions the operation with id {}, which this rank was never told", mention.id);
      if (mention.id != kNoId && !mention.name.empty()) names_.learn(mention.id, named);
      unit.push_back(std::move(named));
    }
  }
  for (const NameId id : response.forgotten) names_.forget(id);
  obeyed_ = response.number;
  return units;
}

void NegotiatedLane::obey(const Verdict& verdict, const Unit& whom) {
  const auto find = [&](std::string_view name) {
    std::lock_guard lock(mutex_);
    return flights_.find(name);
  };
  switch (verdict.does) {
    case Verdict::Does::run: return run(whom);
    case Verdict::Does::refuse:
      for (const auto& named : whom) {
        if (const auto ticket = find(named->name)) land(ticket, {}, Error{verdict.kind, verdict.text});
      }
      return;
    case Verdict::Does::joined:
      if (const auto ticket = find(kJoinName)) land(ticket, {.last_joined = verdict.rank}, std::nullopt);
      return;
    case Verdict::Does::stalled:
      for (const auto& named : whom) {
        if (const auto ticket = find(named->name)) ticket->note(verdict.text);
      }
      if (!coordinator_) return;
      if (options_.report) return options_.report(verdict.text);
      return log_warning("{}", verdict.text);
    case Verdict::Does::closed: throw Failure{{verdict.kind, verdict.text}};
  }
}

void NegotiatedLane::run(const Unit& unit) {
  std::vector<std::shared_ptr<Ticket>> tickets;
  std::vector<Member> members;
  {
    std::lock_guard lock(mutex_);
    const bool joined = flights_.find(kJoinName) != nullptr;
    for (const auto& named : unit) {
      auto ticket = flights_.find(named->name);
      if (!ticket && !joined) throw_failure(Kind::corrupt, "rank 0 runs '{}', which this rank has not submitted", named->name);
      members.push_back({ticket ? &ticket->operation : nullptr, &named->signature, named->name});
      tickets.push_back(std::move(ticket));
    }
  }
  const Signature& first = *members.front().signature;
  const Span span{name_of(first.verb), members.front().name};
  for (const Member& member : members) tell({Event::What::started, member.name, first.verb});
  Result result;
  const auto error = attempt([&] {
    if (members.size() > 1) return executor_.run_unit(members);
    if (first.verb == Verb::barrier) return;  // every rank has said that it is here
    if (members.front().operation == nullptr) return executor_.run_zeros(first, std::string(members.front().name));
    result = executor_.run(*members.front().operation);
  });
  for (const auto& ticket : tickets) {
    if (ticket) land(ticket, result, error);
  }
}

// Rank 0 goes only when all it had submitted is settled, so nothing of the others could still run.
void NegotiatedLane::say_goodbye() noexcept {
  if (!coordinator_) return;
  try {
    const auto bytes = encode(coordinator_->farewell("rank 0 has shut its queue down"));
    for (int r = 1; r < comm_->size(); ++r) send(bytes, Rank{r}, kResponse);
  } catch (const std::exception&) {
    // They are gone already, or will notice that we are.
  }
}

}  // namespace

std::unique_ptr<Lane> negotiated_lane(std::unique_ptr<collective::Communicator> communicator, QueueOptions options) {
  return std::make_unique<NegotiatedLane>(std::move(communicator), std::move(options));
}

}  // namespace cohort::queue
