// Links through shared memory, between the processes of one host (or threads of one process).
// Each rank owns an inbox: a Segment with one ring buffer per peer (written by that peer, read by the owner) and one futex word to sleep
// on. A message is a 16-byte header {channel, number, length} and its payload, streamed through the ring in pieces, so any size fits. Rings
// are sparse: one that is never used costs no memory. Peers write this memory, so what is read from it is checked: bad values fail that
// link with Kind::corrupt and nothing else. Owner: whoever holds the PeerLinks. Threads: any; one monitor thread per rank detects peers
// that leave, abort or die. Failure: see link.h; Kind::corrupt or usage when the inboxes do not fit each other.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "cohort/base/segment.h"
#include "cohort/net/auth/control_connection.h"
#include "cohort/net/transport/link.h"

namespace cohort::net {

inline constexpr std::size_t kRingBytes = 256_KiB;  // a quarter of a usual L2, so that a piece is still cached when it is read

// The memory a rank announces to its peers before they connect.
Segment make_shm_inbox(int ranks, std::size_t ring_bytes = kRingBytes);

struct ShmPlan {
  Rank me;
  Epoch epoch;
  Segment own;                 // from make_shm_inbox()
  std::vector<Segment> peers;  // their inboxes, opened; by rank, ours empty
  // Control connections by rank (ours empty): they carry goodbyes and aborts, and an end without a goodbye is a death, detected at once.
  // An empty vector: all ranks are threads of one process, which report through shared memory.
  std::vector<std::optional<ControlConnection>> connections;
  std::vector<Fd> wake_pipes;  // by rank, empty when nobody sleeps in poll(2): their pipes (wake_pipe.h), opened
};
std::unique_ptr<PeerLinks> shm_peer_links(ShmPlan plan);

// Ranks as threads of this process, over real rings.
std::vector<std::unique_ptr<PeerLinks>> shm_world(int ranks, Epoch epoch = {}, std::size_t ring_bytes = kRingBytes);

}  // namespace cohort::net
