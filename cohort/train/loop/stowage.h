// Tensors of a job into checkpoints and out of them: the bridge between engine, model and the torch-free checkpoint room.
// Where everything is on every rank, rank 0 writes whole tensors and tells the others what it reads. Where the engine shards (ZeRO), every
// rank writes the runs it owns, and reads the runs it owns now from whatever ranks had written: their number and stage may be others.
// Owner: none. Threads: one; what is said to be collective is called by every rank. Failure: Kind::usage naming the first tensor that does
// not fit; as the checkpoint room's.
#pragma once
#include <set>
#include <string>

#include "cohort/checkpoint/contents.h"
#include "cohort/checkpoint/snapshot.h"
#include "cohort/train/loop/learner.h"

namespace cohort {

inline constexpr const char* kModelGroup = "model";          // parameters and buffers: loads anywhere
inline constexpr const char* kOptimizerGroup = "optimizer";  // "<parameter>/<state>"

nn::NamedTensors model_tensors(const nn::Model& model);  // parameters, then buffers

// Names of the parameters that live in pieces (stage 3). Collective.
std::set<std::string> sharded_parameters(collective::Communicator& comm, Learner& learner);

// What this rank writes.
void stow(checkpoint::Snapshot& into, collective::Communicator& comm, Learner& learner, const std::set<std::string>& sharded);

// What a survivor of a lost rank writes: its own runs of everything that is trained, those of the lost rank where it is its buddy, and
// where it speaks for all also what is the same on every rank. Not a collective.
struct Survivor {
  int rank = 0, ranks = 1, lost = 0;
  bool speaks = false;
};
void stow(checkpoint::Snapshot& into, const Survivor& survivor, Learner& learner);

// Everything from the checkpoint into model and engine. Collective; rank 0's `found` is read where tensors are whole, else every rank's
// own.
void unstow(const checkpoint::Checkpoint& found, collective::Communicator& comm, Learner& learner, const std::set<std::string>& sharded);

// Parameters and buffers of a model from a checkpoint of any layout: for predictions.
void load_model(const nn::Model& model, const checkpoint::Checkpoint& found);

}  // namespace cohort
