// backend: mpi: the cluster's own MPI. The ranks are processes of mpirun (or of a Slurm with PMI): MPI connects only processes it started.
// Collectives are MPI's nonblocking ones, polled until they are done, so that a deadline or a lost rank ends the wait. MPI cannot cancel a
// collective: one in flight then keeps its buffers until the process ends (docs/backends.md).
// Buffers of more elements than an int counts go in parts.
#include <sched.h>

#include <climits>
#include <thread>

#include "cohort/collective/backends/mpi_runtime.h"

namespace cohort::collective {
namespace {

constexpr std::size_t kMost = std::size_t{1} << 30;      // elements in one call
constexpr auto kSpin = std::chrono::microseconds(50);    // as long as a small operation takes
constexpr auto kYield = std::chrono::milliseconds(20);   // as long as a large one does: MPI makes progress only while it is polled
constexpr auto kSleep = std::chrono::microseconds(200);  // then a rank is late, and may need this core
constexpr auto kPollInterval = std::chrono::milliseconds(50);

// What MPI may read until an operation has ended.
struct Request {
  MPI_Request request = MPI_REQUEST_NULL;
  std::vector<int> counts, offsets, counts2, offsets2;
};

std::vector<int> ints(const std::vector<std::size_t>& values) {
  std::vector<int> out;
  for (const auto value : values) out.push_back(static_cast<int>(value));
  return out;
}

class Mpi final : public Backend {
 public:
  explicit Mpi(const BackendContext& context)
      : runtime_(MpiRuntime::of(context)), comm_(runtime_.comm_of(context)), rank_(context.rank), size_(context.size()) {}

  std::string text() const override {
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> version{};
    int length = 0;
    MPI_Get_library_version(version.data(), &length);
    const std::string all(version.data(), static_cast<std::size_t>(length));
    return all.substr(0, all.find_first_of(",\n"));  // "Open MPI v4.1.4"
  }

  bool carries(Collective collective, Dtype /*dtype*/, Op /*op*/, Device device, std::size_t largest) const override {
    if (device.kind != DeviceKind::cpu) return false;
    switch (collective) {
      case Collective::all_reduce:
      case Collective::reduce_scatter:
      case Collective::all_gather:
      case Collective::broadcast:
      case Collective::reduce: return true;
      case Collective::all_to_all: return largest <= INT_MAX;  // its offsets are ints
      default: return false;
    }
  }

  void all_reduce(Piece data, Op op, const WaitOptions& wait_options) override {
    in_parts(data, [&](Piece part) {
      start("MPI_Iallreduce", wait_options, [&](Request& f) {
        return MPI_Iallreduce(MPI_IN_PLACE, part.data, count(part), type(part), runtime_.op(part.dtype, op), comm_, &f.request);
      });
    });
  }

  void reduce_scatter(Piece in, Piece out, Op op, const Layout& layout, const WaitOptions& wait_options) override {
    if (layout.total > INT_MAX) {
      for (int r = 0; r < size_; ++r) reduce(layout.part(in, r), out, op, r, wait_options);
      return;
    }
    start("MPI_Ireduce_scatter", wait_options, [&](Request& f) {
      f.counts = ints(layout.counts);
      return MPI_Ireduce_scatter(in.data, out.data, f.counts.data(), type(in), runtime_.op(in.dtype, op), comm_, &f.request);
    });
  }

  void all_gather(Piece in, Piece out, const Layout& layout, const WaitOptions& wait_options) override {
    if (layout.total > INT_MAX) {
      copy_piece(in, layout.part(out, rank_));
      for (int r = 0; r < size_; ++r) broadcast(layout.part(out, r), r, wait_options);
      return;
    }
    start("MPI_Iallgatherv", wait_options, [&](Request& f) {
      f.counts = ints(layout.counts), f.offsets = ints(layout.offsets);
      return MPI_Iallgatherv(in.data, count(in), type(in), out.data, f.counts.data(), f.offsets.data(), type(out), comm_, &f.request);
    });
  }

  void broadcast(Piece data, int root, const WaitOptions& wait_options) override {
    in_parts(data, [&](Piece part) {
      start("MPI_Ibcast", wait_options,
            [&](Request& f) { return MPI_Ibcast(part.data, count(part), type(part), root, comm_, &f.request); });
    });
  }

  void reduce(Piece in, Piece out, Op op, int root, const WaitOptions& wait_options) override {
    std::size_t done = 0;
    in_parts(in, [&](Piece part) {
      void* const target = rank_ == root ? out.part(done, part.count).data : nullptr;
      done += part.count;
      start("MPI_Ireduce", wait_options, [&](Request& f) {
        return MPI_Ireduce(part.data, target, count(part), type(part), runtime_.op(part.dtype, op), root, comm_, &f.request);
      });
    });
  }

  void all_to_all(Piece in, Piece out, const Layout& sends, const Layout& recvs, const WaitOptions& wait_options) override {
    start("MPI_Ialltoallv", wait_options, [&](Request& f) {
      f.counts = ints(sends.counts), f.offsets = ints(sends.offsets), f.counts2 = ints(recvs.counts), f.offsets2 = ints(recvs.offsets);
      return MPI_Ialltoallv(in.data, f.counts.data(), f.offsets.data(), type(in), out.data, f.counts2.data(), f.offsets2.data(), type(out),
                            comm_, &f.request);
    });
  }

  bool abort() noexcept override {
    if (request_ == nullptr) return true;
    static_cast<void>(request_.release());  // MPI may use it until the process ends
    runtime_.skip_finalize();
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
  void start(const char* what, const WaitOptions& wait_options, Start begin) {
    request_ = std::make_unique<Request>();
    mpi_check(begin(*request_), what);
    wait(what, wait_options);
    request_.reset();
  }

  void wait(const char* what, const WaitOptions& wait_options) {
    const auto began = Clock::now();
    for (auto polled = began;;) {
      int done = 0;
      mpi_check(MPI_Test(&request_->request, &done, MPI_STATUS_IGNORE), what);
      if (done != 0) return;
      const auto now = Clock::now();
      if (now - began > kYield)
        std::this_thread::sleep_for(kSleep);
      else if (now - began > kSpin)
        sched_yield();
      if (now - polled < kPollInterval) continue;
      polled = now;
      wait_options.check();
      if (wait_options.deadline.passed())
        throw_failure(Kind::timeout, "all ranks have called, but {} of {} did not finish in time", what, text());
    }
  }

  MpiRuntime& runtime_;
  const MPI_Comm comm_;
  const int rank_, size_;
  std::unique_ptr<Request> request_;
};

std::unique_ptr<Backend> open_mpi(const BackendContext& context) { return std::make_unique<Mpi>(context); }

}  // namespace
}  // namespace cohort::collective

COHORT_BACKEND_PLUGIN(mpi, cohort::collective::open_mpi)
