#include "cohort/collective/peers.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "cohort/collective/waiting.h"
#include "cohort/net/hub.h"

namespace cohort::collective {
namespace {

thread_local Seconds total_waited{0};

constexpr Seconds kLastBreath{1};    // from a process's memory to its connections, when the kernel takes them away
constexpr Seconds kLookAround{0.1};  // how often a wait on one peer looks whether another was lost

// Both ends of the order of digests, with who holds them. Spreading minimum and maximum tells everybody whether all are equal.
struct Extremes {
  Fingerprint low, high;
  std::int32_t low_rank = 0, high_rank = 0;

  void absorb(const Extremes& other) {
    if (other.low.digest < low.digest) low = other.low, low_rank = other.low_rank;
    if (other.high.digest > high.digest) high = other.high, high_rank = other.high_rank;
  }
};

Hosts hosts_of(const net::Mesh& mesh, const std::vector<Rank>& members) {
  std::vector<int> labels;
  for (const Rank member : members) labels.push_back(mesh.host(member));
  return Hosts(labels);
}

}  // namespace

Peers::Peers(std::shared_ptr<net::Mesh> mesh, std::shared_ptr<Arena> arena, std::vector<Rank> members, int me, std::uint32_t channel)
    : mesh_(std::move(mesh)),
      arena_(std::move(arena)),
      members_(std::move(members)),
      me_(me),
      channel_(channel),
      hosts_(hosts_of(*mesh_, members_)) {
  watch_ = mesh_->watch([this](Rank who, const Error& error) {
    if (std::find(members_.begin(), members_.end(), who) != members_.end()) fail(error);
  });
}

Peers::~Peers() {
  mesh_->unwatch(watch_);
  mesh_->discard({channel_, 0, ~0u});
}

void Peers::share_board(Patience patience, Seconds warn_after, Deadline deadline) {
  if (hosts_.count() == 1 && size() > 1) return make_board(patience, warn_after, deadline);
  const auto& here = hosts_.members(hosts_.of(me_));
  if (here.size() == 1) return;
  std::vector<Rank> members;
  for (const int m : here) members.push_back(members_[static_cast<std::size_t>(m)]);
  const auto channel = static_cast<std::uint32_t>(mix(channel_, here.size()) >> 32) | 2u;  // as those of a split: never the world's
  inside_ = std::make_unique<Peers>(mesh_, arena_, std::move(members), hosts_.place(me_), channel);
  inside_->make_board(Patience::for_ranks(inside_->size()), warn_after, deadline);
  inside_->board_->set_names(here);  // errors speak of our members, not of places on this host
  within_.store(inside_.get(), std::memory_order_release);
  const std::lock_guard lock(mutex_);
  if (error_ && !net::left_politely(*error_)) inside_->fail(*error_);  // it happened before fail() could know of it
}

void Peers::make_board(Patience patience, Seconds warn_after, Deadline deadline) {
  print_ = {.verb = Verb::split};
  deadline_ = deadline;
  check_others();  // who has made its board with rank 0 may be gone before we have ours
  Segment segment;
  SegmentName name;
  if (me_ == 0) {
    segment = Segment::create(Board::bytes_for(size()), "cohort-board", false);
    name = segment.name();
    char opened = 0;
    for (int r = 1; r < size(); ++r) exchange(r, bytes_of(name), r, writable_bytes_of(opened));  // they hold it: our descriptor may go
  } else {
    auto announced = recv(0, writable_bytes_of(name));
    finish(announced);
    std::string why;
    auto found = Segment::open(name, false, &why);
    if (!found) await_loss();
    if (!found) throw_failure(Kind::system, "rank {} cannot map the board of rank 0: {}", me_, why);
    segment = std::move(*found);
    const char opened = 1;
    auto told = send(0, bytes_of(opened));
    finish(told);
  }
  board_ = std::make_unique<Board>(std::move(segment), me_, size(), patience, warn_after);
  board_->set_check(&failed_, [this] { check(); });
  posted_.store(board_.get(), std::memory_order_release);
}

void Peers::begin(const Fingerprint& print, std::optional<Deadline> deadline, Seconds timeout) {
  print_ = print;
  deadline_ = deadline;
  timeout_ = timeout;
  if (failed()) check();
  if (inside_) inside_->begin(print, deadline, timeout);
}

Deadline Peers::deadline() {
  if (!deadline_) deadline_ = Deadline::in(timeout_);
  return *deadline_;
}

void Peers::compare() const {
  for (int r = 0; r < size(); ++r) {
    if (board_->line(r).digest == print_.digest) continue;
    // Somebody differs from us, perhaps everybody. Name the same pair on every rank: rank 0 and the first that differs from it.
    const auto& first = board_->card(0).print;
    int other = 1;
    while (other < size() - 1 && board_->card(other).print.digest == first.digest) ++other;
    throw Failure{{Kind::usage, disagreement(board_->card(other).print, other, first, 0), members_[static_cast<std::size_t>(other)]}};
  }
}

Opening Peers::conclude() {
  compare();
  bool all = true;
  bool none = true;
  for (int r = 0; r < size(); ++r) {
    const bool in_region = (board_->line(r).flags & Board::kInRegion) != 0;
    all = all && in_region;
    none = none && !in_region;
  }
  if (all) return Opening::in_place;
  return none ? Opening::staged : Opening::cold;
}

std::byte* Peers::reach(int rank) {
  try {
    return arena_->reach(board_->card(rank).where);
  } catch (const Failure&) {
    await_loss();
    throw;
  }
}

// Whose memory is gone has most likely died; the kernel takes memory away a moment before it closes connections, by which that is known.
void Peers::await_loss() {
  for (const Deadline limit = Deadline::in(kLastBreath); !limit.passed(); std::this_thread::sleep_for(1ms)) check();
}

void Peers::sync() {
  board_->post(print_.digest, 0);
  await();
}

void Peers::await() {
  if (board_->await_briefly()) return;
  const Waiting waiting;
  board_->await(print_, deadline());
}

void Peers::await_work(int total) {
  if (board_->await_work_briefly(total)) return;
  const Waiting waiting;
  board_->await_work(total, print_, deadline());
}

void Peers::agree() {
  const Waiting waiting;
  Extremes mine{print_, print_, me_, me_};
  for (int distance = 1; distance < size(); distance *= 2) {  // dissemination: everybody has heard of everybody after log2(n) rounds
    Extremes theirs;
    exchange((me_ + distance) % size(), bytes_of(mine), (me_ + size() - distance) % size(), writable_bytes_of(theirs));
    mine.absorb(theirs);
  }
  if (mine.low.digest == mine.high.digest) return;
  if (mine.low_rank < mine.high_rank) std::swap(mine.low, mine.high), std::swap(mine.low_rank, mine.high_rank);
  throw Failure{
      {Kind::usage, disagreement(mine.low, mine.low_rank, mine.high, mine.high_rank), members_[static_cast<std::size_t>(mine.low_rank)]}};
}

Seconds waited() { return total_waited; }
Waiting::~Waiting() { total_waited += Seconds(Clock::now() - start_); }

Tag Peers::tag(int lane) const {
  return {channel_, kCollectiveTags | static_cast<std::uint32_t>(print_.number * kLanes + static_cast<std::uint64_t>(lane))};
}

net::Pending Peers::send(int to, ConstBytes bytes, int lane) {
  return mesh_->link(members_[static_cast<std::size_t>(to)]).send(bytes, tag(lane));
}

net::Pending Peers::recv(int from, Bytes bytes, int lane) {
  return mesh_->link(members_[static_cast<std::size_t>(from)]).recv(bytes, tag(lane));
}

void Peers::exchange(int to, ConstBytes out, int from, Bytes in) {
  auto incoming = recv(from, in);
  auto outgoing = send(to, out);
  finish(incoming);
  finish(outgoing);
}

void Peers::finish(net::Pending& pending, Deadline deadline) const {
  try {
    while (!pending.wait_until(deadline.sooner(Deadline::in(kLookAround)))) {
      check_others();
      if (deadline.passed()) pending.wait(deadline);  // throws, and says what was waited for
    }
  } catch (const Failure&) {
    check_others();  // the root cause, where one is known
    throw;
  }
}

void Peers::fail(const Error& error) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (error_ && (!net::left_politely(*error_) || net::left_politely(error))) return;
    error_ = error;
    failed_.store(true);
  }
  if (const Board* const board = posted_.load()) board->wake();
  // A rank of another host that left politely had done its part: whoever of this host misses it will say so.
  if (Peers* const within = within_.load(std::memory_order_acquire); within != nullptr && !net::left_politely(error)) within->fail(error);
}

void Peers::check() const {
  const std::lock_guard lock(mutex_);
  if (error_) throw Failure{*error_};
}

void Peers::check_others() const {
  const std::lock_guard lock(mutex_);
  if (error_ && !net::left_politely(*error_)) throw Failure{*error_};
}

}  // namespace cohort::collective
