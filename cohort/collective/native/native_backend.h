// The native backend: a Communicator over links to all peers, and over shared memory where they share it.
// Members are grouped by who may touch them; see communicator.h for the promises.
#pragma once
#include <array>
#include <atomic>
#include <memory>
#include <vector>

#include "cohort/collective/communicator.h"
#include "cohort/collective/moved_counters.h"
#include "cohort/collective/native/observed_operation.h"
#include "cohort/collective/operations/all_reduce.h"
#include "cohort/collective/operations/collectives.h"
#include "cohort/collective/plugin/backend.h"

namespace cohort::collective {

inline constexpr std::uint32_t kWorldChannel = 1;

class NativeBackend final : public Communicator {
 public:
  NativeBackend(std::shared_ptr<net::PeerLinks> links, std::shared_ptr<Arena> arena, std::shared_ptr<MovedCounters> counters,
                std::shared_ptr<SharedObserver> observer, std::vector<Rank> members, int me, std::uint32_t channel, Options options,
                const Calibration& calibration, int cores, BackendOptions backend_options);
  // The same members over another backend; all of them at once.
  std::unique_ptr<NativeBackend> with_backend(std::string_view name, Deadline deadline);
  // An all_reduce by that backend alone, as a trial: a failure is not sent to the other ranks, and the communicator and its links stay
  // usable.
  void try_backend(const Region& region, Deadline deadline);
  void connect(Deadline deadline);  // connects to the other members, opens the backend that was asked for; before the first collective

  Rank rank() const override { return Rank{peers_.rank()}; }
  int size() const override { return peers_.size(); }
  Epoch epoch() const override { return peers_.links().epoch(); }
  std::string_view transport() const override { return peers_.links().transport(); }
  Region allocate(std::size_t bytes, Device device) override;

  void all_reduce(Piece data, Op op, const Call& call) override { all_reduce(std::span<const Piece>(&data, 1), op, call); }
  void all_reduce(std::span<const Piece> pieces, Op op, const Call& call) override;
  void reduce_scatter(Piece in, Piece out, Op op, const Call& call, std::span<const std::size_t> counts) override;
  void all_gather(Piece in, Piece out, const Call& call, std::span<const std::size_t> counts) override;
  void broadcast(Piece data, Rank root, const Call& call) override;
  void reduce(Piece in, Piece out, Op op, Rank root, const Call& call) override;
  void gather(Piece in, Piece out, Rank root, const Call& call, std::span<const std::size_t> counts) override;
  void scatter(Piece in, Piece out, Rank root, const Call& call, std::span<const std::size_t> counts) override;
  void all_to_all(Piece in, Piece out, const Call& call, std::span<const std::size_t> send_counts,
                  std::span<const std::size_t> recv_counts) override;
  void barrier(const Call& call) override;
  void send(Piece data, Rank to, std::uint32_t tag, const Call& call) override;
  void recv(Piece data, Rank from, std::uint32_t tag, const Call& call) override;
  Message next(std::uint32_t first_tag, std::uint32_t last_tag, const Call& call) override;
  std::unique_ptr<PeerChannel> channel() override;
  std::unique_ptr<Communicator> split(int color, int key, const Call& call) override;
  std::unique_ptr<Communicator> subset(std::span<const Rank> ranks, const Call& call) override;
  void abort(const Error& error) noexcept override;
  Moved moved(Collective collective) const override;
  void observe(OperationObserver* observer) override { observer_->store(observer, std::memory_order_release); }
  std::string explain(Piece data, Op op) const override;

