#include "cohort/python/codec/gradient_codec.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "cohort/base/error.h"
#include "cohort/sync/ownership.h"

namespace cohort::python {
namespace {

using collective::Communicator;
using collective::Op;

Layout layout_of(const CodedUnit& unit) {
  Layout layout;
  for (std::size_t i = 0; i < unit.names.size(); ++i) {
    layout.tensors.push_back({unit.names[i], layout.count, unit.gradients[i].count, i < unit.shapes.size() ? unit.shapes[i] : Shape{}});
    layout.count += unit.gradients[i].count;
  }
  return layout;
}

std::vector<std::size_t> edges_of(const Layout& layout, int ranks) {
  std::vector<ElementRange> tensors;
  for (const TensorPlace& t : layout.tensors) tensors.push_back(t.range());
  return sync::cut(tensors, layout.count, ranks);
}

// The elements of `t` that lie in `owned`, counted from its own first.
ElementRange part_of(const ElementRange& owned, const TensorPlace& t) {
  const std::size_t from = std::max(owned.first, t.first), to = std::min(owned.first + owned.count, t.first + t.count);
  return from < to ? ElementRange{from - t.first, to - from} : ElementRange{};
}

constexpr std::uint32_t kExponent = 0x7f800000;  // all of it: inf or nan

bool finite(const Piece& values) {
  const auto* const v = static_cast<const float*>(values.data);
  std::uint32_t found = 0;
  for (std::size_t i = 0; i < values.count; ++i) found |= (std::bit_cast<std::uint32_t>(v[i]) & kExponent) == kExponent ? 1 : 0;
  return found == 0;
}

// One block already, as the views of a bucket of DDP are.
bool adjoin(const std::vector<Piece>& pieces) {
  for (std::size_t i = 1; i < pieces.size(); ++i)
    if (static_cast<const float*>(pieces[i - 1].data) + pieces[i - 1].count != pieces[i].data) return false;
  return true;
}

void scale(std::vector<float>& values, double factor) {
  if (factor == 1) return;
  for (float& v : values) v = static_cast<float>(v * factor);
}

void fold(Residual& r) {
  for (std::size_t i = 0; i < r.owned.size(); ++i) r.sent[r.first + i] += static_cast<float>(r.owned[i] * r.share);
  r.owned.clear();
}

}  // namespace

struct GradientCodec::Unit {
  Layout layout;
  Op op;
  int ranks, me;
  sync::CodedReduce coded;
  collective::Region memory;  // where gradients do not lie one after the other
  std::int64_t step = 0;
  bool open = false, finite = false;  // reduced and not settled; what came out

  Unit(const std::shared_ptr<const codec::Codec>& codec, Layout l, Op o, Communicator& comm)
      : layout(std::move(l)),
        op(o),
        ranks(comm.size()),
        me(comm.rank().value),
        coded(codec, layout, edges_of(layout, ranks), sync::ReduceTo::all, comm) {}

  bool fits(const Layout& other, Op o, const Communicator& comm) const {
    const auto same = [](const TensorPlace& a, const TensorPlace& b) { return a.name == b.name && a.count == b.count; };
    return op == o && ranks == comm.size() && me == comm.rank().value &&
           std::equal(layout.tensors.begin(), layout.tensors.end(), other.tensors.begin(), other.tensors.end(), same);
  }

  Residual residual_of(const TensorPlace& t) {
    Residual r{.share = share(), .step = step};
    if (const auto* sent = coded.sent()) {
      const auto all = sent->residual().subspan(t.first, t.count);
      r.sent.assign(all.begin(), all.end());
      r.weight = sent->weight();
      r.velocity = part(coded.sent()->velocity(), t);
    }
    r.memory = floats(coded.memory(index_of(t)));
    if (const auto* sum = coded.sum()) {
      const ElementRange mine = part_of(coded.owned(), t);
      const auto owned = sum->residual().subspan(t.first + mine.first - coded.owned().first, mine.count);
      if (mine.count > 0) r.owned.assign(owned.begin(), owned.end()), r.first = mine.first;
    }
    return r;
  }

