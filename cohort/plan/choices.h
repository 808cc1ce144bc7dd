// Memory and step time of a training job for every ZeRO stage and every way of recomputing, before it runs.
//   memory    parameters, gradients, optimizer state and master copy by stage (states.h); activations: what lives when forward has ended;
//             temporaries: what comes on top at the worst moment; buckets: gathered parameters and gradients in flight
//   compute   data + forward + backward + norm of the gradient + update, times the ranks that share a core
//   hidden    communication behind backward (gradients, where a lane has a core) or behind forward (parameters of the next block, stage 3)
//   exposed   the rest of it, and the vote
// Threads: pure functions. Failure: none. To add a choice: a ModelProfile for recomputation, a case in bytes_of() and seconds_of() for a
// stage.
#pragma once
#include <array>
#include <span>
#include <string>
#include <vector>

#include "cohort/base/ledger.h"
#include "cohort/plan/links.h"
#include "cohort/plan/model_profile.h"
#include "cohort/plan/states.h"

namespace cohort::plan {

struct PlanInput {
  std::string model;
  std::int64_t batch = 1;  // samples a rank takes at once
  int accumulate = 1;      // times it does so before ranks communicate
  StateSizes state_sizes = kFp32Adam;
  std::vector<ModelProfile> profiles{};             // one for each way of recomputing, the first without
  std::vector<std::vector<std::size_t>> buckets{};  // parameters of a ModelProfile that share a bucket, in the order they are sent
  double data = 0;                                  // seconds: making one batch
  double measure = 0, update = 0;                   // seconds: passes over the whole model, norm and update
  int lanes = 0;                                    // threads that reduce buckets while backward runs
  bool buddy = false;                               // each rank keeps and updates a copy of what only the rank before it has (docs/zero.md)
  Links links{};
  double memory = 0;                 // bytes a rank has; 0: not given
  std::string how{};                 // where the times come from, for people
  std::vector<std::string> notes{};  // what could not be found out

  bool has_buddy_copies(int stage) const { return buddy && stage > 0 && links.ranks > 1; }
};

struct Choice {
  int stage = 0;
  std::string recompute{};
  std::array<double, kMemoryClasses> bytes{};
  double compute = 0, exposed = 0, hidden = 0;  // seconds
  double at(MemoryClass which) const { return bytes[static_cast<std::size_t>(which)]; }
  double total() const;  // bytes
  double step() const { return compute + exposed; }
};

// What is in flight at the worst moment: stage 2 gradients of buckets, stage 3 parameters and gradients of blocks.
struct Traffic {
  double buckets = 0, largest_block = 0;  // bytes; buckets: those in flight together, see most_in_flight()
  int lanes = 0;                          // each reduces a bucket while another one fills
};
// The most that buckets in flight together take: one for each lane and one that fills. Without lanes two, because gradients do not come
// strictly in the order of the parameters: the first of a bucket is there before the last of the bucket before it. bytes: in their order.
double most_in_flight(std::span<const double> bytes, int lanes);
// What a rank holds between steps and for longer than an operation: states, master copy, buckets. No activations.
std::array<double, kMemoryClasses> held_bytes(const StateSizes& state_sizes, int stage, int ranks, double elements, const Traffic& traffic);

Choice choice(const PlanInput& plan_input, int stage, const ModelProfile& profile);
std::vector<Choice> choices(const PlanInput& plan_input);  // stages 0 to 3 of the first profile, then of the next

// The conclusion of the table: what fits, which of that is fastest and why, what takes least.
// When nothing fits its last line says what to try.
std::string verdict(const PlanInput& plan_input, const std::vector<Choice>& all);

// Without a memory given everything does. `cohort plan` ends with status 1 when not.
bool anything_fits(const PlanInput& plan_input, const std::vector<Choice>& all);

}  // namespace cohort::plan
