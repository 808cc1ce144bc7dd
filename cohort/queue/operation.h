// An Operation is one asynchronous collective: what to do, under which name, on which memory. A group (several parts) is one unit.
// Owner: the caller until submit(), then the queue until the handle is done. Threads: values, any.
// Failure: check() throws Kind::usage for what is wrong here, before anything is sent to a peer.
// To add a collective: its rows in check() and in execute.cc.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cohort/base/ids.h"
#include "cohort/collective/types.h"

namespace cohort::collective {
class Communicator;
}

namespace cohort::queue {

using collective::Collective;
using collective::Device;
using collective::Dtype;
using collective::Op;
using collective::Piece;

// One piece of memory of an operation. The memory stays borrowed until the handle is done, even when the handle is dropped (see
// Operation::keep).
struct Part {
  Piece in;
  Piece out{.data = nullptr};              // all_reduce and broadcast: no data means in place
  std::vector<std::int64_t> shape{};       // what mismatches are reported in; empty: [count]
  std::vector<std::size_t> counts{};       // elements per rank: blocks of the gathering and scattering collectives, what all_to_all sends
  std::vector<std::size_t> recv_counts{};  // all_to_all: what comes from each rank, where that is known
};

struct Operation {
  Collective collective = Collective::barrier;
  std::string name{};  // unique among the operations in flight on this queue; empty: "<collective>.<n>", counted on each rank
  std::vector<Part> parts{};
  Op op = Op::sum;
  Rank root{};
  bool adasum = false;  // all_reduce by Adasum (collective/adasum.h) instead of op, which stays sum; each part by itself
  double prescale = 1.0;
  double postscale = 1.0;
  // all_reduce by way of a codec, in place: `reduce` is called on the progress thread instead of the collective, at the same place of the
  // agreed order on every rank, and leaves the sum or average in the parts. The ranks compare `codec`. It must not call back into the
  // queue.
  std::string codec{};
  std::function<void(collective::Communicator& comm, const collective::Call& call)> reduce{};
  // all_gather and all_to_all whose received sizes only the peers know: called on the progress thread once per part, gives memory for
  // `count` elements. It must not call back into the queue.
  std::function<void*(std::size_t part, std::size_t count)> allocate{};
  std::shared_ptr<void> keep{};  // owner of the memory above; released on the progress thread when the operation is done
};

// What an operation returns beside the bytes it wrote.
struct Result {
  std::vector<std::vector<std::size_t>> counts{};  // per part: elements that came from each rank (all_gather, all_to_all)
  Rank last_joined{};                              // of join()
};

// Where the result of a part goes.
inline Piece target(const Part& part) { return part.out.data != nullptr ? part.out : part.in; }

// Throws Kind::usage naming the operation and what is wrong with it, seen from rank `me` of `ranks`.
void check(const Operation& operation, Rank me, int ranks);

}  // namespace cohort::queue
