#include "cohort/elastic/history.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

namespace cohort::elastic {
namespace {

using Event = HistoryLine::Event;
using Lines = std::vector<const HistoryLine*>;
constexpr std::uint32_t kLastEpoch = std::numeric_limits<std::uint32_t>::max();

class Judge {
 public:
  explicit Judge(const std::vector<HistoryLine>& lines) : lines_(lines) { sort_out(); }
  std::vector<Violation> verdict() {
    one_epoch_per_step();
    no_step_missing();
    every_worker_in_order();
    little_in_vain();
    equal_parameters();
    samples_once();
    return std::move(found_);
  }

 private:
  template <class... Args>
  void breaks(const char* promise, fmt::format_string<Args...> format, Args&&... args) {
    found_.push_back({promise, fmt::format(format, std::forward<Args>(args)...)});
  }
  void sort_out();
  void one_epoch_per_step();
  void no_step_missing();
  void every_worker_in_order();
  void little_in_vain();
  void equal_parameters();
  void samples_once();
  void samples_of_step(const HistoryLine& head, const Lines& step, std::unordered_map<std::int64_t, std::int64_t>& taken);
  bool voided(std::int64_t step, std::uint32_t from, std::uint32_t to) const;
  // What counts of a step: the commits of its latest epoch.
  const std::pair<const std::uint32_t, Lines>& final_commit(std::int64_t step) const { return *commits_.at(step).rbegin(); }
  std::int64_t base() const;

