#include "cohort/optim/background_roots.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace cohort::optim {
namespace {

std::vector<double> root_of(const Statistic& s) { return inverse_root(s.matrix, s.n, s.options); }

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
}

// The same on every rank that has the same statistics.
std::vector<Job> jobs_of(const std::vector<Statistic>& all) {
  std::vector<Job> jobs;
  for (const Statistic& s : all) jobs.push_back({.cost = static_cast<double>(s.n) * static_cast<double>(s.n * s.n)});
  return jobs;
}

}  // namespace

void BackgroundRoots::begin(std::vector<Statistic> all, Side& side) {
  const std::vector<int> rank_of = assign_jobs(jobs_of(all), side.ranks());
  for (std::size_t i = 0; i < all.size(); ++i)
    if (!side.replicated() || rank_of[i] == side.rank()) begin_one(std::move(all[i]), side.background());
}

void BackgroundRoots::share(std::vector<Statistic> all, Side& side) {
  std::vector<Job> jobs = jobs_of(all);
  std::vector<std::vector<double>> roots(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    roots[i].resize(all[i].matrix.size());  // zeros: there is none
    jobs[i].result = piece(std::span(roots[i]));
    jobs[i].run = [&, i] { std::ranges::copy(take(all[i]), roots[i].begin()); };
  }
  side.spread(jobs);
  for (std::size_t i = 0; i < all.size(); ++i) put(std::move(all[i]), roots[i][0] > 0 ? std::move(roots[i]) : std::vector<double>{});
}

void BackgroundRoots::begin_one(Statistic statistic, BackgroundPool& pool) {
  const auto entry = std::make_shared<Entry>(Entry{std::move(statistic)});
  auto ticket = pool.submit([entry] { entry->root = root_of(entry->statistic); });
  const std::lock_guard lock(mutex_);
  begun_[entry->statistic.key] = {entry, std::move(ticket)};
}

void BackgroundRoots::put(Statistic statistic, std::vector<double> root) {
  const auto entry = std::make_shared<Entry>(Entry{std::move(statistic), std::move(root)});
  const std::lock_guard lock(mutex_);
  begun_[entry->statistic.key] = {entry};
}

std::vector<double> BackgroundRoots::take(const Statistic& statistic) {
  Begun found;
  {
    const std::lock_guard lock(mutex_);
    const auto at = begun_.find(statistic.key);
    if (at != begun_.end() && same_bits(at->second.entry->statistic.matrix, statistic.matrix)) found = begun_.extract(at).mapped();
  }
  if (!found.entry) return root_of(statistic);
  if (found.ticket.valid()) BackgroundPool::wait(found.ticket);
  return std::move(found.entry->root);
}

}  // namespace cohort::optim
