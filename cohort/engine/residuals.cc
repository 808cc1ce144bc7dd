#include "cohort/engine/residuals.h"

#include <algorithm>
#include <utility>

#include "cohort/base/text.h"
#include "cohort/engine/tensor_file.h"
#include "cohort/sync/elements.h"

namespace cohort::engine {
namespace {

constexpr std::string_view kMemory = "memory";

std::span<float> floats(const Piece& piece) { return {static_cast<float*>(piece.data), piece.count}; }

void visit_residuals(const Engine& engine, const std::function<void(const StateItem&, bool sent)>& call) {
  engine.visit([&](const StateItem& item) {
    if (item.group == kResidualGroup && item.state != kMemory) call(item, item.merge == Merge::sum);
  });
}

void visit_memory(const Engine& engine, const std::function<void(const StateItem&)>& call) {
  engine.visit([&](const StateItem& item) {
    if (item.group == kResidualGroup && item.state == kMemory) call(item);
  });
}

// The velocity is carried like what was not sent.
std::string name_of(const StateItem& item) { return item.state == "velocity" ? item.key() : std::string(item.parameter); }

// All elements of a parameter, of which this rank has these runs.
std::vector<float> add_up(collective::Communicator& comm, const std::string& name, std::size_t count,
                          const std::multimap<std::string, Residuals::Run>& runs) {
  std::vector<float> all(count);
  const auto [begin, end] = runs.equal_range(name);
  for (auto run = begin; run != end; ++run)
    for (std::size_t i = 0; i < run->second.values.size(); ++i) all[run->second.first + i] += run->second.values[i];
  comm.all_reduce(collective::piece(std::span(all)), collective::Op::sum, {.name = name});
  return all;
}

bool any_rank(collective::Communicator& comm, bool here) {
  std::int32_t flag = here ? 1 : 0;
  comm.all_reduce(collective::piece(std::span(&flag, 1)), collective::Op::max, {.name = "residuals of sums"});
  return flag != 0;
}

// The first rank that has it gives it to all; where none has, it begins anew.
void restore_memory(collective::Communicator& comm, const Engine& engine, const Residuals& had) {
  visit_memory(engine, [&](const StateItem& item) {
    const auto found = had.memory.find(std::string(item.parameter));
    const bool here = found != had.memory.end() && found->second.size() == item.values.count;
    std::int32_t first = here ? comm.rank().value : comm.size();
    comm.all_reduce(collective::piece(std::span(&first, 1)), collective::Op::min, {.name = "first rank with a codec's memory"});
    if (first == comm.size()) return sync::fill(item.values, 0);
    if (here) std::ranges::copy(found->second, floats(item.values).begin());
    comm.broadcast(item.values, Rank{first}, {.name = item.parameter});
  });
}

}  // namespace

Residuals capture_residuals(const Engine& engine, int ranks) {
  Residuals all{.sent = {}, .sums = {}, .memory = {}, .weight = engine.residual_weight(), .ranks = ranks};
  visit_residuals(engine, [&](const StateItem& item, bool sent) {
    const auto values = floats(item.values);
    if (sent)
      all.sent[name_of(item)] = {values.begin(), values.end()};
    else
      all.sums.emplace(item.parameter, Residuals::Run{item.run.first, {values.begin(), values.end()}});
  });
  visit_memory(engine, [&](const StateItem& item) {
    const auto values = floats(item.values);
    all.memory[std::string(item.parameter)] = {values.begin(), values.end()};
  });
  return all;
}

// To the first rank that stays.
void hand_over_residuals(collective::Communicator& comm, Residuals& mine, bool leaves) {
  if (mine.sent.empty()) return;  // on all ranks
  std::int32_t first = leaves ? comm.size() : comm.rank().value;
  comm.all_reduce(collective::piece(std::span(&first, 1)), collective::Op::min, {.name = "first rank that stays"});
  const bool takes = first == comm.rank().value, sums = any_rank(comm, !mine.sums.empty());
  const std::multimap<std::string, Residuals::Run> none;
  for (auto& [name, values] : mine.sent) {
    std::vector<float> left = leaves ? values : std::vector<float>(values.size());
    comm.all_reduce(collective::piece(std::span(left)), collective::Op::sum, {.name = name});
    if (takes) std::transform(values.begin(), values.end(), left.begin(), values.begin(), std::plus<>{});
    if (!sums) continue;
    left = add_up(comm, name, values.size(), leaves ? mine.sums : none);
    if (takes) mine.sums.emplace(name, Residuals::Run{0, std::move(left)});
  }
}

void restore_residuals(collective::Communicator& comm, const Engine& engine, const Residuals* mine) {
  struct Place {
    Piece sent;
    std::vector<std::pair<std::size_t, Piece>> sums;
  };
  std::map<std::string, Place> places;  // the same names in the same order on every rank
  visit_residuals(engine, [&](const StateItem& item, bool sent) {
    Place& place = places[name_of(item)];
    if (sent)
      place.sent = item.values;
    else
      place.sums.emplace_back(item.run.first, item.values);
  });
  if (places.empty()) return;  // on all ranks
  static const Residuals none;
  const Residuals& had = mine != nullptr ? *mine : none;
  double numbers[] = {had.weight, static_cast<double>(had.ranks)};
  comm.all_reduce(collective::piece(std::span<double>(numbers)), collective::Op::max, {.name = "weight of residuals"});
  restore_memory(comm, engine, had);
  const bool sums = any_rank(comm, !had.sums.empty());
  const double factor = engine.averages() && numbers[1] > 0 ? comm.size() / numbers[1] : 1;
  for (auto& [name, place] : places) {
    if (const auto found = had.sent.find(name); found != had.sent.end())
      std::ranges::transform(found->second, floats(place.sent).begin(), [&](float e) { return static_cast<float>(e * factor); });
    if (!sums) continue;
    const std::vector<float> all = add_up(comm, name, place.sent.count, had.sums);
    for (const auto& [first, to] : place.sums) std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(first), to.count, floats(to).begin());
  }
  engine.set_residual_weight(numbers[0]);
}

void read_residuals(const checkpoint::Contents& from, const Engine& engine, int rank, int ranks) {
  if (!engine.has_own_state()) return;
  const int had = static_cast<int>(from.checkpoint().manifest.world_size);
  visit_residuals(engine, [&](const StateItem& item, bool sent) {
    if (had == ranks && has_local(from, rank, item)) return read_local(from, rank, item);
    if (!read_sum_of_locals(from, sent ? had : 1, item)) return sync::fill(item.values, 0);
    if (sent) sync::scale(item.values, 1.0 / (engine.averages() ? had : ranks));
  });
  visit_memory(engine, [&](const StateItem& item) {
    if (has_local(from, 0, item)) return read_local(from, 0, item);
    sync::fill(item.values, 0);
  });
  const auto metadata = from.metadata(kLocalGroup);
  const auto weight = metadata.find(kResidualWeight);
  engine.set_residual_weight(weight != metadata.end() ? parse_real(weight->second) : 0);
}

}  // namespace cohort::engine