  // What was kept under another weight moves parameters as far under this unit's.
  void take(const TensorPlace& t, Residual r, double weight) {
    step = std::max(step, r.step);
    if (const Piece begins = coded.memory(index_of(t)); begins.count == r.memory.size()) copy(r.memory, begins);
    if (coded.sent() == nullptr || r.sent.size() != t.count) return;
    if (const Piece velocity = coded.sent()->velocity(); velocity.count > 0 && r.velocity.size() == t.count)
      copy(r.velocity, velocity.part(t.first, t.count));
    if (r.weight == 0) return;
    scale(r.sent, r.weight / weight);
    scale(r.owned, r.weight / weight);
    const ElementRange mine = part_of(coded.owned(), t);
    const bool kept = coded.sum() != nullptr && r.first == mine.first && r.owned.size() == mine.count && r.share == share();
    if (kept)
      copy(r.owned, *coded.sum(), t.first + mine.first - coded.owned().first);
    else
      fold(r);
    copy(r.sent, *coded.sent(), t.first);
  }

  double share() const { return op == Op::average ? ranks : 1.0; }
  std::size_t index_of(const TensorPlace& t) const { return static_cast<std::size_t>(&t - layout.tensors.data()); }
  static std::vector<float> floats(const Piece& p) {
    const auto* const first = static_cast<const float*>(p.data);
    return {first, first + p.count};
  }
  static std::vector<float> part(const Piece& all, const TensorPlace& t) {
    return all.count == 0 ? std::vector<float>{} : floats(all.part(t.first, t.count));
  }
  static void copy(const std::vector<float>& from, const Piece& to) {
    if (!from.empty()) std::memcpy(to.data, from.data(), to.bytes());
  }
  static void copy(const std::vector<float>& from, codec::Feedback& to, std::size_t first) {
    if (!from.empty()) std::memcpy(static_cast<float*>(to.values().data) + first, from.data(), from.size() * sizeof(float));
  }
};

GradientCodec::GradientCodec(std::string_view spec, std::uint64_t seed, Verdict verdict)
    : codec_(codec::make(spec)), seed_(seed), verdict_(verdict) {}
GradientCodec::~GradientCodec() = default;

void GradientCodec::check(const CodedUnit& unit) const {
  if (unit.op != Op::sum && unit.op != Op::average)
    throw_failure(Kind::usage, "codec {} has sums and averages, no {}", spec(), name_of(unit.op));
  for (std::size_t i = 0; i < unit.names.size(); ++i) {
    const Piece& g = unit.gradients[i];
    if (g.dtype != Dtype::f32 || g.device.kind != DeviceKind::cpu)
      throw_failure(Kind::usage, "codec {} is for float32 gradients on the CPU, and that of {} is {}{}; train it without a codec", spec(),
                    unit.names[i], name_of(g.dtype), g.device.kind == DeviceKind::cpu ? "" : " on another device");
  }
}

void GradientCodec::reduce(Communicator& comm, const CodedUnit& unit, const collective::Call& call) {
  const std::lock_guard lock(mutex_);
  Unit& u = unit_for(unit, comm);
  if (u.open && verdict_ == Verdict::by_values) settle(u, u.finite);
  Piece flat{.data = unit.gradients.front().data, .count = u.layout.count, .dtype = Dtype::f32};
  const bool packed = !adjoin(unit.gradients);
  if (packed) {
    if (u.memory.data() == nullptr) u.memory = comm.allocate(std::max<std::size_t>(flat.bytes(), 1));
    flat.data = u.memory.data();
    for (std::size_t i = 0; i < unit.gradients.size(); ++i)
      if (const Piece& g = unit.gradients[i]; g.count > 0)
        std::memcpy(flat.part(u.layout.tensors[i].first, g.count).data, g.data, g.bytes());
  }
  u.open = false;  // a reduction that fails half-way leaves nothing to settle
  u.coded.agree_on_memory(comm, call);
  u.coded.reduce(comm, flat, {}, unit.op, {.weight = unit.weight, .unit = unit.unit, .seed = seed_, .step = u.step}, call);
  u.open = true;
  if (verdict_ == Verdict::by_values) u.finite = finite(flat);
  for (std::size_t i = 0; packed && i < unit.gradients.size(); ++i)
    if (const Piece& g = unit.gradients[i]; g.count > 0) std::memcpy(g.data, flat.part(u.layout.tensors[i].first, g.count).data, g.bytes());
}

// The unit of these parameters: what was kept of each comes from the units that had it before.
GradientCodec::Unit& GradientCodec::unit_for(const CodedUnit& unit, Communicator& comm) {
  Layout layout = layout_of(unit);
  const auto found = std::find_if(units_.begin(), units_.end(), [&](const auto& u) { return u->fits(layout, unit.op, comm); });
  if (found != units_.end()) return **found;
  const auto has = [&](const std::unique_ptr<Unit>& u, const std::string& name) {
    return std::any_of(u->layout.tensors.begin(), u->layout.tensors.end(), [&](const TensorPlace& t) { return t.name == name; });
  };
  for (const std::string& name : unit.names) {
    const auto old = std::find_if(units_.begin(), units_.end(), [&](const auto& u) { return has(u, name); });
    if (old == units_.end()) continue;
    dissolve(**old);
    units_.erase(old);
  }
  auto& fresh = *units_.emplace_back(std::make_unique<Unit>(codec_, std::move(layout), unit.op, comm));
  double weight = 0;
  for (const std::string& name : unit.names)
    if (const auto kept = loose_.find(name); kept != loose_.end() && weight == 0) weight = kept->second.weight;
  for (const TensorPlace& t : fresh.layout.tensors)
    if (auto kept = loose_.extract(t.name)) fresh.take(t, std::move(kept.mapped()), weight);
  if (fresh.coded.sent() != nullptr) fresh.coded.sent()->set_weight(weight);
  if (fresh.coded.sum() != nullptr) fresh.coded.sum()->set_weight(weight);
  return fresh;
}

void GradientCodec::dissolve(Unit& unit) {
  if (unit.open && verdict_ == Verdict::by_values) settle(unit, unit.finite);
  for (const TensorPlace& t : unit.layout.tensors) loose_[t.name] = unit.residual_of(t);
}

void GradientCodec::settle(Unit& unit, bool made) const {
  if (!std::exchange(unit.open, false)) return;
  unit.coded.settle(made);
  if (made) ++unit.step;
}

void GradientCodec::settle(bool made) {
  const std::lock_guard lock(mutex_);
  for (const auto& unit : units_) settle(*unit, made);
}

std::map<std::string, Residual> GradientCodec::residuals() const {
  const std::lock_guard lock(mutex_);
  std::map<std::string, Residual> all = loose_;
  for (const auto& unit : units_) {
    if (unit->open && verdict_ == Verdict::by_values) settle(*unit, unit->finite);
    for (const TensorPlace& t : unit->layout.tensors) all[t.name] = unit->residual_of(t);
  }
  return all;
}

void GradientCodec::restore(std::map<std::string, Residual> residuals) {
  const std::lock_guard lock(mutex_);
  for (const auto& unit : units_) dissolve(*unit);
  units_.clear();
  for (auto& [name, r] : residuals) {
    if (r.owned.size() + r.first > r.sent.size() && !r.owned.empty())
      throw_failure(Kind::usage, "a residual of {} has {} elements, and {} of the sum from {} on", name, r.sent.size(), r.owned.size(),
                    r.first);
    Residual& kept = loose_[name];
    if (r.sent.empty()) {
      kept.step = r.step;
      kept.memory = std::move(r.memory);
    } else {
      kept = std::move(r);
    }
  }
}

}  // namespace cohort::python
