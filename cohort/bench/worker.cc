#include "cohort/bench/worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cohort/base/error.h"
#include "cohort/base/text.h"
#include "cohort/bench/calibrate.h"
#include "cohort/bench/operation.h"
#include "cohort/bench/results.h"
#include "cohort/job/job.h"

namespace cohort::bench {
namespace {

using collective::Communicator;
using collective::Op;

void slowest(Communicator& world, double* values, std::size_t n) { world.all_reduce({values, n, collective::Dtype::f64}, Op::max); }

// Fills, runs once and compares every output; the checksum is that of all ranks together.
std::uint32_t verify(Communicator& world, Operation& operation, const std::string& what) {
  operation.fill();
  operation.run();
  const measure::Verdict mine = operation.check();
  std::int64_t sums[] = {static_cast<std::int64_t>(mine.wrong), static_cast<std::int64_t>(mine.checksum)};
  world.all_reduce({sums, 2, collective::Dtype::i64}, Op::sum);
  if (sums[0] != 0)
    throw_failure(Kind::corrupt, "{}: {} wrong elements{}", what, sums[0],
                  mine.wrong > 0 ? fmt::format(", on rank {} first at element {}", world.rank().value, mine.first) : "");
  return static_cast<std::uint32_t>(sums[1]);
}

// The row that will run. explain() lists the cheapest usable row first, under a line about the shape.
std::string algorithm_of(Communicator& world, const BenchOptions& o, const Operation& operation) {
  if (o.collectives.at(0) != "all_reduce") return std::string(world.transport());
  if (!o.algorithms.empty()) return o.algorithms.at(0);
  const auto text = world.explain(operation.input(), *collective::op_named(o.op));
  const auto lines = split(text, '\n');
  return lines.size() < 2 ? "unknown" : std::string(split(trim(lines[1]), ' ').at(0));
}

// All ranks update their own buffers at once: no implementation moves the bytes faster than this. Where ranks share cores one may begin,
// and its clock with it, when others are done: there all wait for the last. (4 x 100 MiB on 2 cores took 5.4 ms, or 3.3 by such clocks.)
double update_us(Communicator& world, Operation& operation, const measure::Budget& budget) {
  if (operation.bytes() == 0) return 0;
  const bool wait = world.size() > this_machine().cores && operation.bytes() >= 1_MiB;  // of less the barrier would be a part
  const auto once = [&](Operation::Update how) {
    operation.update(how);
    if (wait) world.barrier();
  };
  const auto timed = [&](Operation::Update how) {
    return measure::time_operation(
               budget, [&] { once(how); }, [&] { world.barrier(); }, [&](double* v, std::size_t n) { slowest(world, v, n); })
        .median_us;
  };
  return std::min(timed(Operation::Update::add), timed(Operation::Update::scale));
}

std::string measure_size(Communicator& world, const BenchOptions& o, std::size_t bytes) {
  const measure::Budget budget{o.seconds, o.repeats};
  Operation operation(world, o, bytes);
  const auto what = fmt::format("{} of {} on {} ranks", o.collectives.at(0), format_bytes(bytes), world.size());
  const auto checksum = verify(world, operation, what);
  operation.clear();
  const auto t = measure::time_operation(
      budget, [&] { operation.run(); }, [&] { world.barrier(); }, [&](double* v, std::size_t n) { slowest(world, v, n); });
  const double limit = update_us(world, operation, {o.seconds / 4, o.repeats});
  verify(world, operation, what + ", after timing");
  const double trips = o.collectives.at(0) == "send" ? 2 : 1;
  const nlohmann::ordered_json line{{"bytes", operation.bytes()},
                                    {"algorithm", algorithm_of(world, o, operation)},
                                    {"median_us", t.median_us / trips},
                                    {"low_us", t.low_us / trips},
                                    {"high_us", t.high_us / trips},
                                    {"repeats", t.repeats},
                                    {"batch", t.batch},
                                    {"update_us", limit},
                                    {"checksum", checksum},
                                    {"transport", world.transport()}};
  return line.dump() + "\n";
}

}  // namespace

std::string run_task(Communicator& world, const BenchOptions& o) {
  std::string text;
  if (o.worker_task == "calibrate") {
    text = calibration_samples(world, o);
  } else {
    for (const std::size_t bytes : o.sizes) {
      if (o.worker_task == "explain")
        text += world.explain(Operation(world, o, bytes).input(), *collective::op_named(o.op)) + "\n";
      else
        text += measure_size(world, o, bytes);
    }
  }
  return world.rank().value == 0 ? text : std::string{};
}

int worker_main(const BenchOptions& o) {
  job::JobOptions how;
  how.transport = o.transport;
  how.congestion = o.congestion;
  how.streams = o.streams;
  how.calibration = o.calibration;
  const Job job = init(how);
  const std::string text = run_task(job.comm(), o);
  if (job.rank().value != 0) return 0;
  std::ofstream out(o.worker_out, std::ios::binary);
  out << text;
  out.close();
  if (!out) throw_failure(Kind::system, "cannot write the results to {}", o.worker_out);
  return 0;
}

}  // namespace cohort::bench
