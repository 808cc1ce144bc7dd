// AD-PSGD (Lian et al. 2018), asynchronous decentralised SGD: every rank steps at a pace of its own, and pairs take the mean of their
// models when one of them asks, also while the other computes.
//   ask a random passive j:  x_i, x_j <- (x_i + x_j) / 2, both at once        x_i <- x_i + (update(z_i, g_i(z_i)) - z_i)
// z_i is the model that the gradient was taken at, which others may have mixed since: the gradient of a stale copy is applied to the model
// of now. Ranks of odd number are passive, they answer and never ask; those of even number ask one of them in every step, and are never
// asked. So no requests wait for each other in a circle, and nobody waits for a rank that computes. A rank that does not take part for the
// moment (it evaluates, saves, or is late) refuses, and is passed over.
// A passive rank keeps its model beside its parameters, which are z until the step ends. Between two steps parameters may be read and
// written after settle(), and nobody mixes then. A rank receives 2 P times the share of ranks that ask a step, at most. The job stands for
// the mean of the models. Laws: mixing keeps the mean; no rank waits for another's pace; bits of a run do not repeat.
#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>

#include "cohort/sync/elements.h"
#include "cohort/sync/gossip.h"
#include "cohort/sync/request_service.h"

namespace cohort::sync {
namespace {

constexpr const char* kBefore = "before";  // z; of an asking rank what it has sent, too
constexpr const char* kMixed = "mixed";    // of a passive rank its model; of an asking one the mean that came

bool is_passive(int rank) { return rank % 2 == 1; }
std::vector<Rank> ranks_that_are(bool passive, int ranks) {
  std::vector<Rank> all;
  for (int r = 0; r < ranks; ++r)
    if (is_passive(r) == passive) all.push_back(Rank{r});
  return all;
}

class AdPsgd final : public Gossip {
 public:
  explicit AdPsgd(const SpecValues& values) : patience_(values.seconds("patience")) {}
  std::string_view name() const override { return "ad_psgd"; }
  std::vector<SlotSpec> slots() const override {
    return {{.name = kBefore, .in_communicator = true, .kept = false}, {.name = kMixed, .in_communicator = true, .kept = false}};
  }
  double cost(double elements, int ranks) const override {
    return 2 * elements * static_cast<double>(ranks > 1 ? ranks_that_are(false, ranks).size() : 0) / ranks;
  }
  SyncSchedule schedule(std::int64_t) const override {
    return {.commit = Scope::self, .exchanges_before = true, .exchanges_after = false, .ends_round = true};
  }

  void open(Site& site) override {
    if (site.comm.size() == 1) return;
    passive_ = is_passive(site.comm.rank().value);
    partners_ = ranks_that_are(true, site.comm.size());
    std::vector<RequestService::Form> forms(site.buckets.size());
    models_.resize(site.buckets.size());
    for (Bucket* bucket : site.buckets) {
      const auto index = static_cast<std::size_t>(bucket->index());
      models_[index].bucket = bucket;
      forms[index] = {bucket->count(), bucket->type()};
    }
    begin_step();  // who is first may meet at once
    service_ = std::make_unique<RequestService>(
        site.comm.channel(), passive_ ? ranks_that_are(false, site.comm.size()) : std::vector<Rank>{}, std::move(forms),
        [this](std::uint32_t index, const Piece& values) { return meet(models_[index], values); }, patience_);
  }

