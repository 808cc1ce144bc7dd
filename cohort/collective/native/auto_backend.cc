// backend: auto: measures the backends that are here, and logs what it chose and why. A backend that fails or stalls is left out: ranks
// agree on trials over the native backend, which is not affected by failures of another one.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>

#include "cohort/base/log.h"
#include "cohort/base/text.h"
#include "cohort/collective/native/backend_choice.h"
#include "cohort/collective/native/native_backend.h"

namespace cohort::collective {
namespace {

constexpr Seconds kEnough{0.1};    // for one size of one backend
constexpr Seconds kTooLong{0.25};  // a size that would take longer is left out
constexpr int kRepeats = 20;
constexpr Seconds kOpening{10};
constexpr Seconds kStallTimeout{4};  // one that has not ended its all_reduce by then; less than a wait that the log warns of

// The greatest of all ranks' values: what all of them go by.
double greatest(Communicator& native, double value) {
  native.all_reduce({&value, 1, Dtype::f64, Device::cpu}, Op::max, {.name = "backend: auto"});
  return value;
}

// The all_reduce of one backend, timed. What failed is not called again, but takes part in the barriers until all ranks know of it.
class Trial {
 public:
  Trial(NativeBackend& backend, bool is_native) : backend_(backend), is_native_(is_native) {}
  const std::string& why() const { return why_; }  // it failed on this rank; empty: it did not
  bool stalled() const { return stalled_; }

  // Infinite after a failure.
  Seconds reduce(const Region& region) {
    const auto start = Clock::now();
    is_native_ ? backend_.all_reduce(piece(region.as<float>()), Op::sum, {.name = "backend: auto"}) : reduce_on_backend(region);
    return why_.empty() ? Seconds(Clock::now() - start) : Seconds(std::numeric_limits<double>::infinity());
  }

 private:
  void reduce_on_backend(const Region& region) {
    backend_.barrier({.name = "backend: auto"});  // as before any work of a backend: no rank waits in it for one that has not called yet
    try {
      if (why_.empty()) backend_.try_backend(region, Deadline::in(kStallTimeout));
    } catch (const Failure& failure) {
      why_ = failure.what();
      stalled_ = failure.kind() == Kind::timeout;
    }
  }

