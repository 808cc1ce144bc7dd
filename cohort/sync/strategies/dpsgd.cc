// D-PSGD (Lian et al. 2017): every step a rank averages its model with its neighbours' in a graph, and adds its own gradient.
//   x_i <- sum_j W_ij x_j  +  (update(x_i, g_i) - x_i)        rows and columns of W sum to 1
// The models travel while backward runs, from a copy. A rank receives P for each neighbour a step, whatever the number of ranks; no
// collective is on the way, and no vote: a rank's step is its own. The job stands for the mean of the models. Laws: mixing keeps the mean;
// without gradients the disagreement shrinks by the second eigenvalue of W a step (graph.h).
#include "cohort/sync/elements.h"
#include "cohort/sync/gossip.h"

namespace cohort::sync {
namespace {

constexpr const char* kSent = "sent";  // the model as it was, then what mixing adds to it
constexpr const char* kMixed = "mixed";
constexpr const char* kArrived = "arrived";  // a neighbour's

class Dpsgd final : public Gossip {
 public:
  explicit Dpsgd(const SpecValues& values) : choice_(values, Stochastic::doubly) {}
  std::string_view name() const override { return "dpsgd"; }
  std::vector<SlotSpec> slots() const override {
    return {{.name = kSent, .in_communicator = true, .kept = false},
            {.name = kMixed, .kept = false},
            {.name = kArrived, .in_communicator = true, .kept = false}};
  }
  double cost(double elements, int ranks) const override { return elements * received(choice_.of(ranks)); }
  SyncSchedule schedule(std::int64_t) const override {
    return {.commit = Scope::self, .exchanges_before = true, .exchanges_after = false, .ends_round = true};
  }

  void open(Site& site) override {
    choice_.compare(site.comm);
    graph_ = choice_.of(site.comm.size());
    Gossip::open(site);
  }

  void exchange_models(Bucket& bucket, const Wire& wire) override {
    const Piece sent = bucket.slot(kSent), mixed = bucket.slot(kMixed);
    copy(sent, bucket.parameters());
    fill(mixed, 0);
    const auto meeting = meeting_of(mixing_of(graph_, wire.number), wire.comm->rank().value);
    exchange(bucket, wire, meeting, sent, bucket.slot(kArrived),
             [&](const Neighbour& n, const Piece& model) { add_scaled(mixed, n.weight, model); });
    subtract(sent, mixed, bucket.parameters());
  }
  Piece exchanged(const Bucket& bucket) const override { return bucket.slot(kSent); }
  void mix_models(Bucket& bucket, const Decision&) override { add(bucket.parameters(), bucket.slot(kSent)); }

 private:
  const GraphChoice choice_;
  Graph graph_;
};

const SpecSchema& schema() {
  static const SpecSchema schema{"dpsgd", "every rank averages its model with its neighbours' in every step", graph_params("ring")};
  return schema;
}
std::unique_ptr<Strategy> build(const SpecValues& values) { return std::make_unique<Dpsgd>(values); }

}  // namespace

extern const StrategyRow row_dpsgd{
    .name = "dpsgd", .schema = schema, .make = build, .limit = "", .conserves = Conserves::consensus, .contraction = [](int ranks) {
      return contraction(make_graph("ring", ranks));
    }};

}  // namespace cohort::sync
