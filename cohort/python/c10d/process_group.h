// The backend "cohort" of torch.distributed: every collective of c10d on a Communicator of its own, connected through torch's Store.
// Collectives run one after the other, in the order they were called (the same on every rank, as c10d demands); messages run beside them,
// in order for each peer and tag. A synchronous call is done by the calling thread, an asynchronous one by a thread of the group.
// Owner: torch (intrusive_ptr) and Python. Threads: any. Failure: wrong use is a ValueError at the call, before anything is sent to a peer;
// a mismatch between ranks is a ValueError on every rank and leaves the group usable; a lost rank, an abort or a timeout is a
// DistBackendError on every survivor, and every later call fails with the same cause.
// To add a collective: its override here, its body in process_group_collectives.cc, its row in tests/python/test_c10d_collectives.py.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <tuple>
#include <vector>

#include "cohort/python/c10d/store_rendezvous.h"
#include "cohort/python/c10d/tensor_pieces.h"
#include "cohort/python/c10d/work.h"
#include "cohort/python/codec/gradient_codec.h"

namespace cohort::python {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

class ProcessGroupCohort final : public c10d::Backend {
 public:
  using Tensors = std::vector<at::Tensor>;
  using Millis = std::chrono::milliseconds;

  // Connects to the other ranks. global_ranks: this group's ranks in the job, for messages; empty: the same.
  ProcessGroupCohort(StoreRendezvous how, std::vector<int64_t> global_ranks);
  ~ProcessGroupCohort() override;

  const std::string getBackendName() const override { return "cohort"; }
  c10::intrusive_ptr<Options> getBackendOptions() override;
  void setTimeout(Millis timeout) override { timeout_.store(timeout); }
  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override;
  WorkPtr endCoalescing() override;
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return number_.load(); }
  bool supportsTensorAlloc(c10::DeviceIndex) override { return shares_memory_; }
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;
  c10d::ErrorType getError() override;

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override;
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& opts) override;
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& opts) override;
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ReduceScatterOptions& opts) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& opts) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits, std::vector<int64_t>& input_splits,
                        const c10d::AllToAllOptions& opts) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override;
  WorkPtr barrier(const c10d::BarrierOptions& opts) override;
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all) override;
  WorkPtr send(Tensors& tensors, int to, int tag) override;
  WorkPtr recv(Tensors& tensors, int from, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;

  // The bucket, which has the elements of each named parameter one after the other, becomes the average over the ranks by way of a codec.
  WorkPtr allreduce_coded(const at::Tensor& bucket, const std::vector<std::string>& names, const std::vector<Shape>& shapes,
                          std::shared_ptr<GradientCodec> codec, double weight, double unit);

  void abort() override;
  void shutdown() override;  // waits shortly for what is in flight, then disconnects from the peers

 private:
  // A stream of messages: to or from one peer under one tag; from any peer.
  enum class Direction { to, from, any };
  using Stream = std::tuple<Direction, int, int>;
  using Body = std::function<void(collective::Communicator&, const collective::Call&)>;
  struct CollectiveSpec {  // how a collective is to be done
    c10d::OpType type;
    const char* title;
    Millis timeout;
    bool soon;  // another thread than the caller's may have to do it
  };

  WorkPtr start_collective(const CollectiveSpec& how, Tensors tensors, Tensors results, Body collective);
  WorkPtr put(c10::intrusive_ptr<CohortWork> work, const std::shared_ptr<SerialExecutor>& executor, bool soon);
  std::shared_ptr<SerialExecutor> stream(Stream which);
  void reduce_bits(collective::Communicator& comm, const collective::Call& call, const at::Tensor& memory, ReduceSpec::Bits bits);
  std::string where(const char* title) const;
  void need(bool ok, const char* title, const std::string& why) const;
  const at::Tensor& only(const Tensors& tensors, const char* title) const;
  int member(int64_t rank, const char* title) const;
  Millis limit(Millis asked) const { return asked == c10d::kUnsetTimeout ? timeout_.load() : asked; }

  // ---- constant after construction
  const std::string name_;
  const std::vector<int64_t> global_ranks_;
  bool shares_memory_ = false;
  std::unique_ptr<collective::Communicator> comm_;  // its collectives: by the thread that runs executor_; messages and abort: any thread
  std::atomic<Millis> timeout_;
  std::atomic<uint64_t> number_{0};
  ThreadPool thread_pool_;
  std::shared_ptr<SerialExecutor> executor_;
  // ---- guarded by mutex_
  std::mutex mutex_;
  std::map<Stream, std::shared_ptr<SerialExecutor>> streams_;
  std::optional<std::vector<WorkPtr>> coalesced_;
  bool closed_ = false;
  std::atomic<bool> failed_{false};
};

// Shuts down every group that still exists: at exit, while Python still runs.
void shutdown_all_groups();

}  // namespace cohort::python
