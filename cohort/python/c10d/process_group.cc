#include "cohort/python/c10d/process_group.h"

#include <ATen/ops/empty.h>
#include <Python.h>
#include <fmt/ranges.h>

#include <cstring>
#include <set>

#include "cohort/base/log.h"
#include "cohort/python/c10d/allocator.h"

namespace cohort::python {
namespace {

constexpr Seconds kDrain{2};  // how long shutdown waits for what is in flight

// Threads of the group may need the GIL to drop tensors; a thread that waits for them must not hold it.
class ReleaseGil {
 public:
  ReleaseGil() : state_(Py_IsInitialized() != 0 && PyGILState_Check() != 0 ? PyEval_SaveThread() : nullptr) {}
  ~ReleaseGil() {
    if (state_ != nullptr) PyEval_RestoreThread(state_);
  }
  ReleaseGil(const ReleaseGil&) = delete;
  ReleaseGil& operator=(const ReleaseGil&) = delete;

 private:
  PyThreadState* const state_;
};

std::mutex all_mutex;
std::set<ProcessGroupCohort*>& all_groups() {
  static auto* const groups = new std::set<ProcessGroupCohort*>;  // never destroyed: groups may be destroyed during exit
  return *groups;
}

StoreRendezvous from_pool(StoreRendezvous how) {
  how.arena = SharedMemoryPool::of(Rank{how.rank}).arena();
  return how;
}

}  // namespace

ProcessGroupCohort::ProcessGroupCohort(StoreRendezvous how, std::vector<int64_t> global_ranks)
    : Backend(how.rank, how.size), name_(how.name), global_ranks_(std::move(global_ranks)) {
  const ReleaseGil free;
  timeout_ = std::chrono::ceil<Millis>(std::min(how.options.timeout, Seconds{1e6}));
  comm_ = raising([&] { return rendezvous_by_store(from_pool(std::move(how))); });
  shares_memory_ = comm_->transport() == "shm";
  executor_ = std::make_shared<SerialExecutor>(thread_pool_);
  init();
  const std::lock_guard lock(all_mutex);
  all_groups().insert(this);
}

ProcessGroupCohort::~ProcessGroupCohort() {
  {
    const std::lock_guard lock(all_mutex);
    all_groups().erase(this);
  }
  shutdown();
}

void shutdown_all_groups() {
  const ReleaseGil free;
  const std::lock_guard lock(all_mutex);
  for (ProcessGroupCohort* const group : all_groups()) group->shutdown();
}

void ProcessGroupCohort::shutdown() {
  const ReleaseGil free;
  std::vector<std::shared_ptr<SerialExecutor>> executors{executor_};
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(closed_, true)) return;
    for (const auto& [which, executor] : streams_) executors.push_back(executor);
  }
  const Deadline limit = Deadline::in(kDrain);
  bool idle = true;
  for (const auto& executor : executors) idle = executor->drained(limit) && idle;
  if (!idle)
    comm_->abort(
        {Kind::aborted, fmt::format("rank {} shut its process group '{}' down in the middle of an operation", rank_, name_), Rank{rank_}});
  for (const auto& executor : executors) executor->drained(Deadline{});  // after an abort every wait ends
  thread_pool_.join_all();
  comm_.reset();
}

void ProcessGroupCohort::abort() {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  failed_ = true;
  comm_->abort({Kind::aborted, fmt::format("rank {} aborted process group '{}'", rank_, name_), Rank{rank_}});
}

c10::intrusive_ptr<c10d::Backend::Options> ProcessGroupCohort::getBackendOptions() {
  auto options = c10::make_intrusive<Options>("cohort", timeout_.load());
  options->group_name = name_;
  for (const auto rank : global_ranks_) options->global_ranks_in_group.push_back(static_cast<uint64_t>(rank));
  return options;
}

c10d::ErrorType ProcessGroupCohort::getError() { return failed_.load() ? c10d::ErrorType::COMM_ERROR : c10d::ErrorType::SUCCESS; }

at::Tensor ProcessGroupCohort::allocateTensor(long size, at::TensorOptions options) {
  const auto type = c10::typeMetaToScalarType(options.dtype());
  if (!shares_memory_ || !options.device().is_cpu()) return at::empty({size}, options);
  return raising([&] { return SharedMemoryPool::instance().tensor({size}, type); });
}

// ---- error texts

std::string ProcessGroupCohort::where(const char* title) const {
  if (global_ranks_.empty()) return fmt::format("{} of group '{}', rank {} of {}", title, name_, rank_, size_);
  return fmt::format("{} of group '{}' (ranks {} of the job), rank {} of {}", title, name_, fmt::join(global_ranks_, ", "), rank_, size_);
}

void ProcessGroupCohort::need(bool ok, const char* title, const std::string& why) const {
  if (!ok) raise(Failure{{Kind::usage, fmt::format("{}: {}", where(title), why), kNoRank}});
}

const at::Tensor& ProcessGroupCohort::only(const Tensors& tensors, const char* title) const {
  need(tensors.size() == 1, title, fmt::format("one tensor is expected on each rank, not {}", tensors.size()));
  return tensors.front();
}

int ProcessGroupCohort::member(int64_t rank, const char* title) const {
  need(rank >= 0 && rank < size_, title, fmt::format("rank {} is not one of 0 .. {}", rank, size_ - 1));
  return static_cast<int>(rank);
}

// ---- the executors

