// Writes the tensors of a job into checkpoints and reads them back: between engine, model and the torch-free module checkpoint.
// Where everything is on every rank, rank 0 writes whole tensors, and broadcasts what it reads. Where the engine shards (ZeRO), every
// rank writes the runs it owns, and reads the runs it owns now from whatever ranks had written: their number and stage may be others.
// Owner: none. Threads: one; what is said to be collective is called by every rank. Failure: Kind::usage naming the first tensor that does
// not fit; as the module checkpoint's.
#pragma once
#include <set>
#include <string>

#include "cohort/checkpoint/contents.h"
#include "cohort/checkpoint/snapshot.h"
#include "cohort/engine/tensor_file.h"
#include "cohort/train/loop/train_loop.h"
#include "cohort/train/resume.h"

namespace cohort::train {

using engine::kModelGroup, engine::kOptimizerGroup;

nn::NamedTensors model_tensors(const nn::Model& model);  // parameters, then buffers

// Names of the parameters that rank 0 does not have all of: sharded ones (stage 3), and those that ranks of a mesh share out. Collective.
std::set<std::string> sharded_parameters(collective::Communicator& comm, TrainLoop& loop);

// What this rank writes.
void write_state(checkpoint::Snapshot& into, collective::Communicator& comm, TrainLoop& loop, const std::set<std::string>& sharded);

// What a survivor of a lost rank writes: its own runs of everything that is trained, those of the lost rank where it is its buddy, and
// where it writes_common for all also what is the same on every rank. Not a collective.
struct Survivor {
  int rank = 0, ranks = 1, lost = 0;
  bool writes_common = false;
};
void write_state(checkpoint::Snapshot& into, const Survivor& survivor, TrainLoop& loop);

// Everything from the checkpoint into model and engine. Collective; rank 0's `found` is read where tensors are whole, else every rank's
// own. of_optimizer: what of its state is read; the rest stays as it is.
void read_state(const checkpoint::Checkpoint& found, collective::Communicator& comm, TrainLoop& loop, const std::set<std::string>& sharded,
                StateToRead of_optimizer = StateToRead::all);

// Parameters and buffers of a model from a checkpoint of any layout: for predictions.
void load_model(const nn::Model& model, const checkpoint::Checkpoint& found);

}  // namespace cohort::train