 private:
  struct Busy;  // one collective at a time
  // Runs body between the checks every collective shares: busy, fingerprint, sticky failure, the operation's name in errors, a trace span.
  template <class Body>
  void collective(Fingerprint print, const Call& call, Body body);
  void count(Collective collective, std::size_t elements, Dtype dtype) { counters_->count(collective, elements, dtype); }
  void agree();                                                     // fingerprints compared, nothing moved
  void synchronize(Fingerprint print, const Call& call);            // a collective that does nothing else
  void gather_small(ConstBytes mine, Bytes all, const Call& call);  // a few bytes of every rank, as part of a split
  void all_reduce_one(Piece data, const Reduction& how, std::string_view algorithm);
  template <class Body>
  auto between(std::string_view what, Body body);  // point to point: as collective() for collectives
  Message next_message(TagRange range, Deadline deadline);
  const AllReduce& row_for(Piece data, bool in_place, std::string_view algorithm) const;
  std::unique_ptr<NativeBackend> make_child(std::vector<Rank> members, std::uint64_t salt, BackendOptions backend_options,
                                            Deadline deadline);
  Reduction reduction(Dtype dtype, Op op, const Call& call) const;
  Shape shape(std::size_t bytes, bool in_place) const;
  Layout layout_for(Collective collective, std::span<const std::size_t> counts, std::size_t each) const;
  int member(Rank rank, Collective collective) const;
  void check_piece(Piece piece, Collective collective, Op op = Op::sum) const;

  // native_backend_gpu.cc: pieces of a GPU, by way of the host where no backend carries them.
  bool through_host(Collective collective, Piece piece, Op op = Op::sum) const;
  Piece host_copy(std::size_t which, Piece piece, bool read);
  void copy_back(Piece to, Piece from);
  void all_reduce_through_host(std::span<const Piece> pieces, Op op, const Call& call);
  void reduce_scatter_through_host(Piece in, Piece out, Op op, const Call& call, std::span<const std::size_t> counts);
  void all_gather_through_host(Piece in, Piece out, const Call& call, std::span<const std::size_t> counts);
  void broadcast_through_host(Piece data, Rank root, const Call& call);
  void reduce_through_host(Piece in, Piece out, Op op, Rank root, const Call& call);

  // native_backend_delegate.cc: collectives run by another backend.
  void attach_backend(Deadline deadline);
  bool delegated(Collective collective, Piece piece, Op op, std::size_t largest) const;
  template <class Body>
  void run_on_backend(Body body);     // body(wait_options); after a failure of the backend: finds the root cause, ends what is in flight
  void compare_fingerprints_first();  // fingerprints, before a backend that has none
  Piece prepared(Piece in, Piece out, Reduction& how, bool may_change);
  void finished(Piece out, const Reduction& how);
  void all_reduce_on_backend(Piece data, Reduction how);
  void reduce_scatter_on_backend(Piece in, Piece out, const Layout& layout, Reduction how);
  void all_gather_on_backend(Piece in, Piece out, const Layout& layout);
  void broadcast_on_backend(Piece data, int root);
  void reduce_on_backend(Piece in, Piece out, int root, Reduction how);
  void all_to_all_on_backend(Piece in, Piece out, const Layout& sends, const Layout& recvs);
  Deadline deadline(const Call& call) const { return call.deadline.value_or(Deadline::in(options_.timeout)); }

  Peers peers_;
  const std::shared_ptr<MovedCounters> counters_;  // shared with the children, like the observer
  const std::shared_ptr<SharedObserver> observer_;
  const Options options_;
  const Calibration calibration_;  // rank 0's, on every rank
  const int cores_;
  const BackendOptions backend_options_;
  std::unique_ptr<Backend> backend_;        // constant after connect(); nullptr: we do every collective ourselves
  std::atomic<std::uint32_t> channels_{0};  // opened by channel()
  std::atomic_flag busy_;
  std::uint64_t number_ = 0;  // of the last operation; owned by the thread that runs the collective
  void* stream_ = nullptr;    // of the running one; likewise
  struct HostCopy {
    Region region;                 // in the arena: peers read it in place
    std::shared_ptr<void> pinned;  // while it is
  };
  std::array<HostCopy, 2> host_copies_;  // of inputs, of outputs; likewise
};

// backend: auto, on all ranks alike.
std::unique_ptr<Communicator> fastest(std::unique_ptr<NativeBackend> native, const BackendOptions& asked, bool canonical_only);

}  // namespace cohort::collective
