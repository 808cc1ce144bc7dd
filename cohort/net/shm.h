// Links through shared memory, between the processes of one host (or threads of one process).
// Each rank owns an inbox: a Segment with one ring per peer (written by that peer, read by the owner) and one doorbell to sleep on.
// A message is a 16-byte header {channel, number, length} and its payload, streamed through the ring in pieces, so any size flows.
// Rings are sparse: one that is never used costs no memory. Peers write this memory, so what is read from it is checked: nonsense
// fails that link with Kind::corrupt and nothing else.
// Owner: whoever holds the Mesh. Threads: any; one monitor thread per mesh notices peers that leave, abort or die.
// Failure: see link.h; Kind::corrupt or usage when the inboxes do not fit each other.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "cohort/base/segment.h"
#include "cohort/net/link.h"
#include "cohort/net/wire.h"

namespace cohort::net {

inline constexpr std::size_t kRingBytes = 256_KiB;  // a quarter of a usual L2, so that a piece is still cached when it is read

// The memory a rank announces to its peers before the mesh is made.
Segment make_shm_inbox(int ranks, std::size_t ring_bytes = kRingBytes);

struct ShmPlan {
  Rank me;
  Epoch epoch;
  Segment own;                 // from make_shm_inbox()
  std::vector<Segment> peers;  // their inboxes, opened; by rank, ours empty
  // Control connections by rank (ours empty): goodbyes and aborts travel there, and an end without goodbye is a death, noticed at
  // once. An empty vector: all ranks are threads of one process and their destructors tell.
  std::vector<std::optional<Wire>> wires;
  std::vector<Fd> bells;  // by rank, empty when nobody sleeps in poll(2): their pipes (bell_pipe.h), opened
};
std::unique_ptr<Mesh> shm_mesh(ShmPlan plan);

// Ranks as threads of this process, over real rings.
std::vector<std::unique_ptr<Mesh>> shm_meshes(int ranks, Epoch epoch = {}, std::size_t ring_bytes = kRingBytes);

}  // namespace cohort::net
