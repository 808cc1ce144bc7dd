// ZeRO (Rajbhandari et al. 2020): every rank updates only the elements it owns. Gradients: reduce-scatter, each rank ends with its own
// piece of the reduced gradient. Parameters: all-gather, after the update (stages 1 and 2) or block by block when they are read (3). What
// is held beside the own piece follows the stage (placement.h). A rank receives 2 P (n - 1) / n elements a step in stages 1 and 2, as with
// all-reduce, and 3 P (n - 1) / n in stage 3. Law: the same bits as all_reduce, since both reduce in the canonical order.
#include "cohort/base/error.h"
#include "cohort/sync/strategy_row.h"

namespace cohort::sync {
namespace {

Placement zero_placement(int stage) {
  Placement p;
  p.agreed.extent = p.master.extent = p.state.extent = Extent::own;
  if (stage >= 2) p.grad.extent = Extent::while_used;
  if (stage >= 3) p.live.extent = Extent::while_used;
  return p;
}

class Zero final : public Strategy {
 public:
  Zero(Placement placement, collective::Op op) : placement_(std::move(placement)), op_(op) {}
  std::string_view name() const override { return "zero"; }
  Semantics semantics() const override { return {.averages = op_ == collective::Op::average}; }
  Placement placement(Rank me, int ranks) const override {
    Placement mine = placement_;
    mine.ranks = ranks;
    mine.me = me.value;
    return mine;
  }
  double cost(double elements, int ranks) const override {
    return (placement_.gathers_parameters() ? 3 : 2) * elements * (ranks - 1) / ranks;
  }
  void reduce_gradients(Bucket& bucket, const Wire& wire) override { wire.reduce(bucket, op_); }

 private:
  const Placement placement_;
  const collective::Op op_;
};

// Files have the state, and in stage 3 the masters; the host has all of a model on a GPU.
void offload(Placement& p, int stage, const std::string& to) {
  constexpr std::string_view kFile = "file:";
  if (to == "none") return;
  if (to == "host") {
    if (stage < 2)
      throw_failure(Kind::usage, "zero(stage={}, offload=host): gradients leave the device as they come, which stages 2 and 3 do", stage);
    p.grad.home = p.agreed.home = p.master.home = p.state.home = Home::host;
    return;
  }
  if (!to.starts_with(kFile) || to.size() == kFile.size())
    throw_failure(Kind::usage, "zero(offload={}): say none, host, or file:FOLDER", to);
  p.folder = to.substr(kFile.size());
  p.state.home = Home::file;
  if (stage >= 3) p.master.home = Home::file;
}

const SpecSchema& schema() {
  static const SpecSchema schema{
      "zero",
      "every rank updates the elements it owns, and holds less the higher the stage",
      {{.name = "stage",
        .type = SpecParam::Type::integer,
        .doc = "1: optimizer state is sharded; 2: gradients too; 3: parameters too",
        .preset = "1",
        .low = 1,
        .high = 3},
       op_param(),
       {.name = "buddy",
        .type = SpecParam::Type::boolean,
        .doc = "each rank also keeps the shard of the rank before it, so that one lost rank loses nothing",
        .preset = "false"},
       {.name = "offload",
        .type = SpecParam::Type::text,
        .doc = "none; host: of a model on a GPU gradients, state and masters lie in the host's memory; file:FOLDER: state, and in stage 3 "
               "parameters, lie in mapped files of that folder",
        .preset = "none"}}};
  return schema;
}

std::unique_ptr<Strategy> build(const SpecValues& values) {
  const int stage = static_cast<int>(values.integer("stage"));
  Placement placement = zero_placement(stage);
  placement.buddy = values.boolean("buddy");
  offload(placement, stage, values.text("offload"));
  return std::make_unique<Zero>(std::move(placement), *collective::op_named(values.word("op")));
}

}  // namespace

extern const StrategyRow row_zero{.name = "zero", .schema = schema, .make = build, .limit = "zero"};

}  // namespace cohort::sync
