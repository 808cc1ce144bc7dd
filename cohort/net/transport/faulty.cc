#include "cohort/net/transport/faulty.h"

#include <algorithm>
#include <atomic>
#include <thread>

namespace cohort::net {
namespace {

std::uint64_t mix(std::uint64_t x) {  // splitmix64's finisher: every input bit reaches every output bit
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

double unit(std::uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }  // [0, 1)

bool chosen(const FaultPlan& plan, Rank to) {
  return plan.peers.empty() || std::find(plan.peers.begin(), plan.peers.end(), to) != plan.peers.end();
}

// Owns the changed copy until the inner send is over.
class CorruptedSend final : public Pending::State {
 public:
  CorruptedSend(Link& link, ConstBytes bytes, Tag tag, std::uint64_t bit) : bytes_(bytes.begin(), bytes.end()) {
    bit %= bytes_.size() * 8;
    bytes_[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
    inner_ = link.send(bytes_, tag);
  }
  void wait(Deadline deadline) override { inner_.wait(deadline); }
  bool poll() override { return inner_.poll(); }
  bool done() const override { return inner_.done(); }
  void detach() override { inner_.detach(); }

 private:
  std::vector<std::byte> bytes_;
  Pending inner_;  // after bytes_: destroyed before them
};

class FaultyLink final : public Link {
 public:
  FaultyLink(Link& inner, const FaultPlan& plan, Rank from, Rank to) : inner_(inner), plan_(plan), from_(from), to_(to) {}
  Pending send(ConstBytes bytes, Tag tag) override {
    const std::uint64_t n = sent_.fetch_add(1);
    const PlannedFault f = planned_fault(plan_, from_, to_, n);
    if (f.cut)
      inner_.fail({Kind::peer_lost,
                   fmt::format("the link from rank {} to rank {} was cut after {} messages (a planned fault)", from_.value, to_.value,
                               *plan_.cut_after),
                   to_});
    if (f.delay > Seconds{0}) std::this_thread::sleep_for(f.delay);
    if (f.drop && !f.cut) return {};
    if (f.corrupt && !bytes.empty()) return Pending{std::make_shared<CorruptedSend>(inner_, bytes, tag, f.bit)};
    return inner_.send(bytes, tag);
  }
  Pending recv(Bytes bytes, Tag tag) override { return inner_.recv(bytes, tag); }
  void fail(const Error& error) noexcept override { inner_.fail(error); }

 private:
  Link& inner_;
  const FaultPlan& plan_;
  const Rank from_, to_;
  std::atomic<std::uint64_t> sent_{0};
};

class FaultyPeerLinks final : public PeerLinks {
 public:
  FaultyPeerLinks(std::unique_ptr<PeerLinks> inner, FaultPlan plan) : plan_(std::move(plan)), inner_(std::move(inner)) {
    for (Rank r{0}; r.value < inner_->size(); ++r.value)
      links_.push_back(std::make_unique<FaultyLink>(inner_->link(r), plan_, inner_->rank(), r));
  }
  Rank rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  Epoch epoch() const override { return inner_->epoch(); }
  std::string_view transport() const override { return inner_->transport(); }
  bool shares_memory() const override { return !plan_.any() && inner_->shares_memory(); }
  int host(Rank peer) const override { return plan_.any() ? peer.value : inner_->host(peer); }
  Link& link(Rank peer) override {
    inner_->link(peer);  // throws for a rank that does not exist
    return *links_[static_cast<std::size_t>(peer.value)];
  }
  Message next(TagRange range, Deadline deadline) override { return inner_->next(range, deadline); }
  std::optional<Message> try_next(TagRange range) override { return inner_->try_next(range); }
  bool await(const std::function<bool()>& done, Deadline deadline) override { return inner_->await(done, deadline); }
  bool poll_once() override { return inner_->poll_once(); }
  void wake_waiters() noexcept override { inner_->wake_waiters(); }
  void discard(TagRange range) override { inner_->discard(range); }
  std::optional<Error> failure(Rank peer) const override { return inner_->failure(peer); }
  void abort(const Error& error) noexcept override { inner_->abort(error); }
  int watch(std::function<void(Rank, const Error&)> on_failure) override { return inner_->watch(std::move(on_failure)); }
  void unwatch(int id) override { inner_->unwatch(id); }

 private:
  const FaultPlan plan_;
  const std::unique_ptr<PeerLinks> inner_;
  std::vector<std::unique_ptr<FaultyLink>> links_;
};

}  // namespace

PlannedFault planned_fault(const FaultPlan& plan, Rank from, Rank to, std::uint64_t n) {
  PlannedFault f;
  if (from == to || !chosen(plan, to)) return f;
  const auto link = static_cast<std::uint64_t>(from.value) << 32 | static_cast<std::uint32_t>(to.value);
  const std::uint64_t base = mix(mix(mix(plan.seed) ^ link) ^ n);
  const auto draw = [&](std::uint64_t which) { return mix(base + which); };
  if (unit(draw(1)) < plan.delay) f.delay = plan.delay_span * unit(draw(2));
  f.drop = unit(draw(3)) < plan.drop;
  f.corrupt = unit(draw(4)) < plan.corrupt;
  f.bit = draw(5);
  f.cut = plan.cut_after && n >= *plan.cut_after;
  return f;
}

std::unique_ptr<PeerLinks> faulty_peer_links(std::unique_ptr<PeerLinks> inner, FaultPlan plan) {
  for (const double p : {plan.delay, plan.drop, plan.corrupt})
    if (!(p >= 0 && p <= 1)) throw_failure(Kind::usage, "faulty: a probability of {} for delay, drop or corrupt; give 0 to 1", p);
  return std::make_unique<FaultyPeerLinks>(std::move(inner), std::move(plan));
}

}  // namespace cohort::net
