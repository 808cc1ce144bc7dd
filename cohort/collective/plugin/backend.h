// A Backend is another library's implementation of the bulk collectives (MPI, torch's Gloo and NCCL) under our Communicator.
//
// The Communicator keeps what a backend cannot do or does not promise: fingerprints before data moves, deadlines, aborts, errors that name
// ranks, point to point, groups, scaling, types and operations the backend does not know. The backend only moves and adds. So the laws of
// communicator.h hold for all of them, but for the bits: a backend adds in its own order (`deterministic: false`, docs/backends.md).
//
// Owner: one Communicator; a child of split() has a backend of its own. Threads: the one that runs the collective; abort() from any.
// Failure: Kind::system with the backend's words, Kind::timeout; what check() throws passes through. After any failure the Communicator
// calls abort() and uses the backend no more.
// To add one: one file backends/<word>.cc with COHORT_BACKEND_PLUGIN(<word>, open), one word in backends/CMakeLists.txt, one test
// (docs/backends.md). A backend is a library of its own, loaded when it is asked for: a machine without it builds and runs everything else.
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
#include "cohort/collective/operations/collectives.h"

namespace cohort::collective {

// Who moves bulk data, and what a backend has to know of the job around it.
struct BackendOptions {
  // native, a backend (backend_rows()), or auto: the fastest of those that are here. All but native add in an order of their own, so they
  // need canonical_only = false; auto is native otherwise.
  std::string name = "native";
  std::string launcher = "alone";     // the launcher whose variables gave this rank its number (group/place.h)
  std::string address = "127.0.0.1";  // where the other ranks reach this one
  bool one_host = true;
  int local_rank = 0;  // of this process among those of its host: which GPU is its own, where several are seen
  std::string folder;  // where libraries of backends lie; empty: beside the program
};

// As open() of communicator.h, with a backend.
std::unique_ptr<Communicator> open(std::shared_ptr<net::PeerLinks> links, Options options, const BackendOptions& backend_options);

// How a backend waits: until the deadline, and asking check() at least ten times a second, which throws when the communicator has failed.
struct WaitOptions {
  Deadline deadline;
  std::function<void()> check;
  void* stream = nullptr;  // of CUDA, from the Call; nullptr: torch's current one
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string text() const = 0;  // for people: "gloo of torch, tcp on 127.0.0.1"
  // What it does not carry is done by the native backend. largest: elements of the largest buffer on any rank. The same on all ranks.
  virtual bool carries(Collective collective, Dtype dtype, Op op, Device device, std::size_t largest) const = 0;

  // As the Communicator's collectives, with checked arguments: op is sum, min, max or product, dtype is not bool, `in` and `out` do not
  // overlap (on the CPU), nothing is scaled. All buffers are untouched again when a collective returns; after a throw, when abort() has
  // returned true.
  virtual void all_reduce(Piece data, Op op, const WaitOptions& wait_options) = 0;
  virtual void reduce_scatter(Piece in, Piece out, Op op, const Layout& layout, const WaitOptions& wait_options) = 0;
  virtual void all_gather(Piece in, Piece out, const Layout& layout, const WaitOptions& wait_options) = 0;
  virtual void broadcast(Piece data, int root, const WaitOptions& wait_options) = 0;
  virtual void reduce(Piece in, Piece out, Op op, int root, const WaitOptions& wait_options) = 0;
  virtual void all_to_all(Piece in, Piece out, const Layout& sends, const Layout& recvs, const WaitOptions& wait_options) = 0;

  virtual void scale(Piece data, double factor, void* stream);  // of memory that is not the CPU's; Kind::usage unless a backend knows such
  // Cancels what is in flight. False: the backend cannot, and may still touch the buffers of the collective that failed.
  virtual bool abort() noexcept = 0;
};

// What a backend is opened with. Every member of the communicator opens it at the same time.
struct BackendContext {
  int rank = 0;
  std::vector<int> members;   // ranks of the job, by rank of the communicator
  std::uint32_t channel = 0;  // of the communicator: no other of the job has it
  int job_size = 1;
  BackendOptions options;
  WaitOptions wait_options;
  // Over our own authenticated links, in order for each pair. Both are for the opening only.
  std::function<void(int to, ConstBytes)> send;
  std::function<std::pair<int, std::vector<std::byte>>()> receive;  // the next from any rank

  int size() const { return static_cast<int>(members.size()); }
};

using OpenBackend = std::unique_ptr<Backend> (*)(const BackendContext& context);

// One row of each backend that this source tree knows, built or not.
struct BackendRow {
  std::string_view name, needs;  // needs: what must be there to build it
  bool built;                    // in the build this program comes from
};
std::span<const BackendRow> backend_rows();
std::vector<std::string> backend_names();  // what `backend` may be: auto, native, and every backend

// What the library of a backend exports; its layout never changes, so that another version can be read and refused.
struct BackendPlugin {
  const char* version;
  OpenBackend open;
};

// The path of a backend's library, or empty: in `folder`, beside the program, or in ../libexec/cohort of it.
std::string find_backend(std::string_view name, const std::string& folder);
// Why a backend cannot be used on this machine by this program; empty: it can be tried.
std::string why_no_backend(std::string_view name, const BackendOptions& backend_options);
// Loads the library (once) and opens. Kind::usage with the next step when it is not there or the place does not fit.
std::unique_ptr<Backend> open_backend(std::string_view name, const BackendContext& context);

}  // namespace cohort::collective

// Stands once in a backend's file: the symbol its library exports.
#define COHORT_BACKEND_PLUGIN(word, open_function)                                                                 \
  extern "C" __attribute__((visibility("default"))) const cohort::collective::BackendPlugin cohort_backend_##word; \
  const cohort::collective::BackendPlugin cohort_backend_##word{COHORT_VERSION, open_function};
