#include "cohort/collective/operations/hierarchy.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>

#include "cohort/collective/peers/plan_execution.h"

namespace cohort::collective {
namespace {

constexpr std::size_t kChunkBytes = 2_MiB;   // 1 MiB reached less of the line in the run that tried it: docs/bench.md
constexpr std::size_t kBlockBytes = 64_KiB;  // what a rank of the host reduces at a time
constexpr std::size_t kWindow = 4;           // chunks between the two steps inside a host
constexpr std::size_t kSlots = kWindow + 2;  // staging buffers: one is filled while another may still be read
constexpr std::size_t kAhead = kWindow;      // chunks whose first receive is posted: no rank is further ahead of another than that
constexpr Seconds kPollInterval{0.5e-3};     // while waiting for one chunk: how often the others are advanced
static_assert(kWindow + kAhead <= kFlows);

class Hierarchy {
 public:
  Hierarchy(Peers& peers, Piece data, const Reduction& how, Plan (*between)(int, int, std::size_t))
      : peers_(peers),
        local_peers_(peers.inside()),
        hosts_(peers.hosts()),
        host_(hosts_.of(peers.rank())),
        me_(hosts_.local_rank(peers.rank())),
        data_(data),
        how_(how),
        between_(between),
        shares_(hosts_.fewest()),
        each_(kChunkBytes / size_of(data.dtype)),
        chunks_((data.count + each_ - 1) / each_),
        window_(std::min(kWindow, chunks_)) {
    for (int h = 0; h < hosts_.count() && me_ < shares_; ++h) owners_.push_back(hosts_.members(h)[static_cast<std::size_t>(me_)]);
  }

  void run() {
    if (chunks_ == 0) return;
    open();
    for (std::size_t t = 0; t < kAhead; ++t) prepare(t);
    for (std::size_t t = 0; t < chunks_ + window_; ++t) {
      const bool comes = t < chunks_, goes = t >= window_;
      if (goes) finish_oldest();
      if (comes) fill(t);
      if (local_peers_ != nullptr) local_peers_->sync();  // inputs of t and results of t - window_ are there
      const int blocks = comes ? reduce_inside(t) : 0;
      if (goes) copy_results(t - window_);
      if (blocks > 0) local_peers_->await_work(blocks);
      if (comes) start_between_hosts(t);
    }
    if (local_peers_ != nullptr) local_peers_->sync();  // no rank reads our memory any more
  }

 private:
  Range chunk(std::size_t t) const { return {t * each_, std::min(data_.count, (t + 1) * each_)}; }
  Range share(std::size_t t, int owner) const {  // within the chunk
    return part_of(chunk(t).size(), shares_, owner, kCacheLine / size_of(data_.dtype));
  }
  std::size_t bytes(std::size_t elements) const { return elements * size_of(data_.dtype); }
  Piece mine(std::size_t t) const { return data_.part(chunk(t).first, chunk(t).size()); }
  // Where rank `r` of this host has chunk t.
  std::byte* at(int r, std::size_t t) const {
    return bases_[static_cast<std::size_t>(r)] + bytes(in_place_ ? chunk(t).first : t % kSlots * each_);
  }

  void open() {
    if (local_peers_ == nullptr) {
      bases_.assign(1, static_cast<std::byte*>(data_.data));
      return;
    }
    in_place_ = local_peers_->open(peers_.arena()->locate(data_.data, data_.bytes()), [](std::byte*) {}) == StartMode::in_place;
    if (!in_place_) {
      const Region& scratch = local_peers_->shared_scratch(std::min(kSlots, chunks_) * kChunkBytes);
      local_peers_->open(peers_.arena()->locate(scratch.data(), scratch.bytes()), [](std::byte*) {});
    }
    for (int r = 0; r < local_peers_->size(); ++r) bases_.push_back(local_peers_->buffer_of(r));
  }

  void fill(std::size_t t) {
    if (!in_place_) std::memcpy(at(me_, t), mine(t).data, mine(t).bytes());
  }

  // Blocks of all shares, claimed by the ranks that have a core.
  int reduce_inside(std::size_t t) {
    if (local_peers_ == nullptr) {
      if (how_.pre != 1.0) kernels().scale(data_.dtype, at(0, t), chunk(t).size(), how_.pre);
      return 0;
    }
    const std::size_t block = kBlockBytes / size_of(data_.dtype);
    const auto per_share = static_cast<int>((share(t, 0).size() + block - 1) / block);  // the first share is the largest
    const int total = per_share * shares_;
    std::vector<const void*> sources(bases_.size());
    for (int b = local_peers_->control_block()->claim(total); b >= 0; b = local_peers_->control_block()->claim(total)) {
      const int owner = b / per_share;
      const Range whole = share(t, owner);
      const std::size_t first = std::min(whole.last, whole.first + static_cast<std::size_t>(b % per_share) * block);
      const std::size_t count = std::min(whole.last, first + block) - first;
      for (std::size_t r = 0; r < sources.size(); ++r) sources[r] = at(static_cast<int>(r), t) + bytes(first);
      void* const target = at(owner, t) + bytes(first);
      if (count > 0) kernels().reduce({how_.dtype, how_.op, how_.pre, 1.0}, sources, {&target, 1}, count);
      local_peers_->control_block()->complete(total);
    }
    return total;
  }

