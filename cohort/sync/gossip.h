// Strategies whose ranks meet a few others at a time, over a peer channel, and wait for nobody else: what the rows dpsgd, push_sum,
// pair_averaging and choco share. A rank's step is its own, no vote is on the way, and a lost rank costs what it held. The job stands for
// the mean of the models, unless a row says otherwise. Owner, threads, failure: as every Strategy.
#pragma once
#include <functional>
#include <memory>
#include <optional>

#include "cohort/sync/graph_file.h"
#include "cohort/sync/strategy_row.h"

namespace cohort::sync {

class Gossip : public Strategy {
 public:
  Semantics semantics() const override {
    return {.commit_scope = Scope::self, .identical = Scope::self, .sync_scope = Scope::self, .guarantee = Guarantee::none};
  }
  void open(Site& site) override {
    if (site.comm.size() > 1) channel_ = site.comm.channel();
  }

 protected:
  // What this rank takes of others in a step, and who takes of it.
  struct Meeting {
    std::vector<Neighbour> reads;
    std::vector<int> readers;
  };
  static Meeting meeting_of(const Mixing& mixing, int rank);
  // All sends are on their way before the first receive is waited for; `took` is called by rank, for this rank itself with `sent`. `sent`
  // is the caller's again when this returns. Messages of a bucket have the tags from 2 * index.
  void exchange(const Bucket& bucket, const Wire& wire, const Meeting& meeting, const Piece& sent, const Piece& arrived,
                const std::function<void(const Neighbour&, const Piece&)>& took, std::uint32_t tag = 0) const;

 private:
  std::unique_ptr<collective::PeerChannel> channel_;
};

// graph=NAME, or file=PATH.
std::vector<SpecParam> graph_params(std::string_view preset);
class GraphChoice {
 public:
  GraphChoice(const SpecValues& values, Stochastic what);
  Graph of(int ranks) const;                           // Kind::usage where the file is for another number
  void refuse_turns(std::string_view why) const;       // Kind::usage where weights change with the step
  void compare(collective::Communicator& comm) const;  // collective; Kind::usage where ranks have read different files

 private:
  const std::string name_, path_;
  std::optional<Graph> from_file_;
};

}  // namespace cohort::sync
