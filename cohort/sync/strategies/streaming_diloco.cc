// Streaming DiLoCo (Douillard et al. 2025): as diloco, but the model is cut into fragments that meet in turn, and what a fragment sends
// travels while ranks go on.
//   every h/F steps, fragment k = 0, 1, .. F - 1, 0, .. :
//     d = 1/n sum_i (a_k - x_ik)        of the parameters as they were `delay` steps before the meeting
//     a_k <- outer(a_k, d),  x_ik <- alpha x_ik + (1 - alpha) a_k        at the meeting
// Fragments are runs of whole tensors, about as large as each other. In each of the `delay` steps a part of the fragment travels, beside
// backward, 1/delay of it; with delay = 0 all of it does behind the update. The job stands for the anchors. A rank receives
// 2 P (n - 1) / (n h) elements a step, as with diloco, and in no step more than 1 / (F max(1, delay)) of what diloco receives in one. Laws:
// with one fragment, no delay and alpha = 0 it is diloco, to the bit; what is under way is state, so a run that resumes has the same bits.
#include <algorithm>
#include <map>

#include "cohort/base/error.h"
#include "cohort/sync/averaging.h"
#include "cohort/sync/elements.h"
#include "cohort/sync/outer_step.h"

namespace cohort::sync {
namespace {

class StreamingDiLoCo final : public Averaging {
 public:
  explicit StreamingDiLoCo(const SpecValues& values)
      : Averaging(values.integer("h")),
        outer_(values),
        fragments_(values.integer("fragments")),
        stride_(every() / fragments_),
        delay_(values.integer("delay")),
        alpha_(values.real("alpha")) {
    if (every() % fragments_ != 0)
      throw_failure(Kind::usage, "streaming_diloco: {} fragments do not divide h={} steps; every fragment meets once in h steps",
                    fragments_, every());
    if (delay_ >= stride_ && delay_ > 0)
      throw_failure(Kind::usage, "streaming_diloco: delay={} is not below the {} steps between two fragments (h / fragments)", delay_,
                    stride_);
  }
  std::string_view name() const override { return "streaming_diloco"; }
  std::vector<SlotSpec> slots() const override {
    auto all = outer_.slots();
    // Under way between two steps: what all have sent is alike, and of what they have not the mean is what would travel.
    all.push_back({.name = kExchangeSlot, .in_communicator = true, .kept = delay_ > 1, .share = Share::each, .merge = Merge::mean});
    return all;
  }
  SyncSchedule schedule(std::int64_t step) const override {
    const bool due = step % stride_ == 0;
    return {.commit = Scope::self,
            .exchanges_before = delay_ > 0 && left(step) < delay_,
            .exchanges_after = delay_ == 0 && due,
            .ends_round = due};
  }

  void open(Site& site) override {
    std::map<std::size_t, std::size_t> counts;  // by place in the model, which no bucket plan changes
    for (const Bucket* bucket : site.buckets)
      for (const Member& m : bucket->members()) counts[m.order] = m.count;
    double all = 0, before = 0;
    for (const auto& [order, count] : counts) all += static_cast<double>(count);
    for (const auto& [order, count] : counts) {
      const double middle = (before + static_cast<double>(count) / 2) / std::max(all, 1.0);
      fragment_of_[order] = std::min(fragments_ - 1, static_cast<std::int64_t>(middle * static_cast<double>(fragments_)));
      before += static_cast<double>(count);
    }
  }

  void exchange_models(Bucket& bucket, const Wire& wire) override {
    const Piece moved = bucket.slot(kExchangeSlot), anchor = bucket.slot(kAnchorSlot), mine = bucket.parameters();
    const std::int64_t parts = std::max<std::int64_t>(delay_, 1), part = parts - 1 - left(wire.number);
    if (part == 0) fill(moved, 0);  // of the fragment before
    std::vector<Piece> travelling;
    for (const Member* m : members_at(bucket, wire.number)) {
      const auto of = [&](const Piece& all) { return all.part(m->first, m->count); };
      if (part == 0) subtract(of(moved), of(anchor), of(mine));
      const auto edge = [&](std::int64_t k) { return m->count * static_cast<std::size_t>(k) / static_cast<std::size_t>(parts); };
      const Range run{m->first + edge(part), edge(part + 1) - edge(part)};
      if (run.count > 0) travelling.push_back(moved.part(run.first, run.count));
    }
    if (!travelling.empty()) wire.comm->all_reduce(travelling, collective::Op::average, wire.call(bucket));
  }
  void mix_models(Bucket& bucket, const Decision& decision) override {
    for (const Member* m : members_at(bucket, decision.number)) {
      outer_.update(bucket, bucket.slot(kExchangeSlot), m->range());
      const Piece mine = bucket.parameters().part(m->first, m->count), anchor = bucket.slot(kAnchorSlot).part(m->first, m->count);
      alpha_ == 0 ? copy(mine, anchor) : lerp(mine, 1 - alpha_, anchor);
    }
  }
  void consensus(Bucket& bucket, const Piece& into, const Wire&) override { copy(into, bucket.slot(kAnchorSlot)); }
  void adopt(Bucket& bucket) override {
    outer_.adopt(bucket);
    fill(bucket.slot(kExchangeSlot), 0);
  }

 private:
  std::int64_t left(std::int64_t step) const { return (stride_ - step % stride_) % stride_; }  // steps to the next meeting
  std::vector<const Member*> members_at(const Bucket& bucket, std::int64_t step) const {
    const std::int64_t fragment = ((step + stride_ - 1) / stride_ - 1) % fragments_;
    std::vector<const Member*> all;
    for (const Member& m : bucket.members())
      if (fragment_of_.at(m.order) == fragment) all.push_back(&m);
    return all;
  }

  const OuterStep outer_;
  const std::int64_t fragments_, stride_, delay_;
  const double alpha_;
  std::map<std::size_t, std::int64_t> fragment_of_;  // by Member::order
};

const SpecSchema& schema() {
  using Type = SpecParam::Type;
  static const SpecSchema schema = [] {
    std::vector<SpecParam> params{
        every_param("100"),
        {.name = "fragments", .type = Type::integer, .doc = "of the model, that meet in turn", .preset = "4", .low = 1, .high = 1e6},
        {.name = "delay",
         .type = Type::integer,
         .doc = "steps before a meeting whose models meet; over so many their bytes are spread, beside backward",
         .preset = "1",
         .low = 0,
         .high = 1e9},
        {.name = "alpha",
         .type = Type::real,
         .doc = "of its own parameters, that a rank keeps at a meeting",
         .preset = "0",
         .low = 0,
         .high = 1}};
    for (SpecParam& p : OuterStep::params()) params.push_back(std::move(p));
    return SpecSchema{"streaming_diloco", "as diloco, by fragments of the model in turn, which travel while ranks go on", params};
  }();
  return schema;
}
std::unique_ptr<Strategy> build(const SpecValues& values) { return std::make_unique<StreamingDiLoCo>(values); }

}  // namespace

extern const StrategyRow row_streaming_diloco{.name = "streaming_diloco",
                                              .schema = schema,
                                              .make = build,
                                              .limit = "streaming_diloco(h=1, fragments=1, delay=0, lr=1, momentum=0)",
                                              .short_rounds = "streaming_diloco(h=9, fragments=3, delay=2, alpha=0.25)",
                                              .whole_steps = false,
                                              .plain_alone = false};

}  // namespace cohort::sync
