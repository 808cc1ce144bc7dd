#include "cohort/sync/strategy.h"

#include "cohort/base/spec.h"
#include "cohort/sync/zero.h"

namespace cohort::sync {
namespace {

class AllReduce final : public Strategy {
 public:
  explicit AllReduce(collective::Op op) : op_(op) {}
  std::string_view name() const override { return "all_reduce"; }
  bool averages() const override { return op_ == collective::Op::average; }
  void agree(Bucket& bucket, const Wire& wire) override {
    wire.comm->all_reduce(bucket.gradients(), op_, {.name = bucket.name(), .deadline = wire.deadline});
  }
  void publish(Bucket&, const Wire&) override {}  // everybody made the same update

 private:
  const collective::Op op_;
};

}  // namespace

std::unique_ptr<Strategy> all_reduce(collective::Op op) {
  if (op != collective::Op::sum && op != collective::Op::average)
    throw_failure(Kind::usage, "strategy all_reduce: op is sum or average, not {}", name_of(op));
  return std::make_unique<AllReduce>(op);
}

namespace {

const SpecSchema& all_reduce_schema() {
  static const SpecSchema schema{"all_reduce",
                                 "every rank reduces every gradient and makes the same update",
                                 {{.name = "op",
                                   .type = SpecParam::Type::word,
                                   .doc = "how gradients are combined",
                                   .preset = "average",
                                   .words = {"average", "sum"}}}};
  return schema;
}

}  // namespace

std::unique_ptr<Strategy> make(std::string_view spec) {
  const Spec parsed = Spec::parse(spec);
  if (parsed.name == "all_reduce") return all_reduce(*collective::op_named(all_reduce_schema().read(parsed).word("op")));
  if (parsed.name == "zero") return make_zero(zero_schema().read(parsed));
  throw_failure(Kind::usage, "no strategy is called '{}'; there are: all_reduce, zero", parsed.name);
}

}  // namespace cohort::sync
