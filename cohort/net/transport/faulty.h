// A PeerLinks with seeded faults between its ranks, around any other PeerLinks: what tests of everything above the links run on.
// Faults are applied to messages as they are sent, each decided by (seed, sender, receiver, message number) alone: the same plan affects
// the same messages in every run, however threads interleave across links.
//   delay    the sending thread sleeps first, up to delay_span: order is kept
//   drop     the message never arrives; its receiver times out
//   corrupt  one bit flips before the transport sees the bytes, as bad memory does it: no transport's checksum detects it, only
//            checks of the payload (hashes, fingerprints) can; an empty message has no bit to flip
//   cut      after cut_after messages the link fails here with Kind::peer_lost; the peer does not see it, as with a cut cable
// A rank's link to itself has no faults. With any fault planned shares_memory() is false, so that bytes really go over the links.
// Owner: holds the inner PeerLinks. Threads: any. Failure: as the inner PeerLinks. To add a fault: a field here, a line in
// FaultyLink::send.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "cohort/net/transport/link.h"

namespace cohort::net {

struct FaultPlan {
  std::uint64_t seed = 0;
  double delay = 0;  // probabilities, independent of each other
  double drop = 0;
  double corrupt = 0;
  Seconds delay_span{0.01};
  std::optional<std::uint64_t> cut_after;
  std::vector<Rank> peers;  // only messages to these; empty: to all
  bool any() const { return delay > 0 || drop > 0 || corrupt > 0 || cut_after.has_value(); }
};

// What happens to message number n (0, 1, ..) from one rank to another: a pure function.
struct PlannedFault {
  Seconds delay{0};
  bool drop = false;
  bool corrupt = false;
  std::uint64_t bit = 0;  // which one flips, modulo the message's bits
  bool cut = false;
};
PlannedFault planned_fault(const FaultPlan& plan, Rank from, Rank to, std::uint64_t n);

std::unique_ptr<PeerLinks> faulty_peer_links(std::unique_ptr<PeerLinks> inner, FaultPlan plan);  // Kind::usage: a probability outside 0..1

}  // namespace cohort::net
