// Staged shared memory: for buffers anywhere. Per chunk, rank r copies the slices the others reduce onto its stage; every rank reduces its
// own slice (own part from the buffer, theirs from the stages) into its buffer and onto its own stage, and copies the other slices out.
// Bytes per rank and byte of data: about 2 read, 2 written. One synchronisation per chunk, and one.
// Up to kEagerBytes every rank stages everything and sums everything after a single synchronisation.
#include "cohort/collective/operations/staged.h"

#include <algorithm>
#include <cstring>

#include "cohort/collective/operations/all_reduce.h"
#include "cohort/collective/plans/plan.h"
#include "cohort/net/shm/stream_copy.h"

namespace cohort::collective {
namespace {

constexpr std::size_t kChunkBytes = kStageBytes;  // around the cache 512 KiB took 7 % longer for 1 MiB on 2 ranks, 128 up to 30

std::size_t chunk_count(Piece data) { return kChunkBytes / size_of(data.dtype); }

struct Chunk {
  Piece data;
  std::size_t grain;
  int ranks;
  Range slice(int rank) const { return part_of(data.count, ranks, rank, grain); }
  Piece at(Range range) const { return data.part(range.first, range.size()); }
  std::size_t offset(Range range) const { return range.first * size_of(data.dtype); }
};

Chunk chunk_of(const Peers& peers, Piece data, std::size_t index) {
  const std::size_t each = chunk_count(data);
  const std::size_t first = std::min(data.count, index * each);
  return {data.part(first, std::min(each, data.count - first)), kCacheLine / size_of(data.dtype), peers.size()};
}

void fill(Peers& peers, const Chunk& chunk, std::byte* stage) {
  for (int r = 0; r < peers.size(); ++r) {
    const Range slice = chunk.slice(r);
    if (r != peers.rank() && slice.size() > 0)
      peers.staging_copy().put(stage + chunk.offset(slice), static_cast<const std::byte*>(chunk.at(slice).data), chunk.at(slice).bytes());
  }
}

void reduce_own(Peers& peers, const Chunk& chunk, const Reduction& how) {
  const SharedControlBlock& control_block = *peers.control_block();
  const Range slice = chunk.slice(peers.rank());
  std::vector<const void*> sources;
  for (int r = 0; r < peers.size(); ++r)
    sources.push_back(r == peers.rank() ? chunk.at(slice).data : control_block.stage(r) + chunk.offset(slice));
  const Piece mine = chunk.at(slice);
  void* const target = mine.data;
  kernels().reduce(how, sources, {&target, 1}, slice.size());
  peers.staging_copy().put(control_block.stage(peers.rank()) + chunk.offset(slice), static_cast<const std::byte*>(mine.data), mine.bytes());
}

void copy_out(const Peers& peers, const Chunk& chunk) {
  for (int r = 0; r < peers.size(); ++r) {
    const Range slice = chunk.slice(r);
    if (r != peers.rank() && slice.size() > 0)
      net::fetch_copy(static_cast<std::byte*>(chunk.at(slice).data), peers.control_block()->stage(r, 1) + chunk.offset(slice),
                      chunk.at(slice).bytes());
  }
}

std::optional<Seconds> cost(const Shape& shape, const Calibration& k) {
  if (!shape.shared) return std::nullopt;
  const double bytes = static_cast<double>(shape.bytes);
  const double n = shape.ranks;
  const double steps = shape.bytes <= kEagerBytes ? 1 : 2 + bytes / static_cast<double>(kChunkBytes);
  const double written = shape.bytes <= kEagerBytes ? bytes * (1 + n) : bytes * (2 * (n - 1) / n + 2 / n);  // per rank
  return steps * sync_cost(shape, k) + Seconds{crowding(shape) * written / k.stage_rate};
}

void run(Peers& peers, Piece data, const Reduction& how, StartMode start_mode) {
  if (peers.control_block() == nullptr)
    throw_failure(Kind::usage, "staged needs ranks that share memory; this job's links are {}", peers.links().transport());
  if (start_mode != StartMode::staged) {
    stage_first(peers, data);
    peers.sync();
  }
  if (data.bytes() <= kEagerBytes) return sum_eager(peers, data, how);
  const std::size_t chunks = (data.count + chunk_count(data) - 1) / chunk_count(data);
  for (std::size_t i = 0; i < chunks; ++i) {
    const Chunk chunk = chunk_of(peers, data, i);
    reduce_own(peers, chunk, how);
    if (i + 1 < chunks) fill(peers, chunk_of(peers, data, i + 1), peers.control_block()->next_stage());
    peers.sync();  // results of i and inputs of i + 1 are there
    copy_out(peers, chunk);
  }
}

}  // namespace

void stage_first(Peers& peers, Piece data) {
  SharedControlBlock& control_block = *peers.control_block();
  if (data.bytes() > kEagerBytes) return fill(peers, chunk_of(peers, data, 0), control_block.next_stage());
  auto& line = control_block.next_line();
  if (data.count > 0) std::memcpy(data.bytes() <= sizeof line.data ? line.data : control_block.next_stage(), data.data, data.bytes());
}

void sum_eager(Peers& peers, Piece data, const Reduction& how) {
  constexpr int kFew = 16;  // no allocation on the way of a 4-byte all-reduce
  const SharedControlBlock& control_block = *peers.control_block();
  std::array<const void*, kFew> few;
  std::vector<const void*> many(static_cast<std::size_t>(peers.size() > kFew ? peers.size() : 0));
  const void** const sources = many.empty() ? few.data() : many.data();
  for (int r = 0; r < peers.size(); ++r) {
    const void* const theirs = data.bytes() <= sizeof(SharedControlBlock::Line::data) ? control_block.line(r).data : control_block.stage(r);
    sources[r] = r == peers.rank() ? data.data : theirs;
  }
  void* const target = data.data;
  kernels().reduce(how, {sources, static_cast<std::size_t>(peers.size())}, {&target, 1}, data.count);
}

extern const AllReduce row_staged{.name = "staged",
                                  .about = "shared memory, any buffers, through stages",
                                  .canonical = true,
                                  .cost = cost,
                                  .run = run,
                                  .needs = "memory that all ranks share"};

}  // namespace cohort::collective
