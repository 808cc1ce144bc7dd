// Hierarchical gossip (as Bagua's, Gan et al. 2021): every step the ranks of a host average their models, and hosts exchange theirs with
// their neighbours in a graph.
//   x_i <- update(x_i, g_i)        y_h = the mean of x_i over the ranks i of host h        x_i <- sum_k W_hk y_k
// Consecutive ranks share a host, as launchers place them, per_host on each. The first of a host speaks for it: over the network goes a
// model for each neighbour of the host, whatever the number of its ranks. A rank receives 2 P (s - 1) / s of its host's, s ranks a host,
// P (s - 1) / s to hear what came of it, and of other hosts' models 1/s of what the host hears, on average. The job stands for the mean of
// the models. Laws: the mean is kept; the ranks of a host have the same model, to the bit; with the full graph and plain SGD it is
// all_reduce.
#include "cohort/base/error.h"
#include "cohort/sync/elements.h"
#include "cohort/sync/gossip.h"

namespace cohort::sync {
namespace {

constexpr const char* kSent = "sent";    // the host's, then what mixing makes of it
constexpr const char* kMixed = "mixed";  // of hosts
constexpr const char* kArrived = "arrived";

class HierarchicalGossip final : public Gossip {
 public:
  explicit HierarchicalGossip(const SpecValues& values)
      : choice_(values, Stochastic::doubly), per_host_(static_cast<int>(values.integer("per_host"))) {}
  std::string_view name() const override { return "hierarchical_gossip"; }
  std::vector<SlotSpec> slots() const override {
    return {{.name = kSent, .in_communicator = true, .kept = false},
            {.name = kMixed, .in_communicator = true, .kept = false},
            {.name = kArrived, .in_communicator = true, .kept = false}};
  }
  double cost(double elements, int ranks) const override {
    const int size = size_of_host(ranks), hosts = ranks / size;
    const double others = static_cast<double>(size - 1) / size;
    return elements * (hosts == 1 ? 2 * others : 3 * others + received(choice_.of(hosts)) / size);
  }
  // Behind the update, where no lane is: a host has one communicator.
  SyncSchedule schedule(std::int64_t) const override {
    return {.commit = Scope::self, .exchanges_before = false, .exchanges_after = true, .ends_round = true};
  }

  void open(Site& site) override {
    const int me = site.comm.rank().value, ranks = site.comm.size();
    size_ = size_of_host(ranks);
    choice_.compare(site.comm);
    graph_ = choice_.of(ranks / size_);
    host_ = site.comm.split(me / size_, me);
    Gossip::open(site);
  }

  void exchange_models(Bucket& bucket, const Wire& wire) override {
    const Piece sent = bucket.slot(kSent), mixed = bucket.slot(kMixed);
    copy(sent, bucket.parameters());
    if (size_ > 1) host_->all_reduce(sent, collective::Op::average, wire.call(bucket));
    if (wire.comm->size() == size_) return;
    if (host_->rank().value == 0) speak(bucket, wire, sent, mixed);
    if (size_ > 1) host_->broadcast(mixed, Rank{0}, wire.call(bucket));
    copy(sent, mixed);
  }
  Piece exchanged(const Bucket& bucket) const override { return bucket.slot(kSent); }
  void mix_models(Bucket& bucket, const Decision&) override { copy(bucket.parameters(), bucket.slot(kSent)); }

 private:
  int size_of_host(int ranks) const {
    if (ranks == 1) return 1;
    if (ranks % per_host_ != 0)
      throw_failure(Kind::usage, "hierarchical_gossip: {} ranks are not hosts of {} (per_host); every host has as many", ranks, per_host_);
    return per_host_;
  }
  // With the first ranks of other hosts.
  void speak(const Bucket& bucket, const Wire& wire, const Piece& sent, const Piece& mixed) const {
    Meeting meeting = meeting_of(mixing_of(graph_, wire.number), wire.comm->rank().value / size_);
    for (Neighbour& n : meeting.reads) n.rank *= size_;
    for (int& reader : meeting.readers) reader *= size_;
    fill(mixed, 0);
    exchange(bucket, wire, meeting, sent, bucket.slot(kArrived),
             [&](const Neighbour& n, const Piece& model) { add_scaled(mixed, n.weight, model); });
  }

  const GraphChoice choice_;
  const int per_host_;
  int size_ = 1;
  Graph graph_;  // of hosts
  std::unique_ptr<collective::Communicator> host_;
};

const SpecSchema& schema() {
  static const SpecSchema schema = [] {
    auto params = graph_params("ring");
    params.push_back({.name = "per_host",
                      .type = SpecParam::Type::integer,
                      .doc = "ranks of a host, which are consecutive",
                      .preset = "1",
                      .low = 1,
                      .high = 1e6});
    return SpecSchema{"hierarchical_gossip", "ranks of a host average their models every step, and hosts gossip", params};
  }();
  return schema;
}
std::unique_ptr<Strategy> build(const SpecValues& values) { return std::make_unique<HierarchicalGossip>(values); }

}  // namespace

extern const StrategyRow row_hierarchical_gossip{.name = "hierarchical_gossip",
                                                 .schema = schema,
                                                 .make = build,
                                                 .limit = "hierarchical_gossip(graph=full)",
                                                 .conserves = Conserves::consensus,
                                                 .contraction = [](int ranks) { return contraction(make_graph("ring", ranks)); }};

}  // namespace cohort::sync
