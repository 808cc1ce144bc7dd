// comm: auto: measures the engines that are here, and says what it chose and why. An engine that fails or stalls is left out: trials are
// agreed upon over the own engine, which hears nothing of what goes wrong in another one.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>

#include "cohort/base/log.h"
#include "cohort/base/text.h"
#include "cohort/collective/engine_choice.h"
#include "cohort/collective/own.h"

namespace cohort::collective {
namespace {

constexpr Seconds kEnough{0.1};    // for one size of one engine
constexpr Seconds kTooLong{0.25};  // a size that would take longer is left out
constexpr int kRepeats = 20;
constexpr Seconds kOpening{10};
constexpr Seconds kStalled{4};  // one that has not ended its all_reduce by then; less than a wait that the log warns of

// The greatest of all ranks' values: what all of them go by.
double greatest(Communicator& own, double value) {
  own.all_reduce({&value, 1, Dtype::f64, Device::cpu}, Op::max, {.name = "comm: auto"});
  return value;
}

// The all_reduce of one engine, timed. What failed is not called again, but keeps the others company until all have heard of it.
class Trial {
 public:
  Trial(Own& engine, bool is_own) : engine_(engine), is_own_(is_own) {}
  const std::string& why() const { return why_; }  // it failed on this rank; empty: it did not
  bool stalled() const { return stalled_; }

  // Infinite after a failure.
  Seconds reduce(const Region& region) {
    const auto start = Clock::now();
    is_own_ ? engine_.all_reduce(piece(region.as<float>()), Op::sum, {.name = "comm: auto"}) : reduce_underneath(region);
    return why_.empty() ? Seconds(Clock::now() - start) : Seconds(std::numeric_limits<double>::infinity());
  }

 private:
  void reduce_underneath(const Region& region) {
    engine_.barrier({.name = "comm: auto"});  // as before any work of an engine: nobody waits in it for one who is not there yet
    try {
      if (why_.empty()) engine_.try_engine(region, Deadline::in(kStalled));
    } catch (const Failure& failure) {
      why_ = failure.what();
      stalled_ = failure.kind() == Kind::timeout;
    }
  }

