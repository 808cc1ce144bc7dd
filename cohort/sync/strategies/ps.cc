// Parameter servers (Dean et al. 2012; Ho et al. 2013; Li et al. 2014): servers keep the parameters and the rule's state, each a run of
// every bucket, and make the updates; ranks push gradients and pull parameters.
//   bsp, ssp(0):   x <- update(x, 1/n sum_i g_i)          when all ranks have pushed for a step
//   other clocks:  x <- update(x, 1/n g_i)                as each comes; a rank reads what is at most `slack` steps behind it (ps/gate.h)
// The servers are threads of the first `servers` ranks, of all for 0. A rank's own norm clips its gradient. Between two steps parameters
// and state of all ranks can be brought to what the servers have (quiesce()): that is what is saved, cut over the ranks as under
// zero(stage=1). Of P elements a rank receives P n / s as one of s servers and P as a worker in a step, its own messages included. Laws:
// bsp and ssp(0) are all_reduce bit for bit; no read is staler than the clock says.
#include <algorithm>
#include <utility>

#include "cohort/base/error.h"
#include "cohort/ps/session.h"
#include "cohort/sync/elements.h"
#include "cohort/sync/strategy_row.h"

namespace cohort::sync {
namespace {

class Ps final : public Strategy {
 public:
  explicit Ps(const SpecValues& values)
      : gate_(ps::make_gate(values.spec("clock").to_string())),
        servers_(static_cast<int>(values.integer("servers"))),
        op_(*collective::op_named(values.word("op"))) {}

  std::string_view name() const override { return "ps"; }
  Semantics semantics() const override {
    return {.commit_scope = Scope::self,
            .identical = gate_.ordered() ? Scope::world : Scope::self,
            .guarantee = Guarantee::push,
            .stale = gate_.slack.value_or(Semantics::kUnbounded),
            .averages = op_ == collective::Op::average,
            .served = true};
  }
  Placement placement(Rank me, int ranks) const override {
    Placement p{.ranks = ranks, .me = me.value};
    p.agreed.extent = p.master.extent = p.state.extent = Extent::own;
    return p;
  }
  // As bytes: what is told beside the elements counts, too.
  double cost(double elements, int ranks) const override {
    constexpr double kToServer = 3 * ps::kRequestBytes, kToWorker = ps::kReplyBytes;
    const double asked = gate_.sends ? kToServer - ps::kRequestBytes : kToServer;
    return 2 * elements + servers_of(ranks) * (asked + kToWorker) / sizeof(double);
  }
  SyncSchedule schedule(std::int64_t) const override { return {.commit = Scope::self}; }
  std::string refusal_of(const optim::Optimizer& rule) const override { return ps::refusal_of(rule); }

  void open(Site& site) override {
    collective::Communicator& comm = site.comm;
    comm_ = &comm;
    if (site.rule == nullptr) throw_failure(Kind::usage, "sync=ps without an optimizer: servers have no update to make");
    session_ = std::make_unique<ps::Session>(comm, ps::SessionOptions{.servers = servers_});
    client_ = &session_->client();
    std::vector<Bucket*> by_index(site.buckets.begin(), site.buckets.end());
    std::ranges::sort(by_index, {}, &Bucket::index);
    for (Bucket* bucket : by_index) make_table(*bucket, site.rule->spec());
    for (Bucket* bucket : by_index) put(*bucket);
    comm.barrier({.name = "tables of parameter servers"});
  }

  void reduce_gradients(Bucket& bucket, const Wire& wire) override {
    const auto t = table(bucket);
    if (!client_->begun(t) || client_->clock(t) != wire.number - 1) client_->begin_at(t, wire.number - 1, wire.step.step - 1);
    client_->push(t, bucket.gradients());
  }
  void mark(Bucket& bucket, const optim::StepInfo& step, const Decision& decision, const Wire&) override {
    ps::Update update{.go = decision.committed, .lr = step.lr, .scale = step.grad_scale};
    if (!decision.missing.empty())
      for (const Member& m : bucket.members()) update.missing.push_back(decision.missing[m.order]);
    client_->mark(table(bucket), update);
    client_->pull(table(bucket), bucket.parameters());  // beside the marks of other buckets
  }
  void publish(Bucket& bucket, const Wire&) override { note(client_->wait(table(bucket))); }

