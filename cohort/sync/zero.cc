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

  void reduce_gradients(Bucket& bucket, const CommContext& context) override {
    context.comm->reduce_scatter(bucket.gradients(), bucket.reduce_output(), op_, {.name = bucket.name(), .deadline = context.deadline},
                                 bucket.counts());
    bucket.mark_reduced();
  }
  void publish_parameters(Bucket& bucket, const CommContext& context) override {
    const collective::Call call{.name = bucket.name(), .deadline = context.deadline};
    if (bucket.sharding().stage < 3 && context.comm->size() > 1)  // in stage 3 blocks gather what they read
      context.comm->all_gather(bucket.owned_parameters(), bucket.parameters(), call, bucket.counts());
    bucket.copy_to_device();
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
