// Rank 0's decision logic: which rank has submitted what, and therefore what may run now. A pure state machine: events in, decisions out;
// no clock, no socket, no thread. Decisions are applied by every rank in the order given, which is what makes ranks that submit in
// different orders execute in one. Owner: Coordinator. Failure: Kind::corrupt when a rank breaks the protocol (the same name twice).
//
//   a name runs     when every rank has submitted it, or has joined (joined ranks contribute zeros to sums and averages)
//   it is refused   when the ranks disagree about it, when a joined rank cannot take part, or when a rank it waits for has closed
//   join is done    when every rank has joined
//   stalled         reports once per name which ranks are missing, after `warn_after`; closed ends everything after `shutdown_after`, also
//                   when some ranks have joined and the others have been silent for so long
#pragma once
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "cohort/base/deadline.h"
#include "cohort/base/error.h"
#include "cohort/queue/signature.h"

namespace cohort::queue {

struct Rules {
  std::size_t fusion_bytes = 0;
  Seconds warn_after{5};
  Seconds shutdown_after{0};        // 0: never
  std::string limit_name{};         // what sets shutdown_after, for texts
  std::vector<Rank> rank_labels{};  // the ranks' numbers in texts; empty: their numbers here
};

struct NamedSignature {
  std::string name;
  Signature signature{};
};

struct Decision {
  enum class Action : std::uint8_t { run, refuse, joined, stalled, closed };
  Action action = Action::run;
  std::vector<NamedSignature> affected{};  // run: one unit; refuse, stalled: what it is about (no signatures)
  Kind kind = Kind::usage;                 // of the failure: refuse, closed
  std::string text{};                      // refuse, stalled, closed
  Rank rank{};                             // joined: the last one
};

class Negotiator {
 public:
  Negotiator(int ranks, Rules rules);

  void submit(Rank from, const std::string& name, const Signature& signature, Clock::time_point now);
  void join(Rank from, Clock::time_point now);
  void leave(Rank from);  // it will submit nothing more
  // What the events since the last take() allow, in order, fused.
  std::vector<Decision> take(Clock::time_point now);
  // When take() should be called next although nothing happened: the next warning or the shutdown.
  std::optional<Clock::time_point> next_tick() const;

 private:
  struct Pending {
    std::string name;
    Rank first{};  // the rank that submitted first, and its signature: all others are compared with it
    Signature signature{};
    Clock::time_point since{};
    std::vector<bool> has;  // which ranks have submitted
    int count = 0;
    std::string problem{};  // the first mismatch; reported once all have submitted, so that no rank is left with half an operation
    bool warned = false;
  };
  using Table = std::map<std::uint64_t, Pending>;  // by age: the key counts first submissions

  bool covered(const Pending& pending) const;  // by submissions and joins
  std::vector<int> missing(const Pending& pending) const;
  // Moves it to ready_ or settled_ when it is decided, and returns whether it did.
  bool settle(Pending& pending);
  void settle_all();
  void refuse(const Pending& pending, Kind kind, std::string text);
  void check_stalls(Clock::time_point now);
  void close(std::string text);
  std::optional<Clock::time_point> ends_at() const;  // when the wait is over for what waits longest
  Rank label_of(int rank) const;
  std::string stall_report(Clock::time_point before, Seconds after) const;  // of what was submitted until `before`
  std::string join_report() const;
  std::string last_submitted() const;

  const int ranks_;
  const Rules rules_;
  Table pending_;
  std::unordered_map<std::string, Table::iterator> by_name_;
  std::uint64_t age_ = 0;
  std::vector<std::string> last_;  // what each rank submitted last
  std::vector<bool> joined_, left_;
  int joined_count_ = 0, left_count_ = 0;
  Clock::time_point heard_{};          // the last submission or join
  std::vector<NamedSignature> ready_;  // agreed, not yet handed out
  std::vector<Decision> settled_;      // the other decisions not yet handed out
};

}  // namespace cohort::queue
