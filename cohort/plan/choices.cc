#include "cohort/plan/choices.h"

#include <algorithm>
#include <numeric>

namespace cohort::plan {
namespace {

double bytes_in(const Walk& walk, const std::vector<std::size_t>& bucket) {
  double bytes = 0;
  for (const std::size_t i : bucket) bytes += static_cast<double>(walk.parameters[i].bytes);
  return bytes;
}

std::array<double, kMemoryClasses> bytes_of(const Facts& facts, int stage, const Walk& walk) {
  double elements = 0;
  Traffic traffic{.lanes = facts.lanes};
  for (const auto& p : walk.parameters) elements += static_cast<double>(p.elements);
  for (const auto& bucket : facts.buckets) traffic.largest_bucket = std::max(traffic.largest_bucket, bytes_in(walk, bucket));
  for (const auto& block : walk.blocks) traffic.largest_block = std::max(traffic.largest_block, static_cast<double>(block.bytes));
  auto bytes = held_bytes(facts.recipe, stage, facts.links.ranks, elements, traffic);
  if (facts.keeps_buddies(stage)) {
    const double share = elements / facts.links.ranks;
    bytes[static_cast<std::size_t>(MemoryClass::gradients)] += share * facts.recipe.gradient;
    bytes[static_cast<std::size_t>(MemoryClass::optimizer)] += share * (facts.recipe.optimizer + (stage == 3 ? facts.recipe.parameter : 0));
  }
  bytes[static_cast<std::size_t>(MemoryClass::activations)] = static_cast<double>(walk.kept);
  bytes[static_cast<std::size_t>(MemoryClass::temporaries)] = static_cast<double>(walk.peak - walk.kept);
  return bytes;
}

struct Carried {
  double hidden = 0, exposed = 0;
};

// Buckets leave in order, each when its last gradient is there and the one before has gone.
Carried carry_gradients(const Facts& facts, const Walk& walk, double backward, double (*cost)(const Links&, double)) {
  Carried result;
  double lane_free = 0, total = 0;
  for (const auto& bucket : facts.buckets) {
    const double seconds = cost(facts.links, bytes_in(walk, bucket));
    total += seconds;
    double ready = 0;
    for (const std::size_t i : bucket) ready = std::max(ready, walk.parameters[i].arrives);
    lane_free = std::max(lane_free, ready) + seconds;
  }
  result.exposed = facts.lanes > 0 ? std::min(total, std::max(0.0, lane_free - backward)) : total;
  result.hidden = total - result.exposed;
  return result;
}

// Stage 3: a block's parameters are on their way while the block before computes; then again, in backward.
Carried gather_parameters(const Facts& facts, const Walk& walk, double backward) {
  Carried result;
  const double slower = walk.forward > 0 ? backward / walk.forward : 1;  // a block's backward, in its forwards
  const auto pass = [&](double scale) {
    double before = 0;
    for (const auto& block : walk.blocks) {
      const double seconds = facts.links.all_gather(static_cast<double>(block.bytes));
      const double behind = facts.lanes > 0 ? std::min(seconds, before * scale) : 0;
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

std::array<double, kMemoryClasses> held_bytes(const Recipe& recipe, int stage, int ranks, double elements, const Traffic& traffic) {
  const StateBytes states = state_bytes(recipe, stage, ranks, elements);
  std::array<double, kMemoryClasses> bytes{};
  const auto put = [&](MemoryClass which, double amount) { bytes[static_cast<std::size_t>(which)] = amount; };
  put(MemoryClass::parameters, states.parameters);
  put(MemoryClass::gradients, states.gradients);
  put(MemoryClass::optimizer, states.optimizer);
  put(MemoryClass::master, states.master);
  const double filling = traffic.lanes + 1;
  if (stage == 2) put(MemoryClass::buckets, filling * traffic.largest_bucket);
  const double gathered = traffic.lanes > 0 ? 2 : 1;  // of the block at work and, where a lane fetches ahead, of the next
  if (stage == 3) put(MemoryClass::buckets, (gathered + filling) * traffic.largest_block);
  return bytes;
}

double Choice::total() const { return std::accumulate(bytes.begin(), bytes.end(), 0.0); }

Choice choice(const Facts& facts, int stage, const Walk& walk) {
  Choice c{.stage = stage, .recompute = walk.recompute, .bytes = bytes_of(facts, stage, walk)};
  const double share = stage > 0 ? 1.0 / facts.links.ranks : 1;  // of the norm and the update: what this rank owns
  const double crowd = facts.links.crowding(), times = facts.accumulate;
  c.compute = crowd * (times * (facts.data + walk.forward + walk.backward) +
                       share * (facts.measure + (facts.keeps_buddies(stage) ? 2 : 1) * facts.update));
  if (facts.links.ranks < 2) return c;
  const auto add = [&](const Carried& carried, double often) {
    c.hidden += often * carried.hidden;
    c.exposed += often * carried.exposed;
  };
  const auto reduce = [](const Links& l, double bytes) { return l.all_reduce(bytes); };
  const auto scatter = [](const Links& l, double bytes) { return l.reduce_scatter(bytes); };
  add(carry_gradients(facts, walk, walk.backward, stage == 0 ? +reduce : +scatter), stage >= 2 ? times : 1);
  if (stage == 1 || stage == 2)  // fresh parameters, when the update is done
    for (const auto& bucket : facts.buckets) c.exposed += facts.links.all_gather(bytes_in(walk, bucket));
  if (facts.keeps_buddies(stage))  // one piece of the gradients more: what a gather moves of one other rank
    for (const auto& bucket : facts.buckets) c.exposed += facts.links.all_gather(bytes_in(walk, bucket)) / (facts.links.ranks - 1);
  if (stage == 3) add(gather_parameters(facts, walk, walk.backward), times);
  c.exposed += facts.links.vote();
  return c;
}

std::vector<Choice> choices(const Facts& facts) {
  std::vector<Choice> all;
  for (const Walk& walk : facts.walks)
    for (int stage = 0; stage < (facts.links.ranks > 1 ? kStages : 1); ++stage) all.push_back(choice(facts, stage, walk));
  return all;
}

}  // namespace cohort::plan