  Own& engine_;
  const bool is_own_;
  std::string why_;
  bool stalled_ = false;
};

// None when the engine failed on any rank.
std::vector<double> measure(Trial& trial, Own& own) {
  std::vector<double> seconds;
  for (const std::size_t bytes : kAutoBytes) {
    if (!seconds.empty() &&
        seconds.back() * static_cast<double>(bytes) / static_cast<double>(kAutoBytes[seconds.size() - 1]) > kTooLong.count())
      break;
    const Region region = own.allocate(bytes, Device::cpu);            // where gradients lie
    const double first = greatest(own, trial.reduce(region).count());  // opens what is opened lazily, says how often there is time for
    if (std::isinf(first)) return {};
    const int repeats = std::clamp(static_cast<int>(kEnough.count() / std::max(first, 1e-6)), 1, kRepeats);
    Seconds total{0};  // not the best of them: a rank whose peers had done its work already is out in a moment
    for (int i = 0; i < repeats; ++i) total += trial.reduce(region);
    seconds.push_back(greatest(own, total.count() / repeats));
    if (std::isinf(seconds.back())) return {};
  }
  return seconds;
}

// What to say of a trial that failed somewhere. One rank tells the log: the lowest that knows more than that it waited in vain.
std::string failure_text(std::string_view engine, const Trial& trial, Own& own) {
  const int n = own.size(), me = own.rank().value;
  const int mine = me + (trial.why().empty() ? 2 * n : trial.stalled() ? n : 0);
  const int told = -static_cast<int>(greatest(own, -mine)) % n;
  if (told == me) log_warning("comm: auto goes on without {}, which failed when it was tried: {}", engine, trial.why());
  return told == me ? trial.why() : fmt::format("rank {} has said why", told);
}

// Why auto does not even try, beyond what stands in the way of anybody.
std::string why_not(std::string_view name, const Underneath& under) {
  if (name == "nccl") return "it moves GPU memory only";
  if (name == "gloo" && !under.one_host) return "between hosts its sockets are open to whoever reaches them: ask for it by name";
  return why_no_engine(name, under);
}

double gain(const EngineTimes& own, const EngineTimes& other) {
  const std::size_t both = std::min(own.seconds.size(), other.seconds.size());
  double logs = 0;
  for (std::size_t i = 0; i < both; ++i) logs += std::log(own.seconds[i] / other.seconds[i]);
  return both == 0 ? 0 : std::exp(logs / static_cast<double>(both));
}

}  // namespace

const EngineTimes& choose_engine(std::span<const EngineTimes> measured) {
  const EngineTimes* best = &measured[0];
  double most = kAutoGain;
  for (const EngineTimes& other : measured.subspan(1))
    if (const double g = gain(measured[0], other); g >= most) best = &other, most = g;
  return *best;
}

std::string choice_text(std::span<const EngineTimes> measured) {
  std::vector<std::string> parts;
  for (const EngineTimes& engine : measured) {
    std::vector<std::string> figures;
    for (std::size_t i = 0; i < engine.seconds.size(); ++i)
      figures.push_back(fmt::format("{} in {}", format_bytes(kAutoBytes[i]), format_seconds(Seconds(engine.seconds[i]))));
    parts.push_back(figures.empty() ? fmt::format("{} {}: {}", engine.name, engine.failed ? "failed" : "not tried", engine.why)
                                    : fmt::format("{} reduces {}", engine.name, join(figures, ", ")));
  }
  return fmt::format("comm: auto takes {}: {}", choose_engine(measured).name, join(parts, "; "));
}

std::unique_ptr<Own> Own::with_engine(std::string_view name, Deadline deadline) {
  barrier({.name = "comm: auto"});  // it also gives every try a number, and so a channel, of its own
  Underneath under = under_;
  under.comm = name;
  return relative(peers_.members(), 0, std::move(under), deadline);
}

// An engine that cannot call off its work may write into that memory until this process ends: so long it belongs to nobody else.
void Own::try_engine(const Region& region, Deadline deadline) {
  static std::mutex mutex;
  static auto& kept = *new std::vector<Region>;
  try {
    engine_->all_reduce(piece(region.as<float>()), Op::sum, {deadline, [this] { peers_.check(); }});
  } catch (const Failure&) {
    if (engine_->abort()) throw;
    const std::lock_guard lock(mutex);
    kept.push_back(region);
    throw;
  }
}

std::unique_ptr<Communicator> fastest(std::unique_ptr<Own> own, const Underneath& asked, bool canonical_only) {
  const auto say = [&](const std::string& text) {
    if (own->rank().value == 0) log_info("{}", text);
  };
  if (canonical_only) return say("comm: auto takes own: bits: same leaves no other (bits: free lets them compete)"), std::move(own);
  Trial plain(*own, true);
  std::vector<EngineTimes> measured{{"own", measure(plain, *own), {}}};
  std::vector<std::unique_ptr<Own>> engines(1);
  for (const EngineRow& row : engine_rows()) {
    EngineTimes& times = measured.emplace_back(EngineTimes{std::string(row.name), {}, why_not(row.name, asked)});
    auto& engine = engines.emplace_back();
    const bool missing = greatest(*own, times.why.empty() ? 0 : 1) > 0;
    if (missing && times.why.empty()) times.why = "not every rank has it";
    if (missing) continue;
    try {
      engine = own->with_engine(row.name, Deadline::in(kOpening));
    } catch (const Failure& failure) {
      times.why = failure.what();
    }
    const bool failed = greatest(*own, engine ? 0 : 1) > 0;
    if (failed && times.why.empty()) times.why = "another rank could not open it";
    if (failed) continue;
    Trial trial(*engine, false);
    times.seconds = measure(trial, *own);
    times.failed = times.seconds.empty();
    if (times.failed) times.why = failure_text(row.name, trial, *own);
  }
  say(choice_text(measured));
  const auto chosen = static_cast<std::size_t>(&choose_engine(measured) - measured.data());
  if (chosen == 0) return own;
  return std::move(engines[chosen]);
}

}  // namespace cohort::collective
