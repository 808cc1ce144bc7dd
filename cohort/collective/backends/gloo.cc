// backend: gloo: torch's own process group for CPUs. It is inside every torch, has no shared memory (loopback sockets on one host), and its
// sockets are neither authenticated nor encrypted: on several hosts any process that reaches the port may connect (docs/backends.md).
// Half precision sums are rounded at each addition; min and max of reals are done by the native backend, since gloo loses NaN in them.
#include <fmt/format.h>

#include <condition_variable>
#include <mutex>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "cohort/collective/backends/link_store.h"
#include "cohort/collective/backends/torch_backend.h"

namespace cohort::collective {
namespace {

constexpr auto kPollInterval = std::chrono::milliseconds(50);
constexpr Seconds kDrain{5};  // for an operation to end whose connections are closed

bool real(Dtype dtype) { return dtype == Dtype::f16 || dtype == Dtype::bf16 || dtype == Dtype::f32 || dtype == Dtype::f64; }

// The end of a c10d work, waited for with a time limit.
struct End {
  std::mutex mutex;
  std::condition_variable changed;
  bool reached = false;

  static std::shared_ptr<End> of(const c10::intrusive_ptr<c10d::Work>& work) {
    auto end = std::make_shared<End>();  // shared: torch's callback may run after we stopped waiting
    work->getFuture()->addCallback([end](c10::ivalue::Future&) {
      const std::lock_guard lock(end->mutex);
      end->reached = true;
      end->changed.notify_all();
    });
    return end;
  }
  bool within(Clock::duration time) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, time, [&] { return reached; });
  }
};

class Group final : public c10d::ProcessGroupGloo {
 public:
  using ProcessGroupGloo::ProcessGroupGloo;
  void close() {
    for (const auto& context : contexts_) context->closeConnections();
  }
};

class Gloo final : public TorchBackend {
 public:
  explicit Gloo(const BackendContext& context)
      : TorchBackend(context.rank, context.size()), address_(context.options.one_host ? "127.0.0.1" : context.options.address) {
    const auto store = c10::make_intrusive<LinkStore>(context);
    in_torch(fmt::format("opening {}", text()), [&] {
      const auto left = context.wait_options.deadline.left();
      const auto options = Group::Options::create(std::chrono::ceil<std::chrono::milliseconds>(std::min<Clock::duration>(left, 24h)));
      options->threads = 1;  // one collective at a time
      options->devices = {Group::createDeviceForHostname(address_)};
      group_ = c10::make_intrusive<Group>(store, context.rank, context.size(), options);
    });
    store->close();
  }

  std::string text() const override { return fmt::format("gloo of torch, tcp on {}", address_); }

  bool carries(Collective collective, Dtype dtype, Op op, Device device, std::size_t /*largest*/) const override {
    if (device.kind != DeviceKind::cpu) return false;
    switch (collective) {
      case Collective::all_reduce:
      case Collective::reduce_scatter:
      case Collective::reduce: return dtype != Dtype::i16 && (!real(dtype) || op == Op::sum || op == Op::product);
      case Collective::all_gather:
      case Collective::broadcast:
      case Collective::all_to_all: return true;
      default: return false;
    }
  }

  bool abort() noexcept override {
    group_->close();
    return last_ == nullptr || last_->within(std::chrono::duration_cast<Clock::duration>(kDrain));
  }

 private:
  c10d::Backend& group() override { return *group_; }

  void wait(const Work& work, const WaitOptions& wait_options) override {
    last_ = End::of(work);
    while (!last_->within(std::min<Clock::duration>(kPollInterval, wait_options.deadline.left()))) {
      wait_options.check();
      if (wait_options.deadline.passed()) throw_failure(Kind::timeout, "all ranks have called, but {} did not finish in time", text());
    }
    if (!work->isSuccess()) std::rethrow_exception(work->exception());
  }

  const std::string address_;
  c10::intrusive_ptr<Group> group_;
  std::shared_ptr<End> last_;
};

std::unique_ptr<Backend> open_gloo(const BackendContext& context) { return std::make_unique<Gloo>(context); }

}  // namespace
}  // namespace cohort::collective

COHORT_BACKEND_PLUGIN(gloo, cohort::collective::open_gloo)
