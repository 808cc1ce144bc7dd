// An Engine is somebody else's implementation of the bulk verbs (MPI, torch's Gloo and NCCL) underneath our Communicator.
//
// The Communicator keeps what an engine cannot do or does not promise: fingerprints before data moves, deadlines, aborts, errors that name
// ranks, point to point, groups, scaling, types and operations the engine does not know. The engine only moves and adds. So the laws of
// communicator.h hold for all of them, but for the bits: an engine adds in its own order (`bits: free`, docs/engines.md).
//
// Owner: one Communicator; a child of split() has an engine of its own. Threads: the one that runs the verb; abort() from any.
// Failure: Kind::system with the engine's words, Kind::timeout; whatever check() throws goes through. After any failure the Communicator
// calls abort() and uses the engine no more.
// To add one: one file engines/<word>.cc with COHORT_ENGINE(<word>, open), one word in engines/CMakeLists.txt, one test (docs/engines.md).
// An engine is a library of its own, loaded when it is asked for: a machine without it builds and runs everything else.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cohort/base/bytes.h"
#include "cohort/collective/communicator.h"
#include "cohort/collective/verbs.h"

namespace cohort::collective {

// Who moves bulk data, and what an engine underneath has to know of the job around it.
struct Underneath {
  // own, an engine (engine_rows()), or auto: the fastest of those that are here. All but own add in an order of their own, so they need
  // canonical_only = false; auto is own otherwise.
  std::string comm = "own";
  std::string launcher = "alone";     // the family of variables this rank found its place by (group/place.h)
  std::string address = "127.0.0.1";  // where the other ranks reach this one
  bool one_host = true;
  std::string folder;  // where libraries of engines lie; empty: beside the program
};

// As open() of communicator.h, with an engine underneath.
std::unique_ptr<Communicator> open(std::shared_ptr<net::Mesh> mesh, Options options, const Underneath& under);

// How an engine waits: until the deadline, and asking check() at least ten times a second, which throws when the communicator has failed.
struct Watch {
  Deadline deadline;
  std::function<void()> check;
  void* stream = nullptr;  // of CUDA, from the Call; nullptr: torch's current one
};

class Engine {
 public:
  virtual ~Engine() = default;
  virtual std::string text() const = 0;  // for people: "gloo of torch, tcp on 127.0.0.1"
  // What it does not carry goes the own engine's way. largest: elements of the largest buffer on any rank. The same on all ranks.
  virtual bool carries(Verb verb, Dtype dtype, Op op, Device device, std::size_t largest) const = 0;

  // As the Communicator's verbs, with checked arguments: op is sum, min, max or product, dtype is not bool, `in` and `out` do not overlap
  // (on the CPU), nothing is scaled. All buffers are untouched again when a verb returns; after a throw, when abort() has returned true.
  virtual void all_reduce(Piece data, Op op, const Watch& watch) = 0;
  virtual void reduce_scatter(Piece in, Piece out, Op op, const Layout& layout, const Watch& watch) = 0;
  virtual void all_gather(Piece in, Piece out, const Layout& layout, const Watch& watch) = 0;
  virtual void broadcast(Piece data, int root, const Watch& watch) = 0;
  virtual void reduce(Piece in, Piece out, Op op, int root, const Watch& watch) = 0;
  virtual void all_to_all(Piece in, Piece out, const Layout& sends, const Layout& recvs, const Watch& watch) = 0;

  virtual void scale(Piece data, double factor, void* stream);  // of memory that is not the CPU's; Kind::usage unless an engine knows such
  // Ends what is under way. False: the engine cannot, and may still touch the buffers of the verb that failed.
  virtual bool abort() noexcept = 0;
};

// What an engine is told when it is opened. Every member of the communicator opens it at the same time.
struct EngineSite {
  int rank = 0;
  std::vector<int> members;   // ranks of the job, by rank of the communicator
  std::uint32_t channel = 0;  // of the communicator: no other of the job has it
  int job_size = 1;
  Underneath under;
  Watch watch;
  // Over our own authenticated links, in order for each pair. Both are for the opening only.
  std::function<void(int to, ConstBytes)> tell;
  std::function<std::pair<int, std::vector<std::byte>>()> hear;  // the next from anybody

  int size() const { return static_cast<int>(members.size()); }
};

using OpenEngine = std::unique_ptr<Engine> (*)(const EngineSite& site);

// One row of each engine that this source tree knows, built or not.
struct EngineRow {
  std::string_view name, needs;  // needs: what must be there to build it
  bool built;                    // in the build this program comes from
};
std::span<const EngineRow> engine_rows();
std::vector<std::string> comm_words();  // what `comm` may be: auto, own, and every engine

// What the library of an engine answers; its layout never changes, so that another version can be read and refused.
struct EngineDoor {
  const char* version;
  OpenEngine open;
};

// The path of an engine's library, or empty: in `folder`, beside the program, or in ../libexec/cohort of it.
std::string find_engine(std::string_view name, const std::string& folder);
// Why an engine cannot be used on this machine by this program; empty: it can be tried.
std::string why_no_engine(std::string_view name, const Underneath& under);
// Loads the library (once) and opens. Kind::usage with the next step when it is not there or the place does not fit.
std::unique_ptr<Engine> open_engine(std::string_view name, const EngineSite& site);

}  // namespace cohort::collective

// Stands once in an engine's file: the door of its library.
#define COHORT_ENGINE(word, open_function)                                                                     \
  extern "C" __attribute__((visibility("default"))) const cohort::collective::EngineDoor cohort_engine_##word; \
  const cohort::collective::EngineDoor cohort_engine_##word{COHORT_VERSION, open_function};