  void begin_step() override {
    if (!passive_) return;
    for (Model& m : models_) {
      const std::lock_guard lock(m.mutex);
      if (!m.open) copy(m.mixed(), m.bucket->parameters());
      m.open = true;
    }
  }
  void exchange_models(Bucket& bucket, const Wire& wire) override {
    if (!service_) return;
    Model& m = models_[static_cast<std::size_t>(bucket.index())];
    const std::lock_guard lock(m.mutex);
    if (!passive_ && m.request) return;  // of a step before, whose partner was late: mix_models() takes what has come since
    copy(m.before(), bucket.parameters());
    m.in_step = true;
    if (passive_) return;
    const auto me = static_cast<std::uint32_t>(wire.comm->rank().value);
    const codec::Random random(wire.step.seed, static_cast<std::uint64_t>(wire.number), me);
    const std::size_t partner = std::uint64_t{random.of("partner").words(0)[0]} * partners_.size() >> 32;
    m.request = service_->ask(partners_[partner], static_cast<std::uint32_t>(bucket.index()), m.before(), m.mixed());
    m.request->wait(Deadline::in(patience_));
  }
  void mix_models(Bucket& bucket, const Decision&) override {
    if (!service_) return;
    Model& m = models_[static_cast<std::size_t>(bucket.index())];
    const std::lock_guard lock(m.mutex);
    if (!passive_) return take_answer(m);
    if (m.open)
      fold(m);
    else
      m.in_step = false;  // parameters came from elsewhere since the step began, and nobody has mixed them
  }

  void settle() override {
    for (Model& m : models_) {
      const std::lock_guard lock(m.mutex);
      if (passive_ && m.open) fold(m);
      if (!passive_) take_answer(m);
      m.open = false;
    }
  }
  void adopt(Bucket& bucket) override {
    if (!service_) return;
    Model& m = models_[static_cast<std::size_t>(bucket.index())];
    const std::lock_guard lock(m.mutex);
    m.open = m.in_step = false;
    m.request.reset();
  }

 private:
  struct Model {  // of one bucket
    std::mutex mutex;
    Bucket* bucket = nullptr;
    bool open = false;                   // passive: others may mix, and `mixed` is the model
    bool in_step = false;                // `before` is z
    std::unique_ptr<Request> request{};  // of an asking rank
    Piece before() const { return bucket->slot(kBefore); }
    Piece mixed() const { return bucket->slot(kMixed); }
  };

  // On the service's thread: both take the mean, unless it is not finite.
  static bool meet(Model& m, const Piece& values) {
    const std::lock_guard lock(m.mutex);
    if (!m.open) return false;
    lerp(values, 0.5, m.mixed());
    if (!all_finite(values)) return false;
    copy(m.mixed(), values);
    return true;
  }
  // Passive: what this rank has learned since z goes into its model, and parameters are that. mutex is held.
  static void fold(Model& m) {
    const Piece parameters = m.bucket->parameters();
    if (std::exchange(m.in_step, false)) {
      subtract(m.before(), parameters, m.before());
      add(m.mixed(), m.before());
    }
    copy(parameters, m.mixed());
  }
  // Asking: what mixing adds, once it is there. Never while backward runs, which reads the parameters. mutex is held.
  static void take_answer(Model& m) {
    if (!m.request) return;
    const Outcome outcome = m.request->wait(Deadline::in(Seconds{0}));
    if (outcome == Outcome::pending) return;
    m.request.reset();
    if (outcome != Outcome::answered) return;
    subtract(m.mixed(), m.mixed(), m.before());
    add(m.bucket->parameters(), m.mixed());
  }

  const Seconds patience_;
  bool passive_ = false;
  std::vector<Rank> partners_;
  std::deque<Model> models_;                 // by index of the bucket
  std::unique_ptr<RequestService> service_;  // last: its thread ends before they do
};

const SpecSchema& schema() {
  static const SpecSchema schema{
      "ad_psgd",
      "every rank steps at its own pace, and pairs take the mean of their models, also while one of them computes",
      {{.name = "patience",
        .type = SpecParam::Type::seconds,
        .doc = "the longest that a rank waits for a partner that does not answer; then it goes on with its own model",
        .preset = "10s",
        .low = 0.001,
        .high = 3600}}};
  return schema;
}
std::unique_ptr<Strategy> build(const SpecValues& values) { return std::make_unique<AdPsgd>(values); }

}  // namespace

extern const StrategyRow row_ad_psgd{.name = "ad_psgd",
                                     .schema = schema,
                                     .make = build,
                                     .limit = "",
                                     .conserves = Conserves::consensus,
                                     .whole_steps = false,
                                     .repeats = false};

}  // namespace cohort::sync
