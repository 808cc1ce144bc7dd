// A Rescue: a rank is lost, and the others save what all of them had, the lost one included, whose buddy kept it (sync/bucket_buddy.cc).
// They cannot talk any more, so they meet in the folder of checkpoints, as ranks that save do (checkpoint/party.h):
//   1 each writes where it stands: the last step that it knows the vote of, and what the vote said
//   2 who has not heard a vote that another has ends that step by itself: own piece and kept one, no communication
//   3 all write their pieces of that step, the buddy those of the lost rank too: one checkpoint, which is there when the last part is
// Started again, the run goes on from it: nothing is computed twice but the step that nobody had decided. Owner: Keeper. Threads: one.
// Failure: Kind::timeout naming ranks that did not come (a second one is lost), Kind::system of the disk; what was on it before stays.
#pragma once
#include <functional>

#include "cohort/train/loop/stowage.h"

namespace cohort {

// Where a survivor stands.
struct Account {
  std::int64_t step = 0;        // the last one that was decided
  bool undecided = false;       // the next has come to its vote, whose end was not heard
  engine::Decision decision{};  // of `step`
};

std::string format_account(const Account& account);
Account parse_account(const std::string& text, const std::string& where);  // Kind::corrupt
// The one that everybody can follow. Kind::bug when somebody cannot.
Account furthest(std::span<const Account> accounts);

// Rank 0, once a start: a number for the place to meet at; what earlier ones left is removed.
std::int64_t new_meeting(const std::string& folder);

class Rescue {
 public:
  Rescue(Survivor survivor, std::string folder, std::int64_t meeting);
  void agree(Learner& learner);                                                                                         // 1 and 2
  checkpoint::Checkpoint save(Learner& learner, const std::function<void(checkpoint::Manifest&)>& describe, int keep);  // 3

 private:
  std::string await(const std::string& name, int from) const;

  Survivor survivor_;
  const std::string folder_, place_;
  std::vector<int> survivors_;
  const Deadline deadline_;
};

}  // namespace cohort
