// D-PSGD (Lian et al. 2017): every step a rank averages its model with its neighbours' in a graph, and adds its own gradient.
//   x_i <- sum_j W_ij x_j  +  (update(x_i, g_i) - x_i)        W symmetric, rows and columns sum to 1
// The models travel while backward runs, from a copy. A rank receives P for each neighbour a step, whatever the number of ranks; no
// collective is on the way, and no vote: a rank's step is its own. The job stands for the mean of the models. Laws: mixing keeps the mean;
// without gradients the disagreement shrinks by the second eigenvalue of W a step (graph.h).
#include "cohort/base/error.h"
#include "cohort/sync/elements.h"
#include "cohort/sync/graph.h"
#include "cohort/sync/strategy_row.h"

namespace cohort::sync {
namespace {

constexpr const char* kSent = "sent";  // the model as it was, then what mixing adds to it
constexpr const char* kMixed = "mixed";
constexpr const char* kArrived = "arrived";  // a neighbour's
constexpr Seconds kPatience{300};            // for a neighbour that computes

class Dpsgd final : public Strategy {
 public:
  explicit Dpsgd(std::string graph) : graph_(std::move(graph)) { neighbours(graph_, 0, 1); }
  std::string_view name() const override { return "dpsgd"; }
  Semantics semantics() const override {
    return {.commit_scope = Scope::self, .identical = Scope::self, .sync_scope = Scope::self, .guarantee = Guarantee::none};
  }
  std::vector<SlotSpec> slots() const override {
    return {{.name = kSent, .in_communicator = true, .kept = false},
            {.name = kMixed, .kept = false},
            {.name = kArrived, .in_communicator = true, .kept = false}};
  }
  double cost(double elements, int ranks) const override { return elements * static_cast<double>(neighbours(graph_, 0, ranks).size() - 1); }
  SyncSchedule schedule(std::int64_t) const override {
    return {.commit = Scope::self, .exchanges_before = true, .exchanges_after = false, .ends_round = true};
  }

  void open(Site& site) override {
    near_ = neighbours(graph_, site.comm.rank().value, site.comm.size());
    if (near_.size() > 1) channel_ = site.comm.channel();
  }

  // Every neighbour's model arrives in turn, by rank; all sends are on their way before the first is waited for.
  void exchange_models(Bucket& bucket, const Wire& wire) override {
    const Piece sent = bucket.slot(kSent), mixed = bucket.slot(kMixed), arrived = bucket.slot(kArrived);
    copy(sent, bucket.parameters());
    fill(mixed, 0);
    const Deadline deadline = wire.deadline.value_or(Deadline::in(kPatience));
    const auto tag = static_cast<std::uint32_t>(bucket.index());
    const int me = wire.comm->rank().value;
    std::vector<collective::Pending> sends;
    for (const Neighbour& n : near_)
      if (n.rank != me) sends.push_back(channel_->send(Rank{n.rank}, tag, sent));
    for (const Neighbour& n : near_) {
      if (n.rank != me) channel_->recv(Rank{n.rank}, tag, arrived).wait(deadline);
      add_scaled(mixed, n.weight, n.rank == me ? sent : arrived);
    }
    for (collective::Pending& p : sends) p.wait(deadline);
    subtract(sent, mixed, bucket.parameters());
  }
  Piece exchanged(const Bucket& bucket) const override { return bucket.slot(kSent); }
  void mix_models(Bucket& bucket, const Decision&) override { add(bucket.parameters(), bucket.slot(kSent)); }

 private:
  const std::string graph_;
  std::vector<Neighbour> near_;
  std::unique_ptr<collective::PeerChannel> channel_;
};

const SpecSchema& schema() {
  static const SpecSchema schema{
      "dpsgd",
      "every rank averages its model with its neighbours' in every step",
      {{.name = "graph", .type = SpecParam::Type::word, .doc = "who the neighbours are", .preset = "ring", .words = graph_names()}}};
  return schema;
}
std::unique_ptr<Strategy> build(const SpecValues& values) { return std::make_unique<Dpsgd>(values.word("graph")); }

}  // namespace

extern const StrategyRow row_dpsgd{
    .name = "dpsgd", .schema = schema, .make = build, .limit = "", .conserves = Conserves::consensus, .contraction = [](int ranks) {
      return contraction("ring", ranks);
    }};

}  // namespace cohort::sync