WorkPtr ProcessGroupCohort::start_collective(const CollectiveSpec& how, Tensors tensors, Tensors results, Body collective) {
  const Millis timeout = limit(how.timeout);
  WorkSpec spec{how.type, how.title, std::move(tensors), std::move(results), {}, where(how.title)};
  spec.body = [this, timeout, collective = std::move(collective)] {
    collective::Call call;
    call.deadline = Deadline::in(timeout);
    try {
      collective(*comm_, call);
    } catch (const Failure& failure) {
      if (failure.kind() != Kind::usage) failed_ = true;
      throw;
    }
  };
  return put(c10::make_intrusive<CohortWork>(rank_, std::move(spec), executor_), executor_, how.soon);
}

WorkPtr ProcessGroupCohort::put(c10::intrusive_ptr<CohortWork> work, const std::shared_ptr<SerialExecutor>& executor, bool soon) {
  const std::lock_guard lock(mutex_);
  if (closed_) raise(Failure{{Kind::usage, fmt::format("process group '{}' was shut down on rank {}", name_, rank_), kNoRank}});
  work->number = ++number_;
  using Self = c10::intrusive_ptr<ProcessGroupCohort>;
  work->on_abort = [weak = c10::weak_intrusive_ptr<ProcessGroupCohort>(Self::reclaim_copy(this))] {  // a work may outlive its group
    if (const auto group = weak.lock()) group->abort();
  };
  executor->put(task_of(work), soon || coalesced_.has_value());
  if (coalesced_) coalesced_->push_back(work);
  return work;
}

void ProcessGroupCohort::startCoalescing() {
  const std::lock_guard lock(mutex_);
  if (coalesced_) raise(Failure{{Kind::usage, fmt::format("group '{}' is inside a coalescing block already", name_), kNoRank}});
  coalesced_.emplace();
}

WorkPtr ProcessGroupCohort::endCoalescing() {
  const std::lock_guard lock(mutex_);
  if (!coalesced_) raise(Failure{{Kind::usage, fmt::format("group '{}' is not inside a coalescing block", name_), kNoRank}});
  auto works = std::move(*coalesced_);
  coalesced_.reset();
  return all_of(std::move(works));
}

// ---- messages

std::shared_ptr<SerialExecutor> ProcessGroupCohort::stream(Stream which) {
  const std::lock_guard lock(mutex_);
  auto& executor = streams_[which];
  if (!executor) executor = std::make_shared<SerialExecutor>(thread_pool_);
  return executor;
}

WorkPtr ProcessGroupCohort::send(Tensors& tensors, int to, int tag) {
  constexpr const char* kTitle = "cohort:send";
  const at::Tensor memory = raising([&] { return dense(only(tensors, kTitle), kTitle); });
  member(to, kTitle);
  need(to != rank_, kTitle, "a rank cannot send to itself");
  need(tag >= 0, kTitle, fmt::format("tag {} is negative", tag));
  const auto executor = stream({Direction::to, to, tag});
  WorkSpec spec{c10d::OpType::SEND, kTitle, {memory}, tensors, {}, where(kTitle)};
  spec.body = [this, memory, to, tag, timeout = timeout_.load()] {
    comm_->send(moved(memory), Rank{to}, static_cast<std::uint32_t>(tag), {.deadline = Deadline::in(timeout)});
  };
  return put(c10::make_intrusive<CohortWork>(rank_, std::move(spec), executor), executor, true);
}

WorkPtr ProcessGroupCohort::recv(Tensors& tensors, int from, int tag) {
  constexpr const char* kTitle = "cohort:recv";
  const at::Tensor tensor = only(tensors, kTitle);
  const at::Tensor memory = raising([&] { return dense(tensor, kTitle); });
  member(from, kTitle);
  need(from != rank_, kTitle, "a rank cannot receive from itself");
  need(tag >= 0, kTitle, fmt::format("tag {} is negative", tag));
  const auto executor = stream({Direction::from, from, tag});
  WorkSpec spec{c10d::OpType::RECV, kTitle, {tensor, memory}, tensors, {}, where(kTitle)};
  spec.body = [this, tensor, memory, from, tag, timeout = timeout_.load()] {
    comm_->recv(moved(memory), Rank{from}, static_cast<std::uint32_t>(tag), {.deadline = Deadline::in(timeout)});
    copy_back(memory, tensor);
  };
  auto work = c10::make_intrusive<CohortWork>(rank_, std::move(spec), executor);
  work->set_source(from);
  return put(std::move(work), executor, true);
}

WorkPtr ProcessGroupCohort::recvAnysource(Tensors& tensors, int tag) {
  constexpr const char* kTitle = "cohort:recv from any rank";
  const at::Tensor tensor = only(tensors, kTitle);
  const at::Tensor memory = raising([&] { return dense(tensor, kTitle); });
  need(tag >= 0, kTitle, fmt::format("tag {} is negative", tag));
  need(size_ > 1, kTitle, "there is no other rank in this group");
  const auto executor = stream({Direction::any, -1, tag});
  auto work = c10::make_intrusive<CohortWork>(
      rank_, WorkSpec{c10d::OpType::RECVANYSOURCE, kTitle, {tensor, memory}, tensors, {}, where(kTitle)}, executor);
  work->set_body([this, tensor, memory, tag, timeout = timeout_.load(), self = work.get()] {  // the executor keeps the work
    const auto number = static_cast<std::uint32_t>(tag);
    const collective::Message message = comm_->next(number, number, {.deadline = Deadline::in(timeout)});
    if (message.bytes.size() != moved(memory).bytes()) {
      throw_failure(Kind::usage, "rank {} sent {} bytes under tag {}, the tensor holds {}", message.from.value, message.bytes.size(), tag,
                    moved(memory).bytes());
    }
    if (!message.bytes.empty()) std::memcpy(memory.data_ptr(), message.bytes.data(), message.bytes.size());
    copy_back(memory, tensor);
    self->set_source(message.from.value);
  });
  return put(std::move(work), executor, true);
}

}  // namespace cohort::python