  void publish_loaded(Bucket& bucket, const Wire& wire) override {
    wire.gather(bucket);
    put(bucket);
    for (std::size_t k = 0; k < bucket.states(); ++k) put(bucket, k);
    wire.comm->barrier(wire.call(bucket));
  }
  // Nobody pushes before all have put theirs.
  void adopt(Bucket& bucket) override {
    put(bucket);
    comm_->barrier({.name = bucket.name()});
  }
  // The exact read comes when all ranks have marked as many steps; nobody goes on before all have it.
  void quiesce(Bucket& bucket, const Wire& wire) override {
    client_->pull(table(bucket), bucket.parameters(), 0);
    client_->wait(table(bucket));
    for (std::size_t k = 0; k < bucket.states(); ++k)
      if (bucket.owned().count > 0)
        client_->fetch(table(bucket), static_cast<std::uint32_t>(k + 1), bucket.owned().first, bucket.owned_state(k));
    wire.comm->barrier(wire.call(bucket));
  }

  std::optional<Staleness> staleness() override {
    const Noted seen = std::exchange(seen_, {});
    return Staleness{.mean = seen.reads == 0 ? 0 : seen.behind / static_cast<double>(seen.reads), .most = seen.most};
  }

 private:
  struct Noted {
    double behind = 0;
    std::int64_t reads = 0, most = 0;
  };

  int servers_of(int ranks) const { return servers_ == 0 ? ranks : servers_; }
  static ps::Client::TableId table(const Bucket& bucket) { return static_cast<ps::Client::TableId>(bucket.index()); }

  void make_table(const Bucket& bucket, const std::string& rule) {
    std::vector<ps::Part> parts;
    std::vector<Range> tensors;
    for (const Member& m : bucket.members()) {
      parts.push_back({.first = m.first, .count = m.count, .lr_scale = m.group.lr_scale, .weight_decay = m.group.weight_decay});
      tensors.push_back(m.range());
    }
    const auto made = client_->make({.name = bucket.name(),
                                     .count = bucket.count(),
                                     .dtype = bucket.type(),
                                     .rule = rule,
                                     .clock = gate_.spec,
                                     .average = semantics().averages,
                                     .parts = std::move(parts),
                                     .edges = cut(tensors, bucket.count(), session_->servers())});
    if (made != table(bucket)) throw_failure(Kind::bug, "{} became table {}", bucket.name(), made);
  }
  // What this rank owns, of the values or of a state.
  void put(const Bucket& bucket) { client_->put(table(bucket), 0, bucket.owned().first, bucket.owned_parameters()); }
  void put(const Bucket& bucket, std::size_t state) {
    client_->put(table(bucket), static_cast<std::uint32_t>(state + 1), bucket.owned().first, bucket.owned_state(state));
  }
  void note(const ps::Pulled& pulled) {
    seen_.behind += static_cast<double>(pulled.behind());
    ++seen_.reads;
    seen_.most = std::max(seen_.most, pulled.behind());
    if (gate_.slack && pulled.behind() > *gate_.slack)
      throw_failure(Kind::bug, "a read at step {} is {} steps behind, and {} promises at most {}", pulled.clock, pulled.behind(),
                    gate_.spec, *gate_.slack);
  }

  const ps::Gate gate_;
  const int servers_;
  const collective::Op op_;
  Noted seen_;                                // by the training thread
  collective::Communicator* comm_ = nullptr;  // whose ranks these are
  std::unique_ptr<ps::Session> session_;
  ps::Client* client_ = nullptr;  // its
};

const SpecSchema& schema() {
  using Type = SpecParam::Type;
  static const SpecSchema schema{"ps",
                                 "servers keep the parameters and make the updates; ranks push gradients and pull parameters",
                                 {{.name = "clock",
                                   .type = Type::spec,
                                   .doc = "how far ranks may be apart: bsp, ssp(2), ssp_push(2), bounded_delay(2), or tap (any)",
                                   .preset = "bsp"},
                                  {.name = "servers",
                                   .type = Type::integer,
                                   .doc = "how many of the first ranks have a server; 0: all",
                                   .preset = "0",
                                   .low = 0,
                                   .high = 1e6},
                                  op_param()}};
  return schema;
}
std::unique_ptr<Strategy> build(const SpecValues& values) { return std::make_unique<Ps>(values); }

}  // namespace

extern const StrategyRow row_ps{.name = "ps", .schema = schema, .make = build, .limit = "ps(clock=ssp(0))", .counts = sizeof(double)};

}  // namespace cohort::sync
