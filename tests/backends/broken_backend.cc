// A backend that opens well and does not work, under the name of gloo. BROKEN_BACKEND says how:
//   all    every rank fails at once
//   one    rank 1 fails, the others wait for it
//   later  the same, after one that went well: nothing was reduced, but a trial checks the time only
//   stall  no rank fails, nothing moves
#include <cstdlib>
#include <string>
#include <thread>

#include "cohort/base/error.h"
#include "cohort/collective/plugin/backend.h"

namespace cohort::collective {
namespace {

class Broken final : public Backend {
 public:
  Broken(int rank, std::string how) : rank_(rank), how_(std::move(how)) {}
  std::string text() const override { return "a backend that does not work"; }
  bool carries(Collective collective, Dtype, Op, Device, std::size_t) const override { return collective == Collective::all_reduce; }

  void all_reduce(Piece, Op, const WaitOptions& wait_options) override {
    if (how_ == "later" && ++calls_ < 2) return;
    if (how_ == "all" || (how_ != "stall" && rank_ == 1)) throw_failure(Kind::system, "out of order on rank {}", rank_);
    for (; !wait_options.deadline.passed(); std::this_thread::sleep_for(std::chrono::milliseconds(5))) wait_options.check();
    throw_failure(Kind::timeout, "no data moved");
  }
  void reduce_scatter(Piece, Piece, Op, const Layout&, const WaitOptions&) override {}
  void all_gather(Piece, Piece, const Layout&, const WaitOptions&) override {}
  void broadcast(Piece, int, const WaitOptions&) override {}
  void reduce(Piece, Piece, Op, int, const WaitOptions&) override {}
  void all_to_all(Piece, Piece, const Layout&, const Layout&, const WaitOptions&) override {}
  bool abort() noexcept override { return rank_ != 1; }  // where it is false the memory must stay, and the job goes on all the same

 private:
  const int rank_;
  const std::string how_;
  int calls_ = 0;
};

std::unique_ptr<Backend> open_broken(const BackendContext& context) {
  const char* const how = std::getenv("BROKEN_BACKEND");
  return std::make_unique<Broken>(context.rank, how == nullptr ? "all" : how);
}

}  // namespace
}  // namespace cohort::collective

COHORT_BACKEND_PLUGIN(gloo, cohort::collective::open_broken)