  const std::vector<HistoryLine>& lines_;
  std::map<std::int64_t, std::map<std::uint32_t, Lines>> commits_;  // by step, by epoch
  std::map<std::string, Lines> workers_;
  std::map<std::uint32_t, std::set<std::int64_t>> started_;    // by epoch
  std::set<std::pair<std::uint32_t, std::int64_t>> restarts_;  // epoch, step
  std::int64_t base_ = 0;
  std::vector<Violation> found_;
};

void Judge::sort_out() {
  for (const HistoryLine& line : lines_) {
    workers_[line.worker].push_back(&line);
    if (line.event == Event::commit) commits_[line.step][line.epoch.value].push_back(&line);
    if (line.event == Event::start) started_[line.epoch.value].insert(line.step);
    if (line.event == Event::restart) restarts_.emplace(line.epoch.value, line.step);
  }
  base_ = base();
}

// Between these epochs all holders of this step were lost, and the job restarted before it.
bool Judge::voided(std::int64_t step, std::uint32_t from, std::uint32_t to) const {
  return std::ranges::any_of(restarts_, [&](const auto& r) { return r.first > from && r.first <= to && r.second < step; });
}

void Judge::one_epoch_per_step() {
  std::uint32_t latest = 0;
  for (const auto& [step, by_epoch] : commits_) {
    for (auto at = by_epoch.begin(), next = std::next(at); next != by_epoch.end(); ++at, ++next)
      if (!voided(step, at->first, next->first))
        breaks("P6", "step {} was committed by membership epoch {} and again by membership epoch {}", step, at->first, next->first);
    const std::uint32_t epoch = by_epoch.rbegin()->first;
    if (epoch < latest && !voided(step, epoch, latest))
      breaks("P6", "step {} was committed by membership epoch {}, after a step before it by membership epoch {}", step, epoch, latest);
    latest = std::max(latest, epoch);
    for (const auto& [e, lines] : by_epoch) {
      std::set<std::int32_t> ranks;
      for (const HistoryLine* line : lines)
        if (!ranks.insert(line->rank.value).second)
          breaks("P6", "membership epoch {} has two that committed step {} as rank {}", e, step, line->rank.value);
    }
  }
}

// The step that the first epoch continued from.
std::int64_t Judge::base() const {
  if (restarts_.empty()) return 0;
  const auto restart = *restarts_.begin();
  const auto before = [&](const HistoryLine& l) { return l.event == Event::commit && l.epoch.value < restart.first; };
  return std::ranges::none_of(lines_, before) ? restart.second : 0;
}

void Judge::no_step_missing() {
  std::int64_t before = base_;
  for (const auto& [step, by_epoch] : commits_) {
    if (step > before + 1) breaks("P1", "step {} follows step {}: those between were lost", step, before);
    before = std::max(before, step);
  }
}

void Judge::every_worker_in_order() {
  for (const auto& [worker, lines] : workers_) {
    std::optional<std::int64_t> at;
    for (const HistoryLine* line : lines) {
      if (line->event == Event::heal || line->event == Event::restart) at = line->step;
      if (line->event != Event::commit) continue;
      const std::int64_t before = at.value_or(base_);
      if (line->step <= before)
        breaks("P1", "worker {} applied step {} (membership epoch {}) again, after step {}", worker, line->step, line->epoch.value, before);
      else if (line->step > before + 1)
        breaks("P1", "worker {} applied step {} (membership epoch {}) after step {}: it skipped some", worker, line->step,
               line->epoch.value, before);
      at = line->step;
    }
  }
}

void Judge::little_in_vain() {
  for (const auto& [epoch, steps] : started_) {
    std::vector<std::int64_t> vain;
    for (const std::int64_t step : steps) {
      const auto at = commits_.find(step);
      if (at == commits_.end() || !at->second.contains(epoch)) vain.push_back(step);
    }
    if (vain.size() > 1)
      breaks("P1", "membership epoch {} computed {} steps in vain, from step {} on: at most one may be", epoch, vain.size(), vain[0]);
  }
}

void Judge::equal_parameters() {
  for (const auto& [step, by_epoch] : commits_) {
    for (const auto& [epoch, lines] : by_epoch) {
      const auto first = std::ranges::find_if(lines, [](const HistoryLine* l) { return !l->hash.empty(); });
      for (auto at = first; at != lines.end(); ++at)
        if (!(*at)->hash.empty() && (*at)->hash != (*first)->hash)
          breaks("P2", "after step {} of membership epoch {} rank {} has parameters {} and rank {} has {}", step, epoch,
                 (*first)->rank.value, (*first)->hash, (*at)->rank.value, (*at)->hash);
    }
  }
  for (const HistoryLine& line : lines_) {
    const auto step = commits_.find(line.step);
    if (line.event != Event::heal || line.hash.empty() || step == commits_.end()) continue;
    auto epoch = step->second.upper_bound(line.epoch.value);
    if (epoch == step->second.begin()) continue;
    const HistoryLine& source = *std::prev(epoch)->second.front();
    if (!source.hash.empty() && source.hash != line.hash)
      breaks("P2", "rank {} of membership epoch {} received parameters {} after step {}, which are {}", line.rank.value, line.epoch.value,
             line.hash, line.step, source.hash);
  }
}

void Judge::samples_once() {
  std::int64_t data_epoch = -1, next = 0, of = 0;
  std::unordered_map<std::int64_t, std::int64_t> taken;  // sample: the step that took it
  for (const auto& [step, by_epoch] : commits_) {
    const auto& [committed_by, lines] = final_commit(step);
    const HistoryLine& head = *lines.front();
    if (head.of == 0 || voided(step, committed_by, kLastEpoch)) continue;  // after a restart the job did not come as far again
    for (const HistoryLine* line : lines)
      if (line->data_epoch != head.data_epoch || line->first != head.first || line->total != head.total || line->of != head.of)
        breaks("P3", "at step {} ranks {} and {} do not agree which samples it takes", step, head.rank.value, line->rank.value);
    if (head.data_epoch != data_epoch) {
      if (data_epoch >= 0 && (next != of || head.data_epoch != data_epoch + 1))
        breaks("P3", "epoch {} of the data was left after {} of {} samples for epoch {}, at step {}", data_epoch, next, of, head.data_epoch,
               step);
      data_epoch = head.data_epoch;
      next = taken.empty() && step == base_ + 1 ? head.first : 0;  // a history may begin in the middle of an epoch
      of = head.of;
      taken.clear();
    }
    if (head.first != next)
      breaks("P3", "step {} takes samples from position {} of data epoch {} on; {} were taken before", step, head.first, data_epoch, next);
    next = head.first + head.total;
    if (next > of) breaks("P3", "step {} takes samples up to position {} of {}", step, next, of);
    samples_of_step(head, lines, taken);
  }
}

void Judge::samples_of_step(const HistoryLine& head, const Lines& step, std::unordered_map<std::int64_t, std::int64_t>& taken) {
  std::int64_t count = 0;
  for (const HistoryLine* line : step) {
    count += static_cast<std::int64_t>(line->samples.size());
    for (const std::int64_t id : line->samples) {
      if (id >= head.of) breaks("P3", "step {}, rank {}: sample {} of {} does not exist", head.step, line->rank.value, id, head.of);
      const auto [at, fresh] = taken.emplace(id, head.step);
      if (!fresh)
        breaks("P3", "sample {} was taken at step {} and again at step {} by rank {}", id, at->second, head.step, line->rank.value);
    }
  }
  const bool all_wrote = static_cast<int>(step.size()) == head.size;
  if (count > head.total || (all_wrote && count != head.total))
    breaks("P3", "step {} took {} samples, its ranks {} in total", head.step, head.total, count);
}

}  // namespace

std::vector<Violation> judge(const std::vector<HistoryLine>& lines) { return Judge(lines).verdict(); }

}  // namespace cohort::elastic
