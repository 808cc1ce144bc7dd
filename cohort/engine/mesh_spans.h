// Which ranks a gradient is summed over, and which hold the same of it, on a mesh of ranks (group/device_mesh.h). A span is a set of axes:
// {"dp"} for most parameters, {"dp", "tp"} for one whose gradient each tp rank has a part of, none for one that a single rank has all of.
// Without a mesh there is one span, of all ranks, and its communicator is the job's own.
// Owner: Engine. Threads: the one that trains; a SpanComms by its lane. Failure: Kind::usage; as the communicator's.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/collective/communicator.h"
#include "cohort/group/device_mesh.h"
#include "cohort/sync/bucket.h"

namespace cohort::engine {

using MeshAxes = std::vector<std::string>;

class MeshSpans {
 public:
  MeshSpans(int ranks, std::string_view mesh, Rank me);  // the span of dp is number 0

  int number_of(const MeshAxes& axes);  // a new one where it was not asked for before: in the same order on every rank
  int count() const { return static_cast<int>(spans_.size()); }
  const group::RankGroups& groups(int span) const { return spans_[static_cast<std::size_t>(span)].groups; }
  int ranks(int span) const { return groups(span).size(); }
  Rank place(int span) const { return Rank{groups(span).place_of(me_)}; }
  // Those that hold the same of a tensor as this rank: the ranks that differ from it along no axis of these.
  sync::Holders holders(const MeshAxes& differing) const;
  int mean_of() const { return mesh_.size("dp"); }  // whatever a gradient is summed over: a mean is over the samples' ranks
  bool plain() const { return mesh_.size("dp") == mesh_.world(); }
  Rank me() const { return me_; }
  const group::DeviceMesh& mesh() const { return mesh_; }

 private:
  struct Span {
    MeshAxes axes;
    group::RankGroups groups;
  };
  const group::DeviceMesh mesh_;
  const Rank me_;
  std::vector<Span> spans_;
};

// The communicators of one thread, one for every span.
class SpanComms {
 public:
  SpanComms() = default;
  // Collective. apart: of its own even where a span is the whole world, for threads beside the one that trains.
  SpanComms(collective::Communicator& world, const MeshSpans& spans, bool apart);
  collective::Communicator& of(int span) const { return *comms_[static_cast<std::size_t>(span)]; }
  collective::Communicator& of(const sync::Bucket& bucket) const { return of(bucket.placement().span); }
  void abort(const Error& error) const noexcept;  // all of its own

 private:
  std::vector<std::unique_ptr<collective::Communicator>> own_;
  std::vector<collective::Communicator*> comms_;
};

}  // namespace cohort::engine
