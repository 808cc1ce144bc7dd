// CHOCO-SGD (Koloskova et al. 2019): D-PSGD that sends compressed differences. Every rank keeps what the others know of its model, h, and
// sends by way of a codec by how much the model has gone on from there.
//   x_i <- update(x_i, g_i)        q_i = C(x_i - h_i)        h_i <- h_i + q_i        s_i <- s_i + sum_j W_ij q_j
//   x_i <- x_i + gamma (s_i - h_i)
// s_i is sum_j W_ij h_j, all that a rank needs of its neighbours; W is symmetric and always the same. What a codec does not send stays in
// x - h and is sent later, so no residual is kept beside. A rank receives a payload for each neighbour a step. The job stands for the mean
// of the models. Laws: the mean is kept whatever the codec loses; with gamma small enough for the codec ranks agree in the end, where
// plain gossip of compressed models stalls; with a codec that loses nothing, gamma=1 and the full graph it is all_reduce.
#include <cstring>

#include "cohort/base/error.h"
#include "cohort/sync/elements.h"
#include "cohort/sync/gossip.h"

namespace cohort::sync {
namespace {

constexpr const char* kKnown = "known";            // h
constexpr const char* kNeighbours = "neighbours";  // s
constexpr const char* kStep = "step";              // what mixing adds

// call(x, i) for every element x, the i-th, of f32 or f64.
template <class Call>
void for_elements(const Piece& piece, const Call& call) {
  const auto over = [&](auto* x) {
    for (std::size_t i = 0; i < piece.count; ++i) call(x[i], i);
  };
  piece.dtype == Dtype::f32 ? over(static_cast<float*>(piece.data)) : over(static_cast<double*>(piece.data));
}

class Choco final : public Gossip {
 public:
  explicit Choco(const SpecValues& values)
      : choice_(values, Stochastic::doubly), codec_(codec::make(values.spec("codec").to_string())), gamma_(values.real("gamma")) {
    if (codec_->momentum())
      throw_failure(Kind::usage, "choco: codec={} keeps momentum of gradients, and here differences of models are sent; take topk",
                    codec_->spec());
    choice_.refuse_turns("choco: what a rank keeps of its neighbours are their models in fixed weights");
  }
  std::string_view name() const override { return "choco"; }
  std::vector<SlotSpec> slots() const override {
    using Begins = SlotSpec::Begins;
    return {{.name = kKnown, .share = Share::each, .merge = Merge::drop, .begins = Begins::parameters},
            {.name = kNeighbours, .share = Share::each, .merge = Merge::drop, .begins = Begins::parameters},
            {.name = kStep, .kept = false}};
  }
  // Payloads, in elements of fp32, of one tensor with so many.
  double cost(double elements, int ranks) const override {
    const auto count = static_cast<std::size_t>(elements);
    const Layout layout{.tensors = {{"model", 0, count}}, .count = count};
    return static_cast<double>(codec_->bound(layout, layout.all())) / sizeof(float) * received(choice_.of(ranks));
  }
  SyncSchedule schedule(std::int64_t) const override {
    return {.commit = Scope::self, .exchanges_before = false, .exchanges_after = true, .ends_round = true};
  }

  void open(Site& site) override {
    choice_.compare(site.comm);
    graph_ = choice_.of(site.comm.size());
    Gossip::open(site);
    for (const Bucket* bucket : site.buckets) {
      const std::size_t bytes = codec_->bound(bucket->layout(), bucket->layout().all());
      const auto index = static_cast<std::size_t>(bucket->index());
      payloads_.resize(std::max(payloads_.size(), index + 1));
      payloads_[index] = {bytes, site.comm.allocate(bytes), site.comm.allocate(bytes), std::vector<float>(bucket->count())};
    }
  }

