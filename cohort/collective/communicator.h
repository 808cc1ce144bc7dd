// A Communicator is a fixed set of ranks for one epoch, and the collectives they can do together.
// Owner: the caller (unique_ptr); children of split() may outlive their parent. Threads: one collective at a time per communicator (a
// second thread gets Kind::usage, not a race); different communicators run side by side; abort() from any thread. Failure: Kind::usage
// before data moves leaves the communicator usable on all ranks; every other failure is sticky and keeps its root cause. Every wait ends
// inside its deadline. To add an all-reduce: one file in all_reduce/, one word, one test.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/base/ids.h"
#include "cohort/collective/peer_channel.h"
#include "cohort/collective/types.h"
#include "cohort/net/transport/link.h"

namespace cohort::collective {

// Memory of the communicator: peers on this host read and write it in place, so a reduction needs no copy in and no copy out.
// 64-byte aligned, zeroed, resident. Freed when the last Region of it goes; a Region may outlive its communicator.
class Region {
 public:
  Region() = default;
  explicit Region(std::shared_ptr<void> owner, void* data, std::size_t bytes) : owner_(std::move(owner)), data_(data), bytes_(bytes) {}
  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  template <class T>
  std::span<T> as() const {
    return {static_cast<T*>(data_), bytes_ / sizeof(T)};
  }

 private:
  std::shared_ptr<void> owner_;  // shared: tensors made from a Region keep it alive
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

using net::Message;

// What a rank must receive from others in one kind of collective, whatever the algorithm. Of n ranks: an
// all-gather what is not its own, a reduce-scatter its own block from n - 1 others, an all-reduce both.
struct Moved {
  std::uint64_t calls = 0, elements = 0, bytes = 0;
};

// An operation in flight: lives on the stack of the thread that runs it, so its address identifies it.
struct RunningOperation {
  std::string_view collective;  // "all_reduce", "send", "split", ...
  std::string_view name;        // Call::name
  std::size_t bytes = 0;        // this rank's buffer, the larger of input and output; gather: its input; scatter: its output; 0: no data
};

// Is called when an operation of a communicator begins and when it ends, also with a failure. Both are called by the thread that runs
// the operation, so by several at once; they must be quick. It outlives the operations that began under it.
class OperationObserver {
 public:
  virtual ~OperationObserver() = default;
  virtual void begin(const RunningOperation& operation) noexcept = 0;
  virtual void end(const RunningOperation& operation) noexcept = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual Rank rank() const = 0;
  virtual int size() const = 0;
  virtual Epoch epoch() const = 0;
  virtual std::string_view transport() const = 0;

  // Not a collective. Collectives take a GPU's memory, too: a backend reads it in place (nccl), or it goes by way of the host, same bits.
  virtual Region allocate(std::size_t bytes, Device device = Device::cpu) = 0;

  virtual void all_reduce(Piece data, Op op, const Call& call = {}) = 0;
  // Every piece is reduced; the group is one operation to the peers (one fingerprint, one agreement).
  virtual void all_reduce(std::span<const Piece> pieces, Op op, const Call& call = {}) = 0;
  // in: size() blocks; rank r gets the reduced block r. Blocks are even when counts is empty (in.count == size * out.count).
  virtual void reduce_scatter(Piece in, Piece out, Op op, const Call& call = {}, std::span<const std::size_t> counts = {}) = 0;
  // out: every rank's `in`, in rank order. counts empty: all even, else counts[r] elements from rank r (the same list on every rank).
  virtual void all_gather(Piece in, Piece out, const Call& call = {}, std::span<const std::size_t> counts = {}) = 0;
  virtual void broadcast(Piece data, Rank root, const Call& call = {}) = 0;
  virtual void reduce(Piece in, Piece out, Op op, Rank root, const Call& call = {}) = 0;  // out is read on the root only
  virtual void gather(Piece in, Piece out, Rank root, const Call& call = {}, std::span<const std::size_t> counts = {}) = 0;
  virtual void scatter(Piece in, Piece out, Rank root, const Call& call = {}, std::span<const std::size_t> counts = {}) = 0;
  // send_counts[r] elements go to rank r, recv_counts[r] come from it; both empty: even blocks.
  virtual void all_to_all(Piece in, Piece out, const Call& call = {}, std::span<const std::size_t> send_counts = {},
                          std::span<const std::size_t> recv_counts = {}) = 0;
  virtual void barrier(const Call& call = {}) = 0;

  // Point to point. Any thread, beside a running collective. Tags 0 .. 2^31-1 are the caller's.
  virtual void send(Piece data, Rank to, std::uint32_t tag = 0, const Call& call = {}) = 0;
  virtual void recv(Piece data, Rank from, std::uint32_t tag = 0, const Call& call = {}) = 0;
  // The next message with first_tag <= tag <= last_tag from any peer: servers, gossip.
  virtual Message next(std::uint32_t first_tag, std::uint32_t last_tag, const Call& call = {}) = 0;

  // Asynchronous point to point that fails peer by peer (peer_channel.h). Opened by this rank alone; the n-th of a rank talks to the n-th
  // of the others, so all open them in the same order. With every backend the messages go over the links, between CPU buffers.
  // Communicators other than the native one refuse with Kind::usage.
  virtual std::unique_ptr<PeerChannel> channel();

  // Ranks of one colour form a communicator, ordered by (key, rank). A negative colour takes part and gets nullptr.
  virtual std::unique_ptr<Communicator> split(int color, int key = 0, const Call& call = {}) = 0;
  // A process set: the listed ranks of this communicator, which all ranks name alike; nullptr on the others.
  virtual std::unique_ptr<Communicator> subset(std::span<const Rank> ranks, const Call& call = {}) = 0;

  virtual void abort(const Error& error) noexcept = 0;

  virtual Moved moved(Collective collective) const = 0;  // since it was opened, by it and by the children of its split(); any thread

  // From now on the observer is called for the operations of this communicator and of its children, also of those split off before;
  // nullptr: none is. Any thread. Communicators other than the native one may ignore it.
  virtual void observe(OperationObserver* observer) { static_cast<void>(observer); }

  // What all_reduce would use for this buffer here and now, and why; for people (`cohort bench --explain`).
  virtual std::string explain(Piece data, Op op) const = 0;
};

class Arena;

struct Options {
  Seconds timeout{300};        // for calls without a deadline
  Seconds warn_after{5};       // a wait longer than this logs once which ranks it waits for
  std::string algorithm;       // overrides the selector for every all-reduce
  bool canonical_only = true;  // `deterministic: true`; false lets the selector take rows that are not canonical
  std::string calibration;     // path of measured cost constants; empty: the built-in ones
  // Where Regions come from. Communicators of one process that share an Arena use each other's Regions in place; none: one of its own.
  std::shared_ptr<Arena> arena{};
};

// The native backend over links to all peers (and shared memory where they share it).
std::unique_ptr<Communicator> open(std::shared_ptr<net::PeerLinks> links, Options options = {});

}  // namespace cohort::collective
