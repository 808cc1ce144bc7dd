// A history is what the workers of a job logged while they trained, one JSON object a line; judge() says which promises it breaks.
// The simulator and runs of real processes with injected faults are checked by the same code.
//
//   {"event":"commit","epoch":2,"step":17,"rank":1,"worker":"9f3c","size":4,"hash":"77aa",
//    "data_epoch":0,"first":128,"total":64,"of":1000,"samples":[5,812, ...]}
//
//   start     this rank begins to compute the step
//   commit    it has applied the step: epoch is the one that voted, hash that of its parameters, samples the ones it took itself. The step
//             took `total` samples over all ranks, after the `first` that earlier steps took from the `of` of this epoch of the data
//   heal      it received the state after this step from a peer
//   restart   it read the state after this step from disk, since no worker had a later one: the steps after it are void
//
// Lines of one worker are in order; between workers there is none. A worker that was killed may lack its last lines.
// Owner: values. Threads: any, pure functions. Failure: Kind::corrupt for a line that cannot be read, naming it.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/ids.h"

namespace cohort::elastic {

struct HistoryLine {
  enum class Event { start, commit, heal, restart };
  Event event = Event::commit;
  Epoch epoch;
  std::int64_t step = 0;
  Rank rank;
  std::string worker;                                         // its WorkerId, in hexadecimal
  int size = 0;                                               // of the roster
  std::string hash;                                           // of the parameters after the step; empty: not taken
  std::int64_t data_epoch = 0, first = 0, total = 0, of = 0;  // of: 0 when the data is not logged
  std::vector<std::int64_t> samples;
  bool operator==(const HistoryLine&) const = default;
};

std::string encode_line(const HistoryLine& line);  // without the newline
HistoryLine decode_line(std::string_view text);
// A last line without a newline is what a killed process left, and is skipped. where: for failures.
std::vector<HistoryLine> decode_history(std::string_view text, const std::string& where);

struct Violation {
  std::string promise;  // "P1": docs/reliability.md
  std::string what;
  bool operator==(const Violation&) const = default;
};

// P1: no step missing, applied twice or out of order by a worker; at most one step of an epoch computed in vain.
// P2: equal parameters at equal steps. P3: every sample once per epoch of the data. P6: every step committed by one epoch only.
std::vector<Violation> judge(const std::vector<HistoryLine>& lines);

}  // namespace cohort::elastic
