#include "cohort/collective/peers/peers.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "cohort/collective/shared/wait_timer.h"
#include "cohort/net/transport/transport_base.h"

namespace cohort::collective {
namespace {

thread_local Seconds total_waited{0};

constexpr Seconds kLossDetection{1};   // from the moment the kernel frees a dead process's memory until it closes its connections
constexpr Seconds kPollInterval{0.1};  // how often a wait on one peer checks whether another was lost

// The smallest and the largest digest, with the ranks that have them. Reducing minimum and maximum tells every rank whether all are equal.
struct Extremes {
  Fingerprint low, high;
  std::int32_t low_rank = 0, high_rank = 0;

  void absorb(const Extremes& other) {
    if (other.low.digest < low.digest) low = other.low, low_rank = other.low_rank;
    if (other.high.digest > high.digest) high = other.high, high_rank = other.high_rank;
  }
};

Hosts hosts_of(const net::PeerLinks& links, const std::vector<Rank>& members) {
  std::vector<int> labels;
  for (const Rank member : members) labels.push_back(links.host(member));
  return Hosts(labels);
}

}  // namespace

Peers::Peers(std::shared_ptr<net::PeerLinks> links, std::shared_ptr<Arena> arena, std::vector<Rank> members, int me, std::uint32_t channel)
    : links_(std::move(links)),
      arena_(std::move(arena)),
      members_(std::move(members)),
      me_(me),
      channel_(channel),
      hosts_(hosts_of(*links_, members_)) {
  watch_ = links_->watch([this](Rank who, const Error& error) {
    if (std::find(members_.begin(), members_.end(), who) != members_.end()) fail(error);
  });
}

Peers::~Peers() {
  links_->unwatch(watch_);
  links_->discard({channel_, 0, ~0u});
}

void Peers::share_control_block(SpinPolicy spin_policy, Seconds warn_after, Deadline deadline) {
  if (hosts_.count() == 1 && size() > 1) return make_control_block(spin_policy, warn_after, deadline);
  const auto& here = hosts_.members(hosts_.of(me_));
  if (here.size() == 1) return;
  std::vector<Rank> members;
  for (const int m : here) members.push_back(members_[static_cast<std::size_t>(m)]);
  const auto channel = static_cast<std::uint32_t>(mix(channel_, here.size()) >> 32) | 2u;  // as a split's: never the world's
  local_peers_ = std::make_unique<Peers>(links_, arena_, std::move(members), hosts_.local_rank(me_), channel);
  local_peers_->make_control_block(SpinPolicy::for_ranks(local_peers_->size()), warn_after, deadline);
  local_peers_->control_block_->set_names(here);  // errors name ranks of the communicator, not local ranks
  published_local_peers_.store(local_peers_.get(), std::memory_order_release);
  const std::lock_guard lock(mutex_);
  if (error_ && !net::left_politely(*error_)) local_peers_->fail(*error_);  // it happened before fail() could know of it
}

void Peers::make_control_block(SpinPolicy spin_policy, Seconds warn_after, Deadline deadline) {
  print_ = {.collective = Collective::split};
  deadline_ = deadline;
  check_others();  // a rank that has its control block already may be gone before we have ours
  Segment segment;
  SegmentName name;
  if (me_ == 0) {
    segment = Segment::create(SharedControlBlock::bytes_for(size()), "cohort-control-block", false);
    name = segment.name();
    char opened = 0;
    for (int r = 1; r < size(); ++r) exchange(r, bytes_of(name), r, writable_bytes_of(opened));  // they hold it: our descriptor may close
  } else {
    auto announcement = recv(0, writable_bytes_of(name));
    finish(announcement);
    std::string why;
    auto found = Segment::open(name, false, &why);
    if (!found) await_loss();
    if (!found) throw_failure(Kind::system, "rank {} cannot map the shared control block of rank 0: {}", me_, why);
    segment = std::move(*found);
    const char opened = 1;
    auto confirmation = send(0, bytes_of(opened));
    finish(confirmation);
  }
  control_block_ = std::make_unique<SharedControlBlock>(std::move(segment), me_, size(), spin_policy, warn_after);
  control_block_->set_check(&failed_, [this] { check(); });
  published_control_block_.store(control_block_.get(), std::memory_order_release);
}

void Peers::begin(const Fingerprint& print, std::optional<Deadline> deadline, Seconds timeout) {
  print_ = print;
  deadline_ = deadline;
  timeout_ = timeout;
  if (failed()) check();
  if (local_peers_) local_peers_->begin(print, deadline, timeout);
}

Deadline Peers::deadline() {
  if (!deadline_) deadline_ = Deadline::in(timeout_);
  return *deadline_;
}

void Peers::compare() const {
  for (int r = 0; r < size(); ++r) {
    if (control_block_->line(r).digest == print_.digest) continue;
    // Some rank differs from us, perhaps all. Name the same pair on every rank: rank 0 and the first that differs from it.
    const auto& first = control_block_->descriptor(0).print;
    int other = 1;
    while (other < size() - 1 && control_block_->descriptor(other).print.digest == first.digest) ++other;
    throw Failure{
        {Kind::usage, disagreement(control_block_->descriptor(other).print, other, first, 0), members_[static_cast<std::size_t>(other)]}};
  }
}

StartMode Peers::resolve_start_mode() {
  compare();
  bool all = true;
  bool none = true;
  for (int r = 0; r < size(); ++r) {
    const bool in_region = (control_block_->line(r).flags & SharedControlBlock::kInRegion) != 0;
    all = all && in_region;
    none = none && !in_region;
  }
  if (all) return StartMode::in_place;
  return none ? StartMode::staged : StartMode::unstaged;
}

std::byte* Peers::buffer_of(int rank) {
  try {
    return arena_->map(control_block_->descriptor(rank).where);
  } catch (const Failure&) {
    await_loss();
    throw;
  }
}

// A process whose memory is gone has most likely died; the kernel frees memory a moment before it closes connections, by which that is
// known.
void Peers::await_loss() {
  for (const Deadline limit = Deadline::in(kLossDetection); !limit.passed(); std::this_thread::sleep_for(1ms)) check();
}

void Peers::sync() {
  control_block_->post(print_.digest, 0);
  await();
}

void Peers::await() {
  if (control_block_->await_briefly()) return;
  const WaitTimer waiting;
  control_block_->await(print_, deadline());
}

void Peers::await_work(int total) {
  if (control_block_->await_work_briefly(total)) return;
  const WaitTimer waiting;
  control_block_->await_work(total, print_, deadline());
}

void Peers::agree() {
  const WaitTimer waiting;
  Extremes mine{print_, print_, me_, me_};
  for (int distance = 1; distance < size(); distance *= 2) {  // dissemination: after log2(n) rounds every rank has every other's
    Extremes theirs;
    exchange((me_ + distance) % size(), bytes_of(mine), (me_ + size() - distance) % size(), writable_bytes_of(theirs));
    mine.absorb(theirs);
  }
  if (mine.low.digest == mine.high.digest) return;
  if (mine.low_rank < mine.high_rank) std::swap(mine.low, mine.high), std::swap(mine.low_rank, mine.high_rank);
  throw Failure{
      {Kind::usage, disagreement(mine.low, mine.low_rank, mine.high, mine.high_rank), members_[static_cast<std::size_t>(mine.low_rank)]}};
}

Seconds wait_time() { return total_waited; }
WaitTimer::~WaitTimer() { total_waited += Seconds(Clock::now() - start_); }

Tag Peers::tag(int flow) const {
  return {channel_, kCollectiveTags | static_cast<std::uint32_t>(print_.number * kFlows + static_cast<std::uint64_t>(flow))};
}

net::Pending Peers::send(int to, ConstBytes bytes, int flow) {
  return links_->link(members_[static_cast<std::size_t>(to)]).send(bytes, tag(flow));
}

net::Pending Peers::recv(int from, Bytes bytes, int flow) {
  return links_->link(members_[static_cast<std::size_t>(from)]).recv(bytes, tag(flow));
}

void Peers::exchange(int to, ConstBytes out, int from, Bytes in) {
  auto incoming = recv(from, in);
  auto outgoing = send(to, out);
  finish(incoming);
  finish(outgoing);
}

void Peers::finish(net::Pending& pending, Deadline deadline) const {
  try {
    while (!pending.wait_until(deadline.sooner(Deadline::in(kPollInterval)))) {
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
  if (const SharedControlBlock* const control_block = published_control_block_.load()) control_block->wake();
  // A rank of another host that left politely had done its part: a rank of this host that misses it reports that itself.
  if (Peers* const within = published_local_peers_.load(std::memory_order_acquire); within != nullptr && !net::left_politely(error))
    within->fail(error);
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
