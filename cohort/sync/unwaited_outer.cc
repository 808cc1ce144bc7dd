#include "cohort/sync/unwaited_outer.h"

#include <utility>

#include "cohort/sync/elements.h"

namespace cohort::sync {
namespace {

constexpr const char* kBase = "base";  // the centre as this rank last saw it
constexpr const char* kMomentum = "outer_momentum";
constexpr const char* kCame = "came";          // the sum of what came since the momentum last moved
constexpr const char* kArrivals = "arrivals";  // so many

double first_of(const Piece& p) { return p.dtype == Dtype::f32 ? *static_cast<const float*>(p.data) : *static_cast<const double*>(p.data); }

class Unwaited final : public Centred {
 public:
  explicit Unwaited(const UnwaitedOuter& options) : Centred(options.every, options.patience), options_(options) {}
  ~Unwaited() override { stop(); }
  Unwaited(const Unwaited&) = delete;
  Unwaited& operator=(const Unwaited&) = delete;
  std::string_view name() const override { return options_.name; }
  std::vector<SlotSpec> slots() const override {
    using Begins = SlotSpec::Begins;
    auto all = Centred::slots();
    all.push_back({.name = kBase, .share = Share::each, .merge = Merge::drop, .begins = Begins::parameters});
    if (options_.momentum == 0) return all;
    all.push_back({.name = kMomentum, .share = Share::each, .merge = Merge::drop});
    all.push_back({.name = kCame, .share = Share::each, .merge = Merge::drop});
    all.push_back({.name = kArrivals, .share = Share::each, .merge = Merge::drop, .per_tensor = true});
    return all;
  }

 protected:
  void bring(const Bucket& bucket, const Range& part, const Piece& sent) const override {
    subtract(sent, of(bucket.parameters(), part), of(bucket.slot(kBase), part));
  }
  void meet(Bucket& bucket, const Range& part, const Piece& values) override {
    const Piece centre = of(bucket.slot(kCentreSlot), part);
    add_scaled(centre, options_.lr / ranks(), values);
    if (options_.momentum > 0) move_momentum(bucket, part, values);
    copy(values, centre);
  }
  // What the rank has moved since it asked stays: nothing when the answer came at once, and x is the centre then.
  void take(Bucket& bucket, const Range& part, const Piece& sent, const Piece& came) const override {
    const Piece x = of(bucket.parameters(), part), base = of(bucket.slot(kBase), part);
    subtract(x, x, base);
    subtract(x, x, sent);
    add(x, came);
    copy(base, came);
  }

 private:
  static Piece of(const Piece& all, const Range& part) { return all.part(part.first, part.count); }
  void move_momentum(Bucket& bucket, const Range& part, const Piece& values) const {
    const Piece momentum = of(bucket.slot(kMomentum), part), came = of(bucket.slot(kCame), part), arrivals = bucket.slot(kArrivals);
    const Piece centre = of(bucket.slot(kCentreSlot), part);
    const double number = first_of(arrivals) + 1;
    add(came, values);
    fill(arrivals, number < ranks() ? number : 0);
    if (number < ranks()) return;
    if (!options_.nesterov) add_scaled(centre, options_.lr * options_.momentum, momentum);
    scale(momentum, options_.momentum);
    add_scaled(momentum, 1.0 / ranks(), came);
    fill(came, 0);
    if (options_.nesterov) add_scaled(centre, options_.lr * options_.momentum, momentum);
  }

  const UnwaitedOuter options_;
};

}  // namespace

std::unique_ptr<Strategy> make_unwaited(const UnwaitedOuter& options) { return std::make_unique<Unwaited>(options); }

}  // namespace cohort::sync
