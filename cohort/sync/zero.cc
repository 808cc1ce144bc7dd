#include "cohort/sync/zero.h"

namespace cohort::sync {
namespace {

class Zero final : public Strategy {
 public:
  Zero(int stage, collective::Op op) : stage_(stage), op_(op) {}
  std::string_view name() const override { return "zero"; }
  bool averages() const override { return op_ == collective::Op::average; }
  int stage() const override { return stage_; }

  void agree(Bucket& bucket, const Wire& wire) override {
    wire.comm->reduce_scatter(bucket.gradients(), bucket.landing(), op_, {.name = bucket.name(), .deadline = wire.deadline},
                              bucket.counts());
    bucket.agreed();
  }
  void publish(Bucket& bucket, const Wire& wire) override {
    if (bucket.sharding().stage >= 3 || wire.comm->size() == 1) return;  // readers gather for themselves; there are no others
    wire.comm->all_gather(bucket.owned_parameters(), bucket.parameters(), {.name = bucket.name(), .deadline = wire.deadline},
                          bucket.counts());
  }

 private:
  const int stage_;
  const collective::Op op_;
};

}  // namespace

const SpecSchema& zero_schema() {
  static const SpecSchema schema{"zero",
                                 "every rank updates the elements it owns, and holds less the higher the stage",
                                 {{.name = "stage",
                                   .type = SpecParam::Type::integer,
                                   .doc = "1: optimizer state is sharded; 2: gradients too",
                                   .preset = "1",
                                   .low = 1,
                                   .high = 2},
                                  {.name = "op",
                                   .type = SpecParam::Type::word,
                                   .doc = "how gradients are combined",
                                   .preset = "average",
                                   .words = {"average", "sum"}}}};
  return schema;
}

std::unique_ptr<Strategy> make_zero(const SpecValues& values) {
  return std::make_unique<Zero>(static_cast<int>(values.integer("stage")), *collective::op_named(values.word("op")));
}

}  // namespace cohort::sync
