#include "cohort/ps/table.h"

#include <algorithm>
#include <utility>

#include "cohort/base/error.h"

namespace cohort::ps {
namespace {

constexpr std::int64_t kMostClock = std::int64_t{1} << 40;  // where one begins: what is counted from it stays far from overflow

}  // namespace

double mean_of(const Histogram& histogram) {
  double sum = 0, count = 0;
  for (const auto& [value, times] : histogram) {
    sum += static_cast<double>(value) * static_cast<double>(times);
    count += static_cast<double>(times);
  }
  return count == 0 ? 0 : sum / count;
}

Table::Table(Gate gate, int workers, std::unique_ptr<Store> store, bool average)
    : gate_(std::move(gate)),
      average_(average),
      store_(std::move(store)),
      clock_(workers),
      seen_(index(workers)),
      held_(index(workers)),
      read_at_(index(workers)) {
  if (workers < 1) throw_failure(Kind::usage, "a table without workers");
}

// Updates before it: one a clock where they are applied together, else one of each worker. Rules count them.
void Table::begin_at(const Stamp& stamp) {
  const std::int64_t updates = stamp.updates.value_or(stamp.clock);
  if (stamp.clock < 0 || stamp.clock > kMostClock || updates < 0 || updates > kMostClock)
    throw_failure(Kind::usage, "a table cannot begin at clock {} with {} updates", stamp.clock, updates);
  clock_.set(stamp.clock);
  applied_ = stamp.clock;
  first_ = gate_.ordered() ? updates : updates * clock_.workers();
  begun_ = true;
}

// The first to come says at which clock a resumed run goes on.
Admission Table::admit(const Stamp& stamp) {
  if (!clock_.has(stamp.worker)) throw_failure(Kind::usage, "worker {} pushes to a table that it is no worker of", stamp.worker);
  const std::uint64_t seen = seen_[index(stamp.worker)];
  if (stamp.seq <= seen) return Admission::repeated;
  if (stamp.seq > seen + 1 || held(stamp.worker)) return Admission::early;
  if (!begun_) begin_at(stamp);
  if (stamp.clock != clock_.at(stamp.worker))
    throw_failure(Kind::usage, "worker {} pushes for clock {}, and has ended {}", stamp.worker, stamp.clock, clock_.at(stamp.worker));
  return Admission::fresh;
}

Admission Table::push(const Stamp& stamp) {
  const Admission admission = admit(stamp);
  if (admission == Admission::fresh) seen_[index(stamp.worker)] = stamp.seq;
  return admission;
}

Admission Table::mark(const Stamp& stamp, Update update) {
  const Admission admission = admit(stamp);
  if (admission != Admission::fresh) return admission;
  seen_[index(stamp.worker)] = stamp.seq;
  if (gate_.ordered()) {
    held_[index(stamp.worker)] = std::move(update);
    clock_.tick(stamp.worker);
    apply_complete();
    return admission;
  }
  const Contribution alone[] = {{stamp.worker, &update}};
  apply(alone);
  clock_.tick(stamp.worker);
  return admission;
}

// Nobody holds more than one, so what is held when all have ended clock applied_ are their updates of it.
void Table::apply_complete() {
  const bool complete = clock_.low() > applied_ || clock_.workers() == 0;
  if (!gate_.ordered() || !complete) return;
  std::vector<Contribution> together;
  for (std::size_t w = 0; w < held_.size(); ++w)
    if (held_[w]) together.push_back({static_cast<int>(w), &*held_[w]});
  if (!together.empty()) apply(together);
  std::ranges::fill(held_, std::nullopt);
  applied_ = std::max(applied_, clock_.low());
}

void Table::apply(std::span<const Contribution> together) {
  for (const Contribution& c : together) ++staleness_[version_ - read_at_[index(c.worker)]];
  ++version_;
  const auto workers = static_cast<double>(gate_.ordered() ? static_cast<int>(together.size()) : std::max(1, clock_.workers()));
  store_->apply(together, average_ ? 1 / workers : 1, first_ + version_);
}

bool Table::opens(int worker, std::int64_t clock, std::optional<std::int64_t> slack) const {
  if (!clock_.has(worker) || clock_.at(worker) < gate_.own(clock)) return false;  // its own marks are on their way
  if (gate_.ordered()) return applied_ >= clock;
  return slack ? clock_.low() >= clock - *slack : gate_.opens(clock, clock_.low());
}

Read Table::read(int worker) {
  read_at_[index(worker)] = version_;
  ++lag_[std::max<std::int64_t>(0, clock_.at(worker) - clock_.low())];
  return {clock_.low(), version_};
}

void Table::join(int worker) {
  clock_.join(worker, clock_.low());
  while (held_.size() <= index(worker)) {
    held_.emplace_back();
    store_->add_worker();
  }
  seen_.resize(held_.size());
  read_at_.resize(held_.size(), version_);
  seen_[index(worker)] = 0;
  read_at_[index(worker)] = version_;
}

void Table::leave(int worker) {
  clock_.leave(worker);
  if (!held(worker)) store_->drop(worker);
  apply_complete();
}

}  // namespace cohort::ps
