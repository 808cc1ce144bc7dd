// Stochastic gradient push (Assran et al. 2019): a rank hands its model on in shares, and with it the same shares of a weight, so that who
// hears more than others does not count more. For directed graphs, in which no rank waits for whom it sends to.
//   x_i <- sum_j W_ij (x_j + update(z_j, g_j) - z_j)        w_i <- sum_j W_ij w_j        z_i <- x_i / w_i        columns of W sum to 1
// Parameters are z, at which gradients are taken; x and w are kept, w begins as 1. A rank receives P, and a number for each tensor, of each
// it hears, a step. The job stands for sum x / sum w. Laws: without gradients neither sum changes, to the bit on dyadic numbers, whatever
// the directed graph; z goes to the mean where plain gossip goes elsewhere; over the full graph with plain SGD it is all_reduce.
#include "cohort/sync/elements.h"
#include "cohort/sync/gossip.h"

namespace cohort::sync {
namespace {

constexpr const char* kSum = "sum";        // x
constexpr const char* kWeight = "weight";  // w
constexpr const char* kSent = "sent";
constexpr const char* kMixed = "mixed";
constexpr const char* kMixedWeight = "mixed_weight";
constexpr const char* kArrived = "arrived";
constexpr const char* kArrivedWeight = "arrived_weight";

class PushSum final : public Gossip {
 public:
  explicit PushSum(const SpecValues& values) : choice_(values, Stochastic::columns) {}
  std::string_view name() const override { return "push_sum"; }
  std::vector<SlotSpec> slots() const override {
    using Begins = SlotSpec::Begins;
    return {{.name = kSum, .share = Share::each, .merge = Merge::drop, .begins = Begins::parameters},
            {.name = kWeight, .share = Share::each, .merge = Merge::drop, .begins = Begins::one, .per_tensor = true},
            {.name = kSent, .in_communicator = true, .kept = false},
            {.name = kMixed, .kept = false},
            {.name = kMixedWeight, .kept = false, .per_tensor = true},
            {.name = kArrived, .in_communicator = true, .kept = false},
            {.name = kArrivedWeight, .in_communicator = true, .kept = false, .per_tensor = true}};
  }
  double cost(double elements, int ranks) const override { return elements * received(choice_.of(ranks)); }
  SyncSchedule schedule(std::int64_t) const override {
    return {.commit = Scope::self, .exchanges_before = false, .exchanges_after = true, .ends_round = true};
  }

  void open(Site& site) override {
    choice_.compare(site.comm);
    graph_ = choice_.of(site.comm.size());
    Gossip::open(site);
  }

  void exchange_models(Bucket& bucket, const Wire& wire) override {
    const Piece sent = bucket.slot(kSent), mixed = bucket.slot(kMixed), weight = bucket.slot(kMixedWeight);
    take_update(bucket, sent, wire.comm->size());
    fill(mixed, 0);
    fill(weight, 0);
    const auto meeting = meeting_of(mixing_of(graph_, wire.number), wire.comm->rank().value);
    exchange(
        bucket, wire, meeting, bucket.slot(kWeight), bucket.slot(kArrivedWeight),
        [&](const Neighbour& n, const Piece& w) { add_scaled(weight, n.weight, w); }, 1);
    exchange(bucket, wire, meeting, sent, bucket.slot(kArrived),
             [&](const Neighbour& n, const Piece& x) { add_scaled(mixed, n.weight, x); });
  }
  Piece exchanged(const Bucket& bucket) const override { return bucket.slot(kMixed); }
  void mix_models(Bucket& bucket, const Decision&) override {
    copy(bucket.slot(kSum), bucket.slot(kMixed));
    copy(bucket.slot(kWeight), bucket.slot(kMixedWeight));
    divide(bucket.parameters(), bucket.slot(kSum), weight_of(bucket));
  }

  void consensus(Bucket& bucket, const Piece& into, const Wire& wire) override {
    copy(into, bucket.slot(kSum));
    wire.average(bucket, into);
    double weight = weight_of(bucket);
    wire.comm->all_reduce(collective::piece(std::span(&weight, 1)), collective::Op::average, wire.call(bucket));
    divide(into, into, weight);
  }

 private:
  // All tensors of a bucket have the same.
  static double weight_of(const Bucket& bucket) {
    const Piece w = bucket.slot(kWeight);
    return w.dtype == Dtype::f32 ? *static_cast<const float*>(w.data) : *static_cast<const double*>(w.data);
  }
  // x + (update(z) - z): parameters are the updated z, and the z of before is x / w.
  static void take_update(const Bucket& bucket, const Piece& into, int ranks) {
    if (ranks == 1) return copy(into, bucket.parameters());
    divide(into, bucket.slot(kSum), weight_of(bucket));
    subtract(into, bucket.parameters(), into);
    add(into, bucket.slot(kSum));
  }

  const GraphChoice choice_;
  Graph graph_;
};

const SpecSchema& schema() {
  static const SpecSchema schema{"push_sum", "every rank hands shares of its model and of a weight on, along a directed graph",
                                 graph_params("one_peer")};
  return schema;
}
std::unique_ptr<Strategy> build(const SpecValues& values) { return std::make_unique<PushSum>(values); }

}  // namespace

extern const StrategyRow row_push_sum{
    .name = "push_sum", .schema = schema, .make = build, .limit = "push_sum(graph=full)", .conserves = Conserves::consensus};

}  // namespace cohort::sync
