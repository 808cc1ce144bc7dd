// Pair averaging: every step the ranks meet in random pairs, and both of a pair take the mean of their models (the mixing of AD-PSGD, Lian
// et al. 2018, with matchings in step instead of clocks of one's own).
//   x_i <- (x_i + x_j) / 2  +  (update(x_i, g_i) - x_i)        j: the partner of i in this step, drawn by seed and step (matching.h)
// The models travel while backward runs, from a copy. A rank receives P a step, whatever the number of ranks; of an odd number one rests.
// The job stands for the mean of the models. Laws: mixing keeps the mean, since what one of a pair gains the other gives; without
// gradients the squared disagreement of n ranks (even) shrinks by (n - 2) / (2 (n - 1)) a step, on average. A rank that only pulls,
// x_i <- (x_i + x_j) / 2 with x_j as it was, keeps no mean: that is pull=true, in which every rank draws a j of its own (KungFu's pair
// averaging). The mean moves by (x_j - x_i) / 2n with every pull, by nothing on average over draws: a random walk that ends, without
// gradients, at a random weighting of the ranks.
#include "cohort/sync/elements.h"
#include "cohort/sync/gossip.h"
#include "cohort/sync/matching.h"

namespace cohort::sync {
namespace {

constexpr const char* kSent = "sent";        // the model as it was, then what mixing adds to it
constexpr const char* kArrived = "arrived";  // the partner's

class PairAveraging final : public Gossip {
 public:
  explicit PairAveraging(bool pull) : pull_(pull) {}
  std::string_view name() const override { return "pair_averaging"; }
  std::vector<SlotSpec> slots() const override {
    return {{.name = kSent, .in_communicator = true, .kept = false}, {.name = kArrived, .in_communicator = true, .kept = false}};
  }
  double cost(double elements, int ranks) const override { return pull_ && ranks > 1 ? elements : elements * (ranks - ranks % 2) / ranks; }
  SyncSchedule schedule(std::int64_t) const override {
    return {.commit = Scope::self, .exchanges_before = true, .exchanges_after = false, .ends_round = true};
  }

  void exchange_models(Bucket& bucket, const Wire& wire) override {
    const Piece sent = bucket.slot(kSent), arrived = bucket.slot(kArrived);
    const int me = wire.comm->rank().value, ranks = wire.comm->size();
    const auto partners = pull_ ? pulled_ranks(wire.step.seed, wire.number, ranks) : matching(wire.step.seed, wire.number, ranks);
    const int partner = partners[static_cast<std::size_t>(me)];
    if (partner == me) return fill(sent, 0);
    copy(sent, bucket.parameters());
    Meeting meeting{.reads = {{partner, 0.5}}, .readers = {}};
    for (int r = 0; r < ranks; ++r)
      if (partners[static_cast<std::size_t>(r)] == me) meeting.readers.push_back(r);
    exchange(bucket, wire, meeting, sent, arrived, [](const Neighbour&, const Piece&) {});
    subtract(sent, arrived, sent);
    scale(sent, 0.5);
  }
  Piece exchanged(const Bucket& bucket) const override { return bucket.slot(kSent); }
  void mix_models(Bucket& bucket, const Decision&) override { add(bucket.parameters(), bucket.slot(kSent)); }

 private:
  const bool pull_;
};

const SpecSchema& schema() {
  static const SpecSchema schema{"pair_averaging",
                                 "every step ranks meet in random pairs, and both take the mean of their models",
                                 {{.name = "pull",
                                   .type = SpecParam::Type::boolean,
                                   .doc = "each draws another rank instead, and takes the mean alone: that of all is not kept",
                                   .preset = "false"}}};
  return schema;
}
std::unique_ptr<Strategy> build(const SpecValues& values) { return std::make_unique<PairAveraging>(values.boolean("pull")); }

}  // namespace

extern const StrategyRow row_pair_averaging{
    .name = "pair_averaging", .schema = schema, .make = build, .limit = "", .conserves = Conserves::consensus};

}  // namespace cohort::sync
