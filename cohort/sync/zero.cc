#include "cohort/sync/zero.h"

namespace cohort::sync {
namespace {

class Zero final : public Strategy {
 public:
  Zero(Sharding sharding, collective::Op op) : sharding_(std::move(sharding)), op_(op) {}
  std::string_view name() const override { return "zero"; }
  bool averages() const override { return op_ == collective::Op::average; }
  Sharding sharding(Rank me, int ranks) const override {
    Sharding mine = sharding_;
    mine.ranks = ranks;
    mine.me = me.value;
    return mine;
  }

  void agree(Bucket& bucket, const Wire& wire) override {
    wire.comm->reduce_scatter(bucket.gradients(), bucket.landing(), op_, {.name = bucket.name(), .deadline = wire.deadline},
                              bucket.counts());
    bucket.agreed();
  }
  void publish(Bucket& bucket, const Wire& wire) override {
    const collective::Call call{.name = bucket.name(), .deadline = wire.deadline};
    if (bucket.sharding().stage < 3 && wire.comm->size() > 1)  // in stage 3 readers gather for themselves
      wire.comm->all_gather(bucket.owned_parameters(), bucket.parameters(), call, bucket.counts());
    bucket.hand_out();
  }

 private:
  const Sharding sharding_;
  const collective::Op op_;
};

void set_offload(Sharding& sharding, const std::string& offload) {
  constexpr std::string_view kFile = "file:";
  sharding.host = offload == "host";
  if (offload == "none" || sharding.host) return;
  if (!offload.starts_with(kFile) || offload.size() == kFile.size())
    throw_failure(Kind::usage, "zero(offload={}): say none, host, or file:FOLDER", offload);
  sharding.offload = offload.substr(kFile.size());
}

}  // namespace

const SpecSchema& zero_schema() {
  static const SpecSchema schema{
      "zero",
      "every rank updates the elements it owns, and holds less the higher the stage",
      {{.name = "stage",
        .type = SpecParam::Type::integer,
        .doc = "1: optimizer state is sharded; 2: gradients too; 3: parameters too",
        .preset = "1",
        .low = 1,
        .high = 3},
       {.name = "op", .type = SpecParam::Type::word, .doc = "how gradients are combined", .preset = "average", .words = {"average", "sum"}},
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

std::unique_ptr<Strategy> make_zero(const SpecValues& values) {
  Sharding sharding{.stage = static_cast<int>(values.integer("stage"))};
  sharding.buddy = values.boolean("buddy");
  set_offload(sharding, values.text("offload"));
  if (sharding.host && sharding.stage < 2)
    throw_failure(Kind::usage, "zero(stage={}, offload=host): gradients leave the device as they come, which stages 2 and 3 do",
                  sharding.stage);
  return std::make_unique<Zero>(std::move(sharding), *collective::op_named(values.word("op")));
}

}  // namespace cohort::sync
