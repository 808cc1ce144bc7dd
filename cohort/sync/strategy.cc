#include "cohort/sync/strategy.h"

#include <fmt/ranges.h>

#include "cohort/base/error.h"
#include "cohort/sync/schemas.h"
#include "cohort/sync/zero.h"

namespace cohort::sync {
namespace {

class AllReduce final : public Strategy {
 public:
  explicit AllReduce(collective::Op op) : op_(op) {}
  std::string_view name() const override { return "all_reduce"; }
  bool averages() const override { return op_ == collective::Op::average; }
  void reduce_gradients(Bucket& bucket, const CommContext& context) override {
    context.comm->all_reduce(bucket.gradients(), op_, {.name = bucket.name(), .deadline = context.deadline});
  }
  void publish_parameters(Bucket&, const CommContext&) override {}  // every rank made the same update

 private:
  const collective::Op op_;
};

}  // namespace

std::unique_ptr<Strategy> all_reduce(collective::Op op) {
  if (op != collective::Op::sum && op != collective::Op::average)
    throw_failure(Kind::usage, "sync: all_reduce: op is sum or average, not {}", name_of(op));
  return std::make_unique<AllReduce>(op);
}

std::unique_ptr<Strategy> make(std::string_view spec) {
  const Spec parsed = Spec::parse(spec);
  if (parsed.name == "all_reduce") return all_reduce(*collective::op_named(all_reduce_schema().read(parsed).word("op")));
  if (parsed.name == "zero") return make_zero(zero_schema().read(parsed));
  std::vector<std::string_view> names;
  for (const SpecSchema* schema : strategy_schemas()) names.push_back(schema->name());
  throw_failure(Kind::usage, "sync: no strategy is called '{}'; there are: {}", parsed.name, fmt::join(names, ", "));
}

}  // namespace cohort::sync
