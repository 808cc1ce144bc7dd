// Rank 0's mind: who has submitted what, and therefore what may run now. A pure state machine: facts in, verdicts out; no clock,
// no socket, no thread. Verdicts are obeyed by every rank in the order given, which is what makes ranks that submit in different
// orders execute in one.
// Owner: Coordinator. Failure: Kind::corrupt when a rank breaks the protocol (the same name twice).
//
//   a name runs     when every rank has submitted it, or has joined (joined ranks give zeros to sums and averages)
//   it is refused   when the ranks disagree about it, when a joined rank cannot take part, or when a rank it waits for has closed
//   join is done    when every rank has joined
//   stalled         tells once per name which ranks are missing, after `warn_after`; closed ends everything after `shutdown_after`
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
  Seconds shutdown_after{0};   // 0: never
  std::vector<Rank> spoken{};  // what people call the ranks; empty: by their numbers here
};

struct Named {
  std::string name;
  Signature signature{};
};

struct Verdict {
  enum class Does : std::uint8_t { run, refuse, joined, stalled, closed };
  Does does = Does::run;
  std::vector<Named> whom{};  // run: one unit; refuse, stalled: what it is about (no signatures)
  Kind kind = Kind::usage;    // of the failure: refuse, closed
  std::string text{};         // refuse, stalled, closed
  Rank rank{};                // joined: the last one
};

class Negotiator {
 public:
  Negotiator(int ranks, Rules rules);

  void submit(Rank from, const std::string& name, const Signature& signature, Clock::time_point now);
  void join(Rank from);
  void leave(Rank from);  // it will submit nothing more
  // What the facts since the last take() allow, in order, fused.
  std::vector<Verdict> take(Clock::time_point now);
  // When take() should be called next although nothing happened: the next warning or the shutdown.
  std::optional<Clock::time_point> next_look() const;

 private:
  struct Pending {
    std::string name;
    Rank first{};  // who submitted first, and what: all others are compared with it
    Signature signature{};
    Clock::time_point since{};
    std::vector<bool> has;  // which ranks have submitted
    int count = 0;
    std::string problem{};  // the first mismatch; told once all have submitted, so that no rank is left with half an operation
    bool warned = false;
  };
  using Table = std::map<std::uint64_t, Pending>;  // by age: the key counts first submissions

  bool covered(const Pending& pending) const;  // by submissions and joins
  std::vector<int> missing(const Pending& pending) const;
  // Moves it to ready_ or settled_ when its fate is known, and says whether it did.
  bool settle(Pending& pending);
  void settle_all();
  void refuse(const Pending& pending, Kind kind, std::string text);
  void look_for_stalls(Clock::time_point now);
  Rank called(int rank) const;
  std::string stall_report(Clock::time_point before, Seconds after) const;

  const int ranks_;
  const Rules rules_;
  Table pending_;
  std::unordered_map<std::string, Table::iterator> by_name_;
  std::uint64_t age_ = 0;
  std::vector<std::string> last_;  // what each rank submitted last
  std::vector<bool> joined_, left_;
  int joined_count_ = 0, left_count_ = 0;
  std::vector<Named> ready_;      // agreed, not yet handed out
  std::vector<Verdict> settled_;  // the other verdicts not yet handed out
};

}  // namespace cohort::queue
