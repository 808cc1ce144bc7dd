#include "cohort/net/transport/loopback.h"

#include <condition_variable>
#include <deque>
#include <mutex>

#include "cohort/net/transport/transport_base.h"

namespace cohort::net {
namespace {

class LoopbackTransport;

// The transports of all ranks. A visit keeps one alive while another rank's thread uses it.
class World {
 public:
  explicit World(int ranks) : slots_(static_cast<std::size_t>(ranks)) {}
  void enter(Rank rank, LoopbackTransport* transport) { slot(rank).transport = transport; }
  void leave(Rank rank);  // returns when no visitor is left
  template <class Work>
  bool visit(Rank rank, const Work& work);  // false: gone

 private:
  struct Slot {
    std::mutex mutex;
    std::condition_variable empty;
    LoopbackTransport* transport = nullptr;  // guarded by mutex
    int visitors = 0;                        // guarded by mutex
  };
  Slot& slot(Rank rank) { return slots_[static_cast<std::size_t>(rank.value)]; }
  std::vector<Slot> slots_;
};

void World::leave(Rank rank) {
  Slot& s = slot(rank);
  std::unique_lock lock(s.mutex);
  s.transport = nullptr;
  s.empty.wait(lock, [&] { return s.visitors == 0; });
}

template <class Work>
bool World::visit(Rank rank, const Work& work) {
  Slot& s = slot(rank);
  std::unique_lock lock(s.mutex);
  LoopbackTransport* const transport = s.transport;
  if (transport == nullptr) return false;
  ++s.visitors;
  lock.unlock();
  struct Leave {
    Slot& slot;
    ~Leave() {
      const std::lock_guard again(slot.mutex);
      if (--slot.visitors == 0) slot.empty.notify_all();
    }
  } const leave{s};
  work(*transport);  // alive while we visit: leave() waits
  return true;
}

class LoopbackTransport final : public TransportBase {
 public:
  LoopbackTransport(std::shared_ptr<World> world, Rank me, int ranks, Epoch epoch)
      : TransportBase(me, ranks, epoch, SpinPolicy::for_ranks(ranks)),
        world_(std::move(world)),
        outboxes_(static_cast<std::size_t>(ranks)) {
    world_->enter(me, this);
  }
  ~LoopbackTransport() override {
    world_->leave(rank());
    tell_all(left_error(rank()), true);
  }
  std::string_view transport() const override { return "loopback"; }
  bool shares_memory() const override { return true; }

 protected:
  Pending launch(Rank to, ConstBytes bytes, Tag tag) override;
  bool step() override {  // peers' threads deliver to us: only the event count is noted
    seen_ = wake_event_.now();
    return false;
  }
  void sleep(Deadline deadline) override { wake_event_.sleep(seen_, deadline); }
  void wake() noexcept override { wake_event_.notify(); }
  void send_abort(const Error& error) noexcept override { tell_all(aborted_error(rank(), error), false); }
  void on_failed(Rank peer) noexcept override {
    const std::lock_guard lock(outbox(peer).mutex);
    outbox(peer).queue.clear();
  }
  // The peer's queued messages may fit now: our thread delivers them, the peer's own may be busy.
  void on_room(Rank peer) override {
    world_->visit(peer, [this](LoopbackTransport& sender) { sender.flush(rank()); });
  }

 private:
  enum class Delivery { done, no_room, gone };
  struct Outbox {
    std::mutex mutex;                            // held while a message is copied: messages of one rank arrive one at a time
    std::deque<std::shared_ptr<Sending>> queue;  // guarded by mutex: waiting for room, in order
  };
  Outbox& outbox(Rank peer) { return outboxes_[static_cast<std::size_t>(peer.value)]; }
  Delivery deliver(Rank to, Tag tag, ConstBytes bytes);
  void flush(Rank to);
  void tell_all(const Error& error, bool polite) noexcept;

  const std::shared_ptr<World> world_;  // shared by all ranks
  std::vector<Outbox> outboxes_;
  EventCount wake_event_;
  std::uint32_t seen_ = 0;  // driver only
};

LoopbackTransport::Delivery LoopbackTransport::deliver(Rank to, Tag tag, ConstBytes bytes) {
  bool fits = true;
  const bool there = world_->visit(to, [&](LoopbackTransport& receiver) {
    fits = receiver.mailbox_.deliver(rank(), tag, bytes);
    if (fits) receiver.announce();
  });
  return !there ? Delivery::gone : fits ? Delivery::done : Delivery::no_room;
}

Pending LoopbackTransport::launch(Rank to, ConstBytes bytes, Tag tag) {
  Outbox& out = outbox(to);
  std::unique_lock lock(out.mutex);
  const Delivery delivery = out.queue.empty() ? deliver(to, tag, bytes) : Delivery::no_room;
  if (delivery == Delivery::done) return {};
  if (delivery == Delivery::no_room) return pending(out.queue.emplace_back(std::make_shared<Sending>(to, tag, bytes)));
  lock.unlock();
  lost(to, left_error(to), true);
  throw_failure_of(to);
}

void LoopbackTransport::flush(Rank to) {
  Outbox& out = outbox(to);
  {
    const std::lock_guard lock(out.mutex);
    while (!out.queue.empty()) {
      const auto sending = out.queue.front();
      if (sending->pin()) {
        const Delivery delivery = deliver(to, sending->tag, sending->bytes);
        sending->unpin();
        if (delivery != Delivery::done) break;
        sending->set_done();
      }
      out.queue.pop_front();
    }
  }
  announce();
}

void LoopbackTransport::tell_all(const Error& error, bool polite) noexcept {
  for (int r = 0; r < size(); ++r)
    if (Rank{r} != rank()) world_->visit(Rank{r}, [&](LoopbackTransport& peer) { peer.lost(rank(), error, polite); });
}

}  // namespace

std::vector<std::unique_ptr<PeerLinks>> loopback_world(int ranks, Epoch epoch) {
  const auto world = std::make_shared<World>(ranks);
  std::vector<std::unique_ptr<PeerLinks>> all;
  for (int r = 0; r < ranks; ++r) all.push_back(std::make_unique<LoopbackTransport>(world, Rank{r}, ranks, epoch));
  return all;
}

}  // namespace cohort::net
