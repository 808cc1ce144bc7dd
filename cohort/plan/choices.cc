#include "cohort/plan/choices.h"

#include <algorithm>
#include <numeric>

namespace cohort::plan {
namespace {

double bytes_in(const ModelProfile& profile, const std::vector<std::size_t>& bucket) {
  double bytes = 0;
  for (const std::size_t i : bucket) bytes += static_cast<double>(profile.parameters[i].bytes);
  return bytes;
}

std::array<double, kMemoryClasses> bytes_of(const PlanInput& plan_input, int stage, const ModelProfile& profile) {
  double elements = 0;
  Traffic traffic{.lanes = plan_input.lanes};
  for (const auto& p : profile.parameters) elements += static_cast<double>(p.elements);
  std::vector<double> buckets;
  for (const auto& bucket : plan_input.buckets) buckets.push_back(bytes_in(profile, bucket));
  traffic.buckets = most_in_flight(buckets, plan_input.lanes);
  for (const auto& block : profile.blocks) traffic.largest_block = std::max(traffic.largest_block, static_cast<double>(block.bytes));
  auto bytes = held_bytes(plan_input.state_sizes, stage, plan_input.links.ranks, elements, traffic);
  if (plan_input.has_buddy_copies(stage)) {
    const double share = elements / plan_input.links.ranks;
    bytes[static_cast<std::size_t>(MemoryClass::gradients)] += share * plan_input.state_sizes.gradient;
    bytes[static_cast<std::size_t>(MemoryClass::optimizer)] +=
        share * (plan_input.state_sizes.optimizer + (stage == 3 ? plan_input.state_sizes.parameter : 0));
  }
  bytes[static_cast<std::size_t>(MemoryClass::activations)] = static_cast<double>(profile.kept);
  bytes[static_cast<std::size_t>(MemoryClass::temporaries)] = static_cast<double>(profile.peak - profile.kept);
  return bytes;
}

struct CommSeconds {
  double hidden = 0, exposed = 0;
};

// Buckets are sent in order, each when its last gradient is there and the one before is done.
CommSeconds overlap_gradients(const PlanInput& plan_input, const ModelProfile& profile, double backward,
                              double (*cost)(const Links&, double)) {
  CommSeconds result;
  double lane_free = 0, total = 0;
  for (const auto& bucket : plan_input.buckets) {
    const double seconds = cost(plan_input.links, bytes_in(profile, bucket));
    total += seconds;
    double ready = 0;
    for (const std::size_t i : bucket) ready = std::max(ready, profile.parameters[i].arrives);
    lane_free = std::max(lane_free, ready) + seconds;
  }
  result.exposed = plan_input.lanes > 0 ? std::min(total, std::max(0.0, lane_free - backward)) : total;
  result.hidden = total - result.exposed;
  return result;
}

// Stage 3: a block's parameters are gathered while the block before computes; then again, in backward.
CommSeconds gather_parameters(const PlanInput& plan_input, const ModelProfile& profile, double backward) {
  CommSeconds result;
  const double slower = profile.forward > 0 ? backward / profile.forward : 1;  // a block's backward, in its forwards
  const auto pass = [&](double scale) {
    double before = 0;
    for (const auto& block : profile.blocks) {
      const double seconds = plan_input.links.all_gather(static_cast<double>(block.bytes));
      const double behind = plan_input.lanes > 0 ? std::min(seconds, before * scale) : 0;
      result.hidden += behind;
      result.exposed += seconds - behind;
      before = block.forward;
    }
  };
  pass(1);
  pass(slower);
  return result;
}

}  // namespace

double most_in_flight(std::span<const double> bytes, int lanes) {
  const std::size_t together = std::min(bytes.size(), static_cast<std::size_t>(std::max(lanes, 1)) + 1);
  double most = 0;
  for (std::size_t first = 0; first + together <= bytes.size(); ++first) {
    const auto some = bytes.subspan(first, together);
    most = std::max(most, std::accumulate(some.begin(), some.end(), 0.0));
  }
  return most;
}

std::array<double, kMemoryClasses> held_bytes(const StateSizes& state_sizes, int stage, int ranks, double elements,
                                              const Traffic& traffic) {
  const StateBytes states = state_bytes(state_sizes, stage, ranks, elements);
  std::array<double, kMemoryClasses> bytes{};
  const auto put = [&](MemoryClass which, double amount) { bytes[static_cast<std::size_t>(which)] = amount; };
  put(MemoryClass::parameters, states.parameters);
  put(MemoryClass::gradients, states.gradients);
  put(MemoryClass::optimizer, states.optimizer);
  put(MemoryClass::master, states.master);
  if (stage == 2) put(MemoryClass::buckets, traffic.buckets);
  const double filling = traffic.lanes + 1;           // a block's gradients come together
  const double gathered = traffic.lanes > 0 ? 2 : 1;  // of the block that runs and, where a lane prefetches, of the next
  if (stage == 3) put(MemoryClass::buckets, (gathered + filling) * traffic.largest_block);
  return bytes;
}

double Choice::total() const { return std::accumulate(bytes.begin(), bytes.end(), 0.0); }

Choice choice(const PlanInput& plan_input, int stage, const ModelProfile& profile) {
  Choice c{.stage = stage, .recompute = profile.recompute, .bytes = bytes_of(plan_input, stage, profile)};
  const double share = stage > 0 ? 1.0 / plan_input.links.ranks : 1;  // of the norm and the update: what this rank owns
  const double crowd = plan_input.links.ranks_per_core(), times = plan_input.accumulate;
  c.compute = crowd * (times * (plan_input.data + profile.forward + profile.backward) +
                       share * (plan_input.measure + (plan_input.has_buddy_copies(stage) ? 2 : 1) * plan_input.update));
  if (plan_input.links.ranks < 2) return c;
  const auto add = [&](const CommSeconds& comm, double often) {
    c.hidden += often * comm.hidden;
    c.exposed += often * comm.exposed;
  };
  const auto reduce = [](const Links& l, double bytes) { return l.all_reduce(bytes); };
  const auto scatter = [](const Links& l, double bytes) { return l.reduce_scatter(bytes); };
  add(overlap_gradients(plan_input, profile, profile.backward, stage == 0 ? +reduce : +scatter), stage >= 2 ? times : 1);
  if (stage == 1 || stage == 2)  // updated parameters, when the update is done
    for (const auto& bucket : plan_input.buckets) c.exposed += plan_input.links.all_gather(bytes_in(profile, bucket));
  if (plan_input.has_buddy_copies(stage))  // one piece of the gradients more: what a gather moves of one other rank
    for (const auto& bucket : plan_input.buckets)
      c.exposed += plan_input.links.all_gather(bytes_in(profile, bucket)) / (plan_input.links.ranks - 1);
  if (stage == 3) add(gather_parameters(plan_input, profile, profile.backward), times);
  c.exposed += plan_input.links.vote();
  return c;
}

std::vector<Choice> choices(const PlanInput& plan_input) {
  std::vector<Choice> all;
  for (const ModelProfile& profile : plan_input.profiles)
    for (int stage = 0; stage < (plan_input.links.ranks > 1 ? kStages : 1); ++stage) all.push_back(choice(plan_input, stage, profile));
  return all;
}

}  // namespace cohort::plan
