#include "cohort/net/loopback.h"

#include <condition_variable>
#include <deque>
#include <mutex>

#include "cohort/net/hub.h"

namespace cohort::net {
namespace {

class LoopbackMesh;

// The meshes that are still there. A visit keeps one alive while another rank's thread works inside it.
class World {
 public:
  explicit World(int ranks) : slots_(static_cast<std::size_t>(ranks)) {}
  void enter(Rank rank, LoopbackMesh* mesh) { slot(rank).mesh = mesh; }
  void leave(Rank rank);  // returns when the last visitor is out
  template <class Work>
  bool visit(Rank rank, const Work& work);  // false: gone

 private:
  struct Slot {
    std::mutex mutex;
    std::condition_variable empty;
    LoopbackMesh* mesh = nullptr;  // guarded by mutex
    int visitors = 0;              // guarded by mutex
  };
  Slot& slot(Rank rank) { return slots_[static_cast<std::size_t>(rank.value)]; }
  std::vector<Slot> slots_;
};

void World::leave(Rank rank) {
  Slot& s = slot(rank);
  std::unique_lock lock(s.mutex);
  s.mesh = nullptr;
  s.empty.wait(lock, [&] { return s.visitors == 0; });
}

template <class Work>
bool World::visit(Rank rank, const Work& work) {
  Slot& s = slot(rank);
  std::unique_lock lock(s.mutex);
  LoopbackMesh* const mesh = s.mesh;
  if (mesh == nullptr) return false;
  ++s.visitors;
  lock.unlock();
  struct Leave {
    Slot& slot;
    ~Leave() {
      const std::lock_guard again(slot.mutex);
      if (--slot.visitors == 0) slot.empty.notify_all();
    }
  } const leave{s};
  work(*mesh);  // stays while we visit: leave() waits
  return true;
}

class LoopbackMesh final : public Hub {
 public:
  LoopbackMesh(std::shared_ptr<World> world, Rank me, int ranks, Epoch epoch)
      : Hub(me, ranks, epoch, Patience::for_ranks(ranks)), world_(std::move(world)), outboxes_(static_cast<std::size_t>(ranks)) {
    world_->enter(me, this);
  }
  ~LoopbackMesh() override {
    world_->leave(rank());
    tell_all(left_error(rank()), true);
  }
  std::string_view transport() const override { return "loopback"; }
  bool shares_memory() const override { return true; }

 protected:
  Pending launch(Rank to, ConstBytes bytes, Tag tag) override;
  bool step() override {  // peers' threads deliver to us: there is nothing to do but to remember when we looked
    seen_ = doorbell_.now();
    return false;
  }
  void sleep(Deadline deadline) override { doorbell_.sleep(seen_, deadline); }
  void wake() noexcept override { doorbell_.ring(); }
  void tell_abort(const Error& error) noexcept override { tell_all(aborted_error(rank(), error), false); }
  void on_failed(Rank peer) noexcept override {
    const std::lock_guard lock(outbox(peer).mutex);
    outbox(peer).queue.clear();
  }
  // Our thread waits for the peer's message, so it fetches what the peer could not leave here earlier.
  void on_room(Rank peer) override {
    world_->visit(peer, [this](LoopbackMesh& mesh) { mesh.flush(rank()); });
  }

 private:
  enum class Handed { yes, no_room, gone };
  struct Outbox {
    std::mutex mutex;                            // held while a message is copied: messages of one rank land one at a time
    std::deque<std::shared_ptr<Sending>> queue;  // guarded by mutex: waiting for room, in order
  };
  Outbox& outbox(Rank peer) { return outboxes_[static_cast<std::size_t>(peer.value)]; }
  Handed hand_over(Rank to, Tag tag, ConstBytes bytes);
  void flush(Rank to);
  void tell_all(const Error& error, bool polite) noexcept;

  const std::shared_ptr<World> world_;  // shared by all ranks
  std::vector<Outbox> outboxes_;
  Bell doorbell_;
  std::uint32_t seen_ = 0;  // driver only
};

LoopbackMesh::Handed LoopbackMesh::hand_over(Rank to, Tag tag, ConstBytes bytes) {
  bool fits = true;
  const bool there = world_->visit(to, [&](LoopbackMesh& mesh) {
    fits = mesh.mailbox_.deliver(rank(), tag, bytes);
    if (fits) mesh.announce();
  });
  return !there ? Handed::gone : fits ? Handed::yes : Handed::no_room;
}

Pending LoopbackMesh::launch(Rank to, ConstBytes bytes, Tag tag) {
  Outbox& out = outbox(to);
  std::unique_lock lock(out.mutex);
  const Handed handed = out.queue.empty() ? hand_over(to, tag, bytes) : Handed::no_room;
  if (handed == Handed::yes) return {};
  if (handed == Handed::no_room) return pending(out.queue.emplace_back(std::make_shared<Sending>(to, tag, bytes)));
  lock.unlock();
  lost(to, left_error(to), true);
  throw_failure_of(to);
}

void LoopbackMesh::flush(Rank to) {
  Outbox& out = outbox(to);
  {
    const std::lock_guard lock(out.mutex);
    while (!out.queue.empty()) {
      const auto sending = out.queue.front();
      if (sending->pin()) {
        const Handed handed = hand_over(to, sending->tag, sending->bytes);
        sending->unpin();
        if (handed != Handed::yes) break;
        sending->set_done();
      }
      out.queue.pop_front();
    }
  }
  announce();
}

void LoopbackMesh::tell_all(const Error& error, bool polite) noexcept {
  for (int r = 0; r < size(); ++r)
    if (Rank{r} != rank()) world_->visit(Rank{r}, [&](LoopbackMesh& mesh) { mesh.lost(rank(), error, polite); });
}

}  // namespace

std::vector<std::unique_ptr<Mesh>> loopback_meshes(int ranks, Epoch epoch) {
  const auto world = std::make_shared<World>(ranks);
  std::vector<std::unique_ptr<Mesh>> meshes;
  for (int r = 0; r < ranks; ++r) meshes.push_back(std::make_unique<LoopbackMesh>(world, Rank{r}, ranks, epoch));
  return meshes;
}

}  // namespace cohort::net
