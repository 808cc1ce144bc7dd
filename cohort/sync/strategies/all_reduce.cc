// Synchronous data-parallel SGD: the gradients of all ranks are reduced, and every rank makes the same update.
//   g = sum_i g_i  or  1/n sum_i g_i        x <- update(x, g)
// A rank receives 2 P (n - 1) / n elements a step. Law: n ranks equal one rank with n times the batch, to rounding.
#include "cohort/sync/strategy_row.h"

namespace cohort::sync {
namespace {

class AllReduce final : public Strategy {
 public:
  explicit AllReduce(collective::Op op) : op_(op) {}
  std::string_view name() const override { return "all_reduce"; }
  Semantics semantics() const override { return {.averages = op_ == collective::Op::average}; }
  double cost(double elements, int ranks) const override { return 2 * elements * (ranks - 1) / ranks; }
  void reduce_gradients(Bucket& bucket, const Wire& wire) override { wire.reduce(bucket, op_); }

 private:
  const collective::Op op_;
};

const SpecSchema& schema() {
  static const SpecSchema schema{"all_reduce", "every rank reduces every gradient and makes the same update", {op_param()}};
  return schema;
}
std::unique_ptr<Strategy> build(const SpecValues& values) { return std::make_unique<AllReduce>(*collective::op_named(values.word("op"))); }

}  // namespace

extern const StrategyRow row_all_reduce{.name = "all_reduce", .schema = schema, .make = build, .limit = "all_reduce"};

}  // namespace cohort::sync
