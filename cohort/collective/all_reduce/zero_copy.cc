// Zero-copy shared memory: every rank's buffer lies in its Region, mapped by all. The buffer is cut into blocks; a rank takes the next one
// of its own, later of others', reads it from all P buffers, reduces in the canonical bracket and writes the result into all P. Bytes that
// must move: 2PN (each buffer read once and written once), shared by all ranks. Synchronisation: one step before, one word after.
#include <algorithm>

#include "cohort/collective/operations/all_reduce.h"

namespace cohort::collective {
namespace {

// Blocks: enough to even out ranks of different speed, large enough that taking one (some 100 ns) does not count.
constexpr std::size_t kSmallestBlock = 16_KiB;
constexpr std::size_t kLargestBlock = 256_KiB;
constexpr std::size_t kBlocksPerRank = 8;

std::size_t block_bytes(std::size_t bytes, int ranks) {
  const auto wanted = bytes / (kBlocksPerRank * static_cast<std::size_t>(ranks));
  return round_up(std::clamp(wanted, kSmallestBlock, kLargestBlock), kPageBytes);
}

std::optional<Seconds> cost(const Shape& shape, const Calibration& k) {
  if (!shape.in_place) return std::nullopt;
  return 2 * sync_cost(shape, k) + Seconds{2.0 * shape.ranks * static_cast<double>(shape.bytes) / k.update_rate};
}

void run(Peers& peers, Piece data, const Reduction& how, StartMode start_mode) {
  if (start_mode != StartMode::in_place)
    throw_failure(Kind::usage, "zero_copy needs every rank's buffer from Communicator::allocate(); use staged, or allocate");
  SharedControlBlock& control_block = *peers.control_block();
  const std::size_t bytes = data.bytes();
  const std::size_t each = block_bytes(bytes, peers.size());
  const int blocks = static_cast<int>((bytes + each - 1) / each);
  int block = control_block.claim(blocks);
  if (block >= 0) {  // only now: while we hold a block no rank can leave and free its memory
    const auto n = static_cast<std::size_t>(peers.size());
    std::vector<std::byte*> base(n);
    std::vector<const void*> sources(n);
    std::vector<void*> targets(n);
    for (std::size_t r = 0; r < n; ++r) base[r] = peers.buffer_of(static_cast<int>(r));
    for (; block >= 0; block = control_block.claim(blocks)) {
      const std::size_t first = static_cast<std::size_t>(block) * each;
      for (std::size_t r = 0; r < n; ++r) sources[r] = targets[r] = base[r] + first;
      kernels().reduce(how, sources, targets, std::min(each, bytes - first) / size_of(data.dtype));
      control_block.complete(blocks);
    }
  }
  peers.await_work(blocks);
}

}  // namespace

extern const AllReduce row_zero_copy{.name = "zero_copy",
                                     .about = "shared memory, buffers from allocate(), reduced in place",
                                     .canonical = true,
                                     .cost = cost,
                                     .run = run,
                                     .needs = "memory that all ranks share, and buffers from allocate()"};

}  // namespace cohort::collective
