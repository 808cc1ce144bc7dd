#include "cohort/bench/calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cohort/base/bytes.h"
#include "cohort/base/error.h"
#include "cohort/base/text.h"
#include "cohort/bench/measure.h"
#include "cohort/bench/results.h"
#include "cohort/bench/rounds.h"
#include "cohort/collective/cost/calibration_file.h"
#include "cohort/collective/kernels/kernels.h"

namespace cohort::bench {
namespace {

using collective::AllReduce;
using collective::Calibration;
using collective::Shape;

constexpr std::size_t kTiny = 64;            // latency alone
constexpr std::size_t kStagedBytes = 4_MiB;  // past the caches of one core, short enough to repeat
constexpr std::size_t kLargeBytes = 32_MiB;  // past every cache

double timed(collective::Communicator& world, const BenchOptions& o, const std::function<void()>& run) {
  const auto slowest = [&](double* v, std::size_t n) { world.all_reduce({v, n, collective::Dtype::f64}, collective::Op::max); };
  return measure::time_operation(
             {o.seconds, o.repeats}, run, [&] { world.barrier(); }, slowest)
             .median_us *
         1e-6;
}

std::string sample_line(const std::string& row, const Shape& s, double seconds) {
  const nlohmann::ordered_json line{{"row", row},         {"bytes", s.bytes},       {"ranks", s.ranks},  {"cores", s.cores},
                                    {"shared", s.shared}, {"in_place", s.in_place}, {"seconds", seconds}};
  return line.dump() + "\n";
}

const TimedRow* find(const std::vector<TimedRow>& samples, std::string_view row, std::size_t bytes) {
  for (const TimedRow& s : samples)
    if (s.row == row && s.shape.bytes == bytes) return &s;
  return nullptr;
}

}  // namespace

std::string calibration_samples(collective::Communicator& world, const BenchOptions& o) {
  const bool shared = world.transport() != "tcp";
  auto region = world.allocate(kLargeBytes), other = world.allocate(kStagedBytes);
  const auto floats = region.as<float>();
  std::string text;
  const auto sample = [&](const std::string& row, std::size_t bytes, bool in_place) {
    collective::Call call;
    call.algorithm = row;
    const auto piece = collective::piece(floats.first(bytes / sizeof(float)));
    const double seconds = timed(world, o, [&] { world.all_reduce(piece, collective::Op::sum, call); });
    text += sample_line(row, {bytes, world.size(), this_machine().cores, shared, in_place}, seconds);
  };
  const auto kernel = [&] {
    const void* const sources[] = {region.data(), other.data()};
    void* const target[] = {region.data()};
    const auto count = kStagedBytes / sizeof(float);
    const double seconds = timed(world, o, [&] { collective::kernels().reduce({}, {sources, 2}, {target, 1}, count); });
    text += sample_line("kernel", {kStagedBytes, world.size(), this_machine().cores, shared, true}, seconds);
  };
  if (shared) sample("zero_copy", kTiny, true), sample("zero_copy", kLargeBytes, true), sample("staged", kStagedBytes, false);
  kernel();
  sample("recursive_doubling", kTiny, false);
  sample("recursive_doubling", kStagedBytes, false);
  return text;
}

std::vector<TimedRow> parse_samples(std::string_view text) {
  std::vector<TimedRow> samples;
  for (const auto line : split(text, '\n')) {
    if (trim(line).empty()) continue;
    const auto j = nlohmann::json::parse(line, nullptr, false);
    if (j.is_discarded() || !j.contains("seconds"))
      throw_failure(Kind::corrupt, "a rank wrote '{}' where a timed row was due", printable(line));
    samples.push_back({j.at("row"), {j.at("bytes"), j.at("ranks"), j.at("cores"), j.at("shared"), j.at("in_place")}, j.at("seconds")});
  }
  return samples;
}

std::optional<double> solve_latency(const AllReduce& row, const Shape& shape, Calibration k, double Calibration::*constant,
                                    double seconds) {
  k.*constant = 0;
  const auto without = row.cost(shape, k);
  k.*constant = 1;
  const auto with = row.cost(shape, k);
  if (!without || !with || *with <= *without) return std::nullopt;
  const double value = (seconds - without->count()) / (*with - *without).count();
  return value > 0 ? std::optional(value) : std::nullopt;
}

std::optional<double> solve_rate(const AllReduce& row, const Shape& shape, Calibration k, double Calibration::*constant, double seconds) {
  k.*constant = HUGE_VAL;
  const auto without = row.cost(shape, k);
  k.*constant = 1;
  const auto with = row.cost(shape, k);
  if (!without || !with || seconds <= without->count()) return std::nullopt;
  const double value = (*with - *without).count() / (seconds - without->count());
  return value > 0 ? std::optional(value) : std::nullopt;
}

Fit fit(const std::vector<TimedRow>& uncrowded, const std::vector<TimedRow>& crowded, const Calibration& start) {
  Fit f{start, {}};
  const auto take = [&](std::string_view name, double Calibration::*constant, const TimedRow* s, auto solve) {
    const auto value =
        s == nullptr ? std::nullopt : solve(collective::all_reduce_named(s->row), s->shape, f.constants, constant, s->seconds);
    if (value)
      f.constants.*constant = *value;
    else
      f.kept.emplace_back(name);
  };
  // In this order: each step uses the constants before it.
  take("sync_s", &Calibration::sync_s, find(uncrowded, "zero_copy", kTiny), solve_latency);
  take("crowded_s", &Calibration::crowded_s, find(crowded, "zero_copy", kTiny), solve_latency);
  take("update_rate", &Calibration::update_rate, find(uncrowded, "zero_copy", kLargeBytes), solve_rate);
  take("stage_rate", &Calibration::stage_rate, find(uncrowded, "staged", kStagedBytes), solve_rate);
  const TimedRow* kernel = find(uncrowded, "kernel", kStagedBytes);
  if (kernel != nullptr && kernel->seconds > 0)
    f.constants.reduce_rate = static_cast<double>(kernel->shape.bytes) / kernel->seconds;
  else
    f.kept.emplace_back("reduce_rate");
  take("link_s", &Calibration::link_s, find(uncrowded, "recursive_doubling", kTiny), solve_latency);
  take("link_rate", &Calibration::link_rate, find(uncrowded, "recursive_doubling", kStagedBytes), solve_rate);
  return f;
}

int calibrate(const BenchOptions& options) {
  BenchOptions o = options;
  o.worker_task = "calibrate";
  o.sizes = {kLargeBytes};
  o.calibration = "none";  // measured on the built-in constants
  const std::string transport = o.transport == "tcp" ? "tcp" : "shm";
  const Implementation ours{"cohort", "", "allocate"};
  const int cores = std::max(1, this_machine().cores);
  const auto start = transport == "tcp" ? collective::tcp_defaults() : Calibration{};
  const auto uncrowded = cores < 2 ? std::vector<TimedRow>{} : parse_samples(run_worker(ours, o, "all_reduce", 2));
  const auto crowded = transport == "tcp" ? std::vector<TimedRow>{} : parse_samples(run_worker(ours, o, "all_reduce", 2 * cores));
  const Fit f = fit(uncrowded, crowded, start);
  const bool usual = options.calibration.empty();
  const auto path = usual ? collective::calibration_file(collective::usual_calibration_folder(), transport) : options.calibration;
  if (const auto folder = std::filesystem::path(path).parent_path(); !folder.empty()) std::filesystem::create_directories(folder);
  f.constants.save(path);
  fmt::print("{}\n", f.constants.text());
  for (const auto& name : f.kept) fmt::print("{} cannot be distinguished from noise and keeps its built-in value\n", name);
  fmt::print("written to {}\n", path);
  if (usual)
    fmt::print("jobs on this machine use it from now on (COHORT_CALIBRATION=none: not); `cohort bench --explain` shows what it decides\n");
  else
    fmt::print("COHORT_CALIBRATION={0} makes jobs use it; `cohort bench --explain --calibration {0}` shows what it decides\n", path);
  return 0;
}

}  // namespace cohort::bench
