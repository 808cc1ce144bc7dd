// Strategies whose ranks meet in a centre and wait for nobody: rank r keeps the r-th part of it and answers for that while it computes
// (request_service.h). What local_sgd(wait=none), diloco(wait=none) and easgd(async=true) share.
//   every h steps of its own rank i sends each owner what it brings of the owner's part; the owner changes the centre by it, and what the
//   rank then takes goes back: bring(), meet(), take()
// A part whose owner does not answer within `patience` stays with the rank as it is: the owner is asked again when the answer has come,
// which counts then, or it is known to be lost. So what is brought counts once or, when the owner refuses (it saves or evaluates), is
// brought with the next round. A lost owner takes its part of the centre with it. A rank receives 2 P (n - 1) / (n h) elements a step. The
// job stands for the centre. Bits of a run do not repeat.
// Owner, failure: as every Strategy. Threads: likewise, and meet() of the service's.
#pragma once
#include <deque>
#include <mutex>

#include "cohort/sync/request_service.h"
#include "cohort/sync/strategy_row.h"

namespace cohort::sync {

inline constexpr const char* kCentreSlot = "centre";  // the part that this rank keeps; the rest of it means nothing

class Centred : public Strategy {
 public:
  Centred(std::int64_t every, Seconds patience) : every_(every), patience_(patience) {}
  Semantics semantics() const override {
    return {.commit_scope = Scope::self, .identical = Scope::self, .sync_scope = Scope::self, .guarantee = Guarantee::none};
  }
  std::vector<SlotSpec> slots() const override;
  double cost(double elements, int ranks) const override { return 2 * elements * (ranks - 1) / ranks / static_cast<double>(every_); }
  SyncSchedule schedule(std::int64_t step) const override {
    const bool due = step % every_ == 0;
    return {.commit = Scope::self, .exchanges_before = false, .exchanges_after = due, .ends_round = due};
  }
  void open(Site& site) override;
  void begin_step() override;
  void exchange_models(Bucket& bucket, const Wire& wire) override;
  void mix_models(Bucket& bucket, const Decision& decision) override;
  void settle() override;
  void consensus(Bucket& bucket, const Piece& into, const Wire& wire) override;
  void adopt(Bucket& bucket) override;

 protected:
  virtual void bring(const Bucket& bucket, const Range& part, const Piece& sent) const = 0;
  // The owner's: `values` came, and are what goes back afterwards. One call at a time for a bucket.
  virtual void meet(Bucket& bucket, const Range& part, const Piece& values) = 0;
  virtual void take(Bucket& bucket, const Range& part, const Piece& sent, const Piece& came) const = 0;
  int ranks() const { return ranks_; }
  void stop() { service_.reset(); }  // in the destructor of who implements meet()

 private:
  struct Held {  // of one bucket
    std::mutex mutex;
    Bucket* bucket = nullptr;
    bool open = false;                                 // others may meet
    std::vector<std::unique_ptr<Request>> requests{};  // by owner; this rank's own: none
    bool met_own = false;                              // its own part has met, and is to be taken
  };
  Range part_of(const Bucket& bucket, int owner) const;
  bool meet_here(Held& held, const Piece& values);
  void take_answers(Held& held, Deadline deadline);

  const std::int64_t every_;
  const Seconds patience_;
  int ranks_ = 1, me_ = 0;
  std::deque<Held> held_;                    // by index of the bucket
  std::unique_ptr<RequestService> service_;  // last: its thread ends before they do
};

// wait=all|none and patience, of rows that can do without waiting.
std::vector<SpecParam> wait_params();

}  // namespace cohort::sync
