// How the ranks of a torch process group find each other: through the Store that torch gives to each of them, which all users of
// torch.distributed trust already. Every rank writes which machine it runs on; the group's rank 0 opens a rendezvous server on a port that
// the system chooses, on loopback when all run on one machine, and writes its address and a fresh secret; the others join there and prove
// that they know the secret. The secret is removed from the store before any rank gets the roster. Any number of groups may do so at once.
// Owner: the caller. Threads: any, one per group. Failure: Kind::timeout naming the missing ranks, Kind::usage, Kind::peer_lost,
// Kind::corrupt; what the store itself throws passes through.
#pragma once
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "cohort/collective/communicator.h"
#include "cohort/job/job.h"

namespace cohort::collective {
class Arena;
}

namespace cohort::python {

struct StoreRendezvous {
  c10::intrusive_ptr<c10d::Store> store;  // for this group alone
  int rank = 0;
  int size = 1;
  std::string name;          // of the group, for messages
  std::string my_address{};  // where other machines reach this one; empty: only ranks of this machine can
  JobOptions options{};      // transport, timeout, start_timeout ...
  std::shared_ptr<collective::Arena> arena{};
};

std::unique_ptr<collective::Communicator> rendezvous_by_store(const StoreRendezvous& how);

}  // namespace cohort::python
