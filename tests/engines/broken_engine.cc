// An engine that opens well and does not work, under the name of gloo. BROKEN_ENGINE says how:
//   all    every rank fails at once
//   one    rank 1 fails, the others wait for it
//   later  the same, after one that went well: nothing was reduced, but a trial looks at the clock only
//   stall  nobody fails, nothing moves
#include <cstdlib>
#include <string>
#include <thread>

#include "cohort/base/error.h"
#include "cohort/collective/engine.h"

namespace cohort::collective {
namespace {

class Broken final : public Engine {
 public:
  Broken(int rank, std::string how) : rank_(rank), how_(std::move(how)) {}
  std::string text() const override { return "an engine that does not work"; }
  bool carries(Verb verb, Dtype, Op, Device, std::size_t) const override { return verb == Verb::all_reduce; }

  void all_reduce(Piece, Op, const Watch& watch) override {
    if (how_ == "later" && ++calls_ < 2) return;
    if (how_ == "all" || (how_ != "stall" && rank_ == 1)) throw_failure(Kind::system, "out of order on rank {}", rank_);
    for (; !watch.deadline.passed(); std::this_thread::sleep_for(std::chrono::milliseconds(5))) watch.check();
    throw_failure(Kind::timeout, "nobody moved");
  }
  void reduce_scatter(Piece, Piece, Op, const Layout&, const Watch&) override {}
  void all_gather(Piece, Piece, const Layout&, const Watch&) override {}
  void broadcast(Piece, int, const Watch&) override {}
  void reduce(Piece, Piece, Op, int, const Watch&) override {}
  void all_to_all(Piece, Piece, const Layout&, const Layout&, const Watch&) override {}
  bool abort() noexcept override { return rank_ != 1; }  // where it is false memory must stay, and the job goes on all the same

 private:
  const int rank_;
  const std::string how_;
  int calls_ = 0;
};

std::unique_ptr<Engine> open_broken(const EngineSite& site) {
  const char* const how = std::getenv("BROKEN_ENGINE");
  return std::make_unique<Broken>(site.rank, how == nullptr ? "all" : how);
}

}  // namespace
}  // namespace cohort::collective

COHORT_ENGINE(gloo, cohort::collective::open_broken)
