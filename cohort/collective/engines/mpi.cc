// comm: mpi: the cluster's own MPI. The ranks are processes of mpirun (or of a Slurm that speaks PMI): MPI joins only what it started.
// Verbs are MPI's nonblocking ones, asked again and again until they are done, so that a deadline or a lost rank ends the wait. MPI cannot
// call a collective off: what was under way then stays so, its buffers too, until the process ends (docs/engines.md).
// Buffers of more elements than an int counts go in parts.
#include <sched.h>

#include <climits>
#include <thread>

#include "cohort/collective/engines/mpi_runtime.h"

namespace cohort::collective {
namespace {

constexpr std::size_t kMost = std::size_t{1} << 30;     // elements in one call
constexpr auto kSpin = std::chrono::microseconds(50);   // as long as a small operation takes
constexpr auto kYield = std::chrono::milliseconds(20);  // as long as a large one does: MPI moves data only while it is asked
constexpr auto kNap = std::chrono::microseconds(200);   // then somebody is late, and may need this core
constexpr auto kLook = std::chrono::milliseconds(50);

// What MPI may read until an operation has ended.
struct Flight {
  MPI_Request request = MPI_REQUEST_NULL;
  std::vector<int> counts, offsets, counts2, offsets2;
};

std::vector<int> ints(const std::vector<std::size_t>& values) {
  std::vector<int> out;
  for (const auto value : values) out.push_back(static_cast<int>(value));
  return out;
}

class Mpi final : public Engine {
 public:
  explicit Mpi(const EngineSite& site)
      : runtime_(MpiRuntime::of(site)), comm_(runtime_.comm_of(site)), rank_(site.rank), size_(site.size()) {}

  std::string text() const override {
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> version{};
    int length = 0;
    MPI_Get_library_version(version.data(), &length);
    const std::string all(version.data(), static_cast<std::size_t>(length));
    return all.substr(0, all.find_first_of(",\n"));  // "Open MPI v4.1.4"
  }

  bool carries(Verb verb, Dtype /*dtype*/, Op /*op*/, Device device, std::size_t largest) const override {
    if (device != Device::cpu) return false;
    switch (verb) {
      case Verb::all_reduce:
      case Verb::reduce_scatter:
      case Verb::all_gather:
      case Verb::broadcast:
      case Verb::reduce: return true;
      case Verb::all_to_all: return largest <= INT_MAX;  // its offsets are ints
      default: return false;
    }
  }

  void all_reduce(Piece data, Op op, const Watch& watch) override {
    in_parts(data, [&](Piece part) {
      start("MPI_Iallreduce", watch, [&](Flight& f) {
        return MPI_Iallreduce(MPI_IN_PLACE, part.data, count(part), type(part), runtime_.op(part.dtype, op), comm_, &f.request);
      });
    });
  }

  void reduce_scatter(Piece in, Piece out, Op op, const Layout& layout, const Watch& watch) override {
    if (layout.total > INT_MAX) {
      for (int r = 0; r < size_; ++r) reduce(layout.part(in, r), out, op, r, watch);
      return;
    }
    start("MPI_Ireduce_scatter", watch, [&](Flight& f) {
      f.counts = ints(layout.counts);
      return MPI_Ireduce_scatter(in.data, out.data, f.counts.data(), type(in), runtime_.op(in.dtype, op), comm_, &f.request);
    });
  }

  void all_gather(Piece in, Piece out, const Layout& layout, const Watch& watch) override {
    if (layout.total > INT_MAX) {
      copy_piece(in, layout.part(out, rank_));
      for (int r = 0; r < size_; ++r) broadcast(layout.part(out, r), r, watch);
      return;
    }
    start("MPI_Iallgatherv", watch, [&](Flight& f) {
      f.counts = ints(layout.counts), f.offsets = ints(layout.offsets);
      return MPI_Iallgatherv(in.data, count(in), type(in), out.data, f.counts.data(), f.offsets.data(), type(out), comm_, &f.request);
    });
  }

  void broadcast(Piece data, int root, const Watch& watch) override {
    in_parts(data, [&](Piece part) {
      start("MPI_Ibcast", watch, [&](Flight& f) { return MPI_Ibcast(part.data, count(part), type(part), root, comm_, &f.request); });
    });
  }

  void reduce(Piece in, Piece out, Op op, int root, const Watch& watch) override {
    std::size_t done = 0;
    in_parts(in, [&](Piece part) {
      void* const target = rank_ == root ? out.part(done, part.count).data : nullptr;
      done += part.count;
      start("MPI_Ireduce", watch, [&](Flight& f) {
        return MPI_Ireduce(part.data, target, count(part), type(part), runtime_.op(part.dtype, op), root, comm_, &f.request);
      });
    });
  }

  void all_to_all(Piece in, Piece out, const Layout& sends, const Layout& recvs, const Watch& watch) override {
    start("MPI_Ialltoallv", watch, [&](Flight& f) {
      f.counts = ints(sends.counts), f.offsets = ints(sends.offsets), f.counts2 = ints(recvs.counts), f.offsets2 = ints(recvs.offsets);
      return MPI_Ialltoallv(in.data, f.counts.data(), f.offsets.data(), type(in), out.data, f.counts2.data(), f.offsets2.data(), type(out),
                            comm_, &f.request);
    });
  }

  bool abort() noexcept override {
    if (flight_ == nullptr) return true;
    static_cast<void>(flight_.release());  // MPI may use it until the process ends
    runtime_.gave_up();
    return false;
  }

 private:
  static int count(Piece piece) { return static_cast<int>(piece.count); }
  MPI_Datatype type(Piece piece) const { return runtime_.type(piece.dtype); }

  template <class Body>
  static void in_parts(Piece whole, Body body) {
    for (std::size_t first = 0; first < whole.count; first += kMost) body(whole.part(first, std::min(kMost, whole.count - first)));
  }

  template <class Start>
  void start(const char* what, const Watch& watch, Start begin) {
    flight_ = std::make_unique<Flight>();
    mpi_check(begin(*flight_), what);
    wait(what, watch);
    flight_.reset();
  }

  void wait(const char* what, const Watch& watch) {
    const auto began = Clock::now();
    for (auto looked = began;;) {
      int done = 0;
      mpi_check(MPI_Test(&flight_->request, &done, MPI_STATUS_IGNORE), what);
      if (done != 0) return;
      const auto now = Clock::now();
      if (now - began > kYield)
        std::this_thread::sleep_for(kNap);
      else if (now - began > kSpin)
        sched_yield();
      if (now - looked < kLook) continue;
      looked = now;
      watch.check();
      if (watch.deadline.passed()) throw_failure(Kind::timeout, "all ranks have come, but {} of {} did not finish in time", what, text());
    }
  }

  MpiRuntime& runtime_;
  const MPI_Comm comm_;
  const int rank_, size_;
  std::unique_ptr<Flight> flight_;
};

std::unique_ptr<Engine> open_mpi(const EngineSite& site) { return std::make_unique<Mpi>(site); }

}  // namespace
}  // namespace cohort::collective

COHORT_ENGINE(mpi, cohort::collective::open_mpi)