  NativeBackend& backend_;
  const bool is_native_;
  std::string why_;
  bool stalled_ = false;
};

// None when the backend failed on any rank.
std::vector<double> measure(Trial& trial, NativeBackend& native) {
  std::vector<double> seconds;
  for (const std::size_t bytes : kAutoBytes) {
    if (!seconds.empty() &&
        seconds.back() * static_cast<double>(bytes) / static_cast<double>(kAutoBytes[seconds.size() - 1]) > kTooLong.count())
      break;
    const Region region = native.allocate(bytes, Device::cpu);            // where gradients lie
    const double first = greatest(native, trial.reduce(region).count());  // opens what is opened lazily, determines the number of repeats
    if (std::isinf(first)) return {};
    const int repeats = std::clamp(static_cast<int>(kEnough.count() / std::max(first, 1e-6)), 1, kRepeats);
    Seconds total{0};  // not the best of them: a rank whose peers had done its work already is out in a moment
    for (int i = 0; i < repeats; ++i) total += trial.reduce(region);
    seconds.push_back(greatest(native, total.count() / repeats));
    if (std::isinf(seconds.back())) return {};
  }
  return seconds;
}

// The text for a trial that failed on some rank. One rank logs it: the lowest that has another cause than a timeout.
std::string failure_text(std::string_view backend, const Trial& trial, NativeBackend& native) {
  const int n = native.size(), me = native.rank().value;
  const int mine = me + (trial.why().empty() ? 2 * n : trial.stalled() ? n : 0);
  const int reporter = -static_cast<int>(greatest(native, -mine)) % n;
  if (reporter == me) log_warning("backend: auto goes on without {}, which failed when it was tried: {}", backend, trial.why());
  return reporter == me ? trial.why() : fmt::format("rank {} has logged why", reporter);
}

// Why auto does not try a backend, beyond why_no_backend().
std::string why_not(std::string_view name, const BackendOptions& backend_options) {
  if (name == "nccl") return "it moves GPU memory only";
  if (name == "gloo" && !backend_options.one_host) return "between hosts its sockets are not authenticated: ask for it by name";
  return why_no_backend(name, backend_options);
}

double gain(const BackendTimes& native, const BackendTimes& other) {
  const std::size_t both = std::min(native.seconds.size(), other.seconds.size());
  double logs = 0;
  for (std::size_t i = 0; i < both; ++i) logs += std::log(native.seconds[i] / other.seconds[i]);
  return both == 0 ? 0 : std::exp(logs / static_cast<double>(both));
}

}  // namespace

const BackendTimes& choose_backend(std::span<const BackendTimes> measured) {
  const BackendTimes* best = &measured[0];
  double most = kAutoGain;
  for (const BackendTimes& other : measured.subspan(1))
    if (const double g = gain(measured[0], other); g >= most) best = &other, most = g;
  return *best;
}

std::string choice_text(std::span<const BackendTimes> measured) {
  std::vector<std::string> parts;
  for (const BackendTimes& backend : measured) {
    std::vector<std::string> figures;
    for (std::size_t i = 0; i < backend.seconds.size(); ++i)
      figures.push_back(fmt::format("{} in {}", format_bytes(kAutoBytes[i]), format_seconds(Seconds(backend.seconds[i]))));
    parts.push_back(figures.empty() ? fmt::format("{} {}: {}", backend.name, backend.failed ? "failed" : "not tried", backend.why)
                                    : fmt::format("{} reduces {}", backend.name, join(figures, ", ")));
  }
  return fmt::format("backend: auto takes {}: {}", choose_backend(measured).name, join(parts, "; "));
}

std::unique_ptr<NativeBackend> NativeBackend::with_backend(std::string_view name, Deadline deadline) {
  barrier({.name = "backend: auto"});  // it also gives every trial an operation number, and so a channel, of its own
  BackendOptions backend_options = backend_options_;
  backend_options.name = name;
  return make_child(peers_.members(), 0, std::move(backend_options), deadline);
}

// A backend that cannot cancel its work may write into that memory until this process ends: until then it is not reused.
void NativeBackend::try_backend(const Region& region, Deadline deadline) {
  static std::mutex mutex;
  static auto& kept = *new std::vector<Region>;
  try {
    backend_->all_reduce(piece(region.as<float>()), Op::sum, {deadline, [this] { peers_.check(); }});
  } catch (const Failure&) {
    if (backend_->abort()) throw;
    const std::lock_guard lock(mutex);
    kept.push_back(region);
    throw;
  }
}

std::unique_ptr<Communicator> fastest(std::unique_ptr<NativeBackend> native, const BackendOptions& asked, bool canonical_only) {
  const auto report = [&](const std::string& text) {
    if (native->rank().value == 0) log_info("{}", text);
  };
  if (canonical_only)
    return report("backend: auto takes native: deterministic: true leaves no other (deterministic: false lets them compete)"),
           std::move(native);
  Trial plain(*native, true);
  std::vector<BackendTimes> measured{{"native", measure(plain, *native), {}}};
  std::vector<std::unique_ptr<NativeBackend>> backends(1);
  for (const BackendRow& row : backend_rows()) {
    BackendTimes& times = measured.emplace_back(BackendTimes{std::string(row.name), {}, why_not(row.name, asked)});
    auto& backend = backends.emplace_back();
    const bool missing = greatest(*native, times.why.empty() ? 0 : 1) > 0;
    if (missing && times.why.empty()) times.why = "not every rank has it";
    if (missing) continue;
    try {
      backend = native->with_backend(row.name, Deadline::in(kOpening));
    } catch (const Failure& failure) {
      times.why = failure.what();
    }
    const bool failed = greatest(*native, backend ? 0 : 1) > 0;
    if (failed && times.why.empty()) times.why = "another rank could not open it";
    if (failed) continue;
    Trial trial(*backend, false);
    times.seconds = measure(trial, *native);
    times.failed = times.seconds.empty();
    if (times.failed) times.why = failure_text(row.name, trial, *native);
  }
  report(choice_text(measured));
  const auto chosen = static_cast<std::size_t>(&choose_backend(measured) - measured.data());
  if (chosen == 0) return native;
  return std::move(backends[chosen]);
}

}  // namespace cohort::collective