  // Our share of chunk t gets its PlanExecution ..
  void prepare(std::size_t t) {
    if (t >= chunks_ || me_ >= shares_) return;
    const std::size_t slots = std::min(kWindow + kAhead, chunks_), slot = round_up(bytes(share(0, 0).size()), kCacheLine);
    const Range range = share(t, me_);
    const Piece part{at(me_, t) + bytes(range.first), range.size(), data_.dtype, data_.device};
    std::byte* const scratch = peers_.scratch(slots * slot) + t % slots * slot;
    parts_.push_back(part);
    executions_.emplace_back(peers_, owners_, static_cast<int>(t % kFlows), part, how_, between_(host_, hosts_.count(), range.size()),
                             scratch);
    executions_.back().post_early();
  }

  // .. which starts when the ranks of this host have reduced it.
  void start_between_hosts(std::size_t t) {
    under_way_ += me_ < shares_ ? 1 : 0;
    advance_all();
    prepare(t + kAhead);
  }

  bool advance_all() {  // true: the oldest is done
    for (std::size_t i = under_way_; i-- > 1;) executions_[i].advance();
    return under_way_ == 0 || executions_.front().advance();
  }

  // Until the oldest chunk is done between hosts; the others advance meanwhile.
  void finish_oldest() {
    if (me_ >= shares_) return;
    while (!advance_all()) executions_.front().wait(kPollInterval);
    if (how_.post != 1.0) kernels().scale(data_.dtype, parts_.front().data, parts_.front().count, how_.post);
    executions_.pop_front();
    parts_.pop_front();
    --under_way_;
  }

  void copy_results(std::size_t t) {
    for (int owner = 0; local_peers_ != nullptr && owner < shares_; ++owner) {
      const Range range = share(t, owner);
      if (range.size() == 0 || (owner == me_ && in_place_)) continue;
      std::memcpy(mine(t).part(range.first, range.size()).data, at(owner, t) + bytes(range.first), bytes(range.size()));
    }
  }

  Peers& peers_;
  Peers* const local_peers_;  // null: no other rank on this host
  const Hosts& hosts_;
  const int host_, me_;  // our host, and our local rank on it
  const Piece data_;
  const Reduction how_;
  Plan (*const between_)(int, int, std::size_t);
  const int shares_;
  const std::size_t each_;    // elements of a chunk
  const std::size_t chunks_;  // and how many there are
  const std::size_t window_;
  std::vector<int> owners_;  // the owners of our share, by host
  bool in_place_ = true;
  std::vector<std::byte*> bases_;         // of the ranks on this host
  std::deque<PlanExecution> executions_;  // the oldest first ..
  std::size_t under_way_ = 0;             // .. of which these have started
  std::deque<Piece> parts_;               // the data of each
};

}  // namespace

// Links between hosts and memory inside work at the same time; the first and the last chunk overlap with nothing.
Seconds hierarchy_cost(const Shape& shape, const Calibration& k, double rounds) {
  const double bytes = static_cast<double>(shape.bytes), h = shape.hosts, most = shape.most;
  const double chunks = std::max(1.0, bytes / static_cast<double>(kChunkBytes));
  Shape host = shape;
  host.ranks = shape.most;
  const Seconds steps = (chunks + static_cast<double>(kWindow)) * 2 * sync_cost(host, k);
  const Seconds inside{bytes * (most + 1 + 2 * (most - 1)) / k.update_rate + crowding(host) * 2 * bytes / k.stage_rate};
  const Seconds between{bytes * 2 * (h - 1) / h / k.between_rate + bytes / most / k.reduce_rate};
  return Seconds{rounds * k.between_s} + steps + std::max(inside, between) + std::min(inside, between) / chunks;
}

void reduce_hierarchically(Peers& peers, Piece data, const Reduction& how, Plan (*between)(int, int, std::size_t)) {
  Hierarchy hierarchy(peers, data, how, between);
  peers.or_abort([&] { hierarchy.run(); });
}

}  // namespace cohort::collective
