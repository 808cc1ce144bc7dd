// A Gate says when a read may be answered: how far behind the reader others may be. At clock c, when all workers have ended low clocks, it
// opens if
//   low >= c - slack                                         without a bound: always
// so that the read has every update stamped < c - slack, of everybody, and maybe later ones. A worker waits when it reads, never when it
// ends a clock. Rows (gate.cc):
//   bsp               slack 0: of clock c every read has all updates before c and none of c (bulk synchronous)
//   ssp(s)            slack s (stale synchronous parallel, Ho et al. 2013); ssp(s=0) is bsp, bit for bit
//   ssp_push(s)       the same bound; a worker that has ended a clock is sent its next read as soon as the gate opens, without asking
//   bounded_delay(tau)  slack tau; a worker's own updates may be tau clocks late, too (Li et al. 2014)
//   tap               no bound (totally asynchronous, Hogwild over a network)
// Where the slack is 0 updates are applied together, in the order of the workers, when all have ended the clock: so the bits repeat.
// Elsewhere they are applied as they arrive.
// Owner: values. Threads: any. Failure: Kind::usage for a spec. To add one: a row in gate.cc; simulation_test.cc takes it in.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "cohort/base/spec.h"

namespace cohort::ps {

struct Gate {
  std::string spec{};                     // canonical
  std::optional<std::int64_t> slack = 0;  // none: no bound
  bool own_writes = true;                 // a read has all of the reader's own updates
  bool sends = false;                     // reads are sent, not asked for

  bool opens(std::int64_t clock, std::int64_t low) const { return !slack || low >= clock - *slack; }
  // Which clock of its own a reader must have marked.
  std::int64_t own(std::int64_t clock) const { return own_writes || !slack ? clock : clock - *slack; }
  bool ordered() const { return slack == 0; }
};

struct GateRow {
  std::string_view name;
  const SpecSchema& (*schema)();
  Gate (*make)(const SpecValues& values);
};
std::span<const GateRow> gates();
Gate make_gate(std::string_view spec);  // "ssp(s=2)", and "ssp(2)" for gates of one parameter; Kind::usage with the known names

}  // namespace cohort::ps