  void exchange_models(Bucket& bucket, const Wire& wire) override {
    Payloads& payloads = payloads_[static_cast<std::size_t>(bucket.index())];
    const Piece known = bucket.slot(kKnown), neighbours = bucket.slot(kNeighbours);
    const int me = wire.comm->rank().value;
    encode(bucket, wire, payloads);
    const Piece out{payloads.out.data(), payloads.bytes, Dtype::u8}, in{payloads.in.data(), payloads.bytes, Dtype::u8};
    exchange(bucket, wire, meeting_of(graph_[0], me), out, in, [&](const Neighbour& n, const Piece& payload) {
      decode(bucket, payload, draws(wire, n.rank), payloads.values);
      for_elements(neighbours, [&](auto& s, std::size_t i) { s += static_cast<std::decay_t<decltype(s)>>(n.weight) * payloads.values[i]; });
      if (n.rank == me) for_elements(known, [&](auto& h, std::size_t i) { h += payloads.values[i]; });
    });
    subtract(bucket.slot(kStep), neighbours, known);
    scale(bucket.slot(kStep), gamma_);
  }
  Piece exchanged(const Bucket& bucket) const override { return bucket.slot(kStep); }
  void mix_models(Bucket& bucket, const Decision&) override { add(bucket.parameters(), bucket.slot(kStep)); }

 private:
  struct Payloads {
    std::size_t bytes = 0;
    collective::Region out{}, in{};
    std::vector<float> values{};  // what is encoded, and what was decoded
  };

  // Of the rank whose payload it is: some codecs are decoded with what was drawn to encode.
  static codec::Random draws(const Wire& wire, int rank) {
    return {wire.step.seed, static_cast<std::uint64_t>(wire.number), static_cast<std::uint32_t>(rank)};
  }
  // Zeros behind what is used, as absorb() wants.
  void encode(const Bucket& bucket, const Wire& wire, Payloads& payloads) const {
    subtract(bucket.slot(kStep), bucket.parameters(), bucket.slot(kKnown));
    for_elements(bucket.slot(kStep), [&](auto& difference, std::size_t i) { payloads.values[i] = static_cast<float>(difference); });
    const Layout layout = bucket.layout();
    const codec::Random random = draws(wire, wire.comm->rank().value);
    const Bytes place(static_cast<std::byte*>(payloads.out.data()), payloads.bytes);
    const std::size_t used =
        codec_->encode({.layout = layout, .range = layout.all(), .values = piece(std::span(payloads.values)), .random = random}, place);
    std::memset(place.data() + used, 0, payloads.bytes - used);
  }
  void decode(const Bucket& bucket, const Piece& payload, const codec::Random& random, std::vector<float>& values) const {
    const Layout layout = bucket.layout();
    const ConstBytes one[] = {{static_cast<const std::byte*>(payload.data), payload.count}};
    codec_->absorb({.layout = layout, .range = layout.all(), .keep = layout.all(), .values = piece(std::span(values)), .random = random},
                   one);
  }

  const GraphChoice choice_;
  const std::unique_ptr<codec::Codec> codec_;
  const double gamma_;
  Graph graph_;
  std::vector<Payloads> payloads_;  // by index of the bucket
};

const SpecSchema& schema() {
  using Type = SpecParam::Type;
  static const SpecSchema schema = [] {
    auto params = graph_params("ring");
    params.push_back({.name = "codec", .type = Type::spec, .doc = "what differences of models are sent by", .preset = "topk(ratio=0.1)"});
    params.push_back({.name = "gamma",
                      .type = Type::real,
                      .doc = "how far of the way to the neighbours; the smaller the less the codec sends, 1 where it loses nothing",
                      .preset = "0.1",
                      .low = 0,
                      .high = 1});
    return SpecSchema{"choco", "every rank averages its model with its neighbours', of which it hears compressed differences", params};
  }();
  return schema;
}
std::unique_ptr<Strategy> build(const SpecValues& values) { return std::make_unique<Choco>(values); }

}  // namespace

extern const StrategyRow row_choco{.name = "choco",
                                   .schema = schema,
                                   .make = build,
                                   .limit = "choco(graph=full, gamma=1, codec=topk(ratio=1))",
                                   .short_rounds = "choco(gamma=0.125)",
                                   .counts = sizeof(float)};

}  // namespace cohort::sync
