// Who keeps which role of a bucket. Its elements play five: backward writes gradients (grad), the update reads the reduced ones (agreed)
// and writes parameters (master), the next forward reads those (live), and the rule has its state. Where master and live are one memory,
// publishing is nothing; where they are not, it is the place where they differ.
//                grad        agreed  master  live        state
//   replicated   all         all     all     all         all       all_reduce, and every strategy whose replicas may drift
//   ZeRO 1       all         own     own     all         own
//   ZeRO 2       while_used  own     own     all         own
//   ZeRO 3       while_used  own     own     while_used  own
// A role's home: the memory of the model; the host, where the model has copies on a device of its own; or files of a folder.
// Owner: values. Threads: any. Failure: none. To add a way of placing: a function like zero_placement(), in the strategy's own file.
#pragma once
#include <cstdint>
#include <string>

namespace cohort::sync {

enum class Extent : std::uint8_t { all, own, while_used };
enum class Home : std::uint8_t { model, host, file };

struct Keep {
  Extent extent = Extent::all;
  Home home = Home::model;
  bool operator==(const Keep&) const = default;
};

struct Placement {
  Keep grad{}, agreed{}, master{}, live{}, state{};
  int ranks = 1, me = 0;  // of those that the bucket is spread over
  int span = 0;           // which set of ranks those are (engine/mesh_spans.h)
  bool buddy = false;     // every rank also keeps what only the rank before it has
  std::string folder{};   // of Home::file

  bool sharded() const { return agreed.extent == Extent::own; }                  // every rank updates its own elements only
  bool gathers_gradients() const { return grad.extent == Extent::while_used; }   // they have memory from their arrival to the reduction
  bool gathers_parameters() const { return live.extent == Extent::while_used; }  // they are whole while a block runs
  bool copies_to_device() const { return live.home == Home::model && master.home == Home::host; }
  bool state_on_disk() const { return state.home == Home::file; }
  bool master_on_disk() const { return master.home == Home::file; }
  bool has_buddy_copy() const { return buddy && ranks > 1; }
  int previous_rank() const { return (me + ranks - 1) % ranks; }  // whose buddy this rank is
  Placement without_gathered_parameters() const;                  // for tensors that are in no block: they stay whole
};

}  // namespace cohort::sync
