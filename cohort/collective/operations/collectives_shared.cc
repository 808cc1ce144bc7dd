// Collectives over the SharedControlBlock. All have one shape: rounds of "fill our stage, every rank posts, read the others' stages".
// Where every buffer came from allocate() the large ones skip the stages and read the peers' memory in place.
#include <algorithm>
#include <cstring>

#include "cohort/collective/operations/collectives.h"
#include "cohort/net/shm/stream_copy.h"

namespace cohort::collective::shared {
namespace {

// Below this the second synchronisation that reading in place needs is assumed to cost more than a copy; not tuned.
constexpr std::size_t kInPlaceBytes = 64_KiB;

// fill(round, stage), drain(round). The first round is posted with the opening.
template <class Fill, class Drain>
void rounds(Peers& peers, std::size_t count, Fill fill, Drain drain) {
  const auto start_mode = peers.open(std::nullopt, [&](std::byte* stage) {
    if (count > 0) fill(std::size_t{0}, stage);
  });
  static_cast<void>(start_mode);
  for (std::size_t i = 0; i < count; ++i) {
    if (i > 0) {
      fill(i, peers.control_block()->next_stage());
      peers.sync();
    }
    drain(i);
  }
}

// Rounds needed when `largest` elements share a stage `ways` ways, and what one round takes.
struct Cut {
  std::size_t each, count;
  Cut(std::size_t largest, Dtype dtype, int ways) {
    each = kStageBytes / static_cast<std::size_t>(ways) / kCacheLine * kCacheLine / size_of(dtype);
    count = (largest + each - 1) / each;
  }
  Piece of(Piece whole, std::size_t round) const {
    const std::size_t first = std::min(whole.count, round * each);
    return whole.part(first, std::min(each, whole.count - first));
  }
};

void put(Peers& peers, Piece from, std::byte* to) { peers.staging_copy().put(to, static_cast<const std::byte*>(from.data), from.bytes()); }
void take(const std::byte* from, Piece to) { net::fetch_copy(static_cast<std::byte*>(to.data), from, to.bytes()); }

// In place when this rank's buffer allows it and it is worth it; all ranks see what the others offer.
std::optional<RegionAddress> offer(const Peers& peers, Piece data) {
  if (data.bytes() < kInPlaceBytes) return std::nullopt;
  return peers.arena()->locate(data.data, data.bytes());
}

void reduce_to(const Reduction& how, std::vector<const void*>& sources, Piece to) {
  void* const target = to.data;
  if (to.count > 0) kernels().reduce(how, sources, {&target, 1}, to.count);
}

}  // namespace

void barrier(Peers& peers) {
  peers.open(std::nullopt, [](std::byte*) {});
}

void reduce_scatter(Peers& peers, Piece in, Piece out, const Layout& layout, const Reduction& how) {
  const int n = peers.size();
  std::vector<const void*> sources(static_cast<std::size_t>(n));
  const Cut cut(layout.largest(), in.dtype, n);
  const std::size_t stride = cut.each * size_of(in.dtype);
  const auto fill = [&](std::size_t round, std::byte* stage) {
    for (int r = 0; r < n; ++r)
      if (r != peers.rank()) put(peers, cut.of(layout.part(in, r), round), stage + static_cast<std::size_t>(r) * stride);
  };
  const auto drain = [&](std::size_t round) {
    for (int r = 0; r < n; ++r)
      sources[static_cast<std::size_t>(r)] = r == peers.rank()
                                                 ? cut.of(layout.part(in, r), round).data
                                                 : peers.control_block()->stage(r) + static_cast<std::size_t>(peers.rank()) * stride;
    reduce_to(how, sources, cut.of(out, round));
  };
  switch (peers.open(offer(peers, in), [&](std::byte* stage) { fill(0, stage); })) {
    case StartMode::in_place:
      for (int r = 0; r < n; ++r)
        sources[static_cast<std::size_t>(r)] =
            peers.buffer_of(r) + layout.offsets[static_cast<std::size_t>(peers.rank())] * size_of(in.dtype);
      reduce_to(how, sources, out);
      return peers.sync();  // no rank changes its input before all have read it
    case StartMode::unstaged:
      fill(0, peers.control_block()->next_stage());
      peers.sync();
      break;
    case StartMode::staged: break;
  }
  for (std::size_t i = 0; i < cut.count; ++i) {
    if (i > 0) {
      fill(i, peers.control_block()->next_stage());
      peers.sync();
    }
    drain(i);
  }
}

void all_gather(Peers& peers, Piece in, Piece out, const Layout& layout) {
  const Cut cut(layout.largest(), in.dtype, 1);
  const auto fill = [&](std::size_t round, std::byte* stage) { put(peers, cut.of(in, round), stage); };
  const auto drain = [&](std::size_t round) {
    for (int r = 0; r < peers.size(); ++r)
      if (r != peers.rank()) take(peers.control_block()->stage(r), cut.of(layout.part(out, r), round));
  };
  const bool worth_it = layout.largest() * size_of(in.dtype) >= kInPlaceBytes;  // alike on all ranks, however uneven
  const auto where = worth_it ? peers.arena()->locate(in.data, in.bytes()) : std::nullopt;
  const auto start_mode = peers.open(where, [&](std::byte* stage) { fill(0, stage); });
  copy_piece(in, layout.part(out, peers.rank()));
  if (start_mode == StartMode::in_place) {
    for (int i = 1; i < peers.size(); ++i) {  // each starts with another peer, so that they do not all read the same memory
      const int r = (peers.rank() + i) % peers.size();
      take(peers.buffer_of(r), layout.part(out, r));
    }
    return peers.sync();
  }
  for (std::size_t i = 0; i < cut.count; ++i) {
    if (i > 0 || start_mode == StartMode::unstaged) {
      fill(i, peers.control_block()->next_stage());
      peers.sync();
    }
    drain(i);
  }
}

void broadcast(Peers& peers, Piece data, int root) {
  const Cut cut(data.count, data.dtype, 1);
  const bool is_root = peers.rank() == root;
  rounds(
      peers, cut.count,
      [&](std::size_t round, std::byte* stage) {
        if (is_root) put(peers, cut.of(data, round), stage);
      },
      [&](std::size_t round) {
        if (!is_root) take(peers.control_block()->stage(root), cut.of(data, round));
      });
}

void reduce(Peers& peers, Piece in, Piece out, int root, const Reduction& how) {
  const Cut cut(in.count, in.dtype, 1);
  std::vector<const void*> sources(static_cast<std::size_t>(peers.size()));
  rounds(
      peers, cut.count,
      [&](std::size_t round, std::byte* stage) {
        if (peers.rank() != root) put(peers, cut.of(in, round), stage);
      },
      [&](std::size_t round) {
        if (peers.rank() != root) return;
        for (int r = 0; r < peers.size(); ++r)
          sources[static_cast<std::size_t>(r)] = r == root ? cut.of(in, round).data : peers.control_block()->stage(r);
        reduce_to(how, sources, cut.of(out, round));
      });
}

void gather(Peers& peers, Piece in, Piece out, int root, const Layout& layout) {
  const Cut cut(layout.largest(), in.dtype, 1);
  rounds(
      peers, cut.count, [&](std::size_t round, std::byte* stage) { put(peers, cut.of(in, round), stage); },
      [&](std::size_t round) {
        if (peers.rank() != root) return;
        for (int r = 0; r < peers.size(); ++r)
          if (r != root) take(peers.control_block()->stage(r), cut.of(layout.part(out, r), round));
      });
  if (peers.rank() == root) copy_piece(in, layout.part(out, root));
}

void scatter(Peers& peers, Piece in, Piece out, int root, const Layout& layout) {
  const Cut cut(layout.largest(), out.dtype, peers.size());
  const std::size_t stride = cut.each * size_of(out.dtype);
  rounds(
      peers, cut.count,
      [&](std::size_t round, std::byte* stage) {
        if (peers.rank() != root) return;
        for (int r = 0; r < peers.size(); ++r)
          if (r != root) put(peers, cut.of(layout.part(in, r), round), stage + static_cast<std::size_t>(r) * stride);
      },
      [&](std::size_t round) {
        if (peers.rank() != root)
          take(peers.control_block()->stage(root) + static_cast<std::size_t>(peers.rank()) * stride, cut.of(out, round));
      });
  if (peers.rank() == root) copy_piece(layout.part(in, root), out);
}

void all_to_all(Peers& peers, Piece in, Piece out, const Layout& sends, const Layout& recvs) {
  const int n = peers.size();
  CountMatrix matrix{n, std::vector<std::uint64_t>(static_cast<std::size_t>(2 * n * n))};
  std::vector<std::uint64_t> row(sends.counts.begin(), sends.counts.end());
  row.insert(row.end(), recvs.counts.begin(), recvs.counts.end());
  peers.open(std::nullopt, [&](std::byte* stage) { std::memcpy(stage, row.data(), row.size() * 8); });
  for (int r = 0; r < n; ++r)
    std::memcpy(&matrix.cells[static_cast<std::size_t>(r) * row.size()], peers.control_block()->stage(r), row.size() * 8);
  matrix.check();

  std::uint64_t largest = 0;
  for (int from = 0; from < n; ++from)
    for (int to = 0; to < n; ++to) largest = std::max(largest, matrix.sends(from, to));
  const Cut cut(largest, in.dtype, n);
  const std::size_t stride = cut.each * size_of(in.dtype);
  copy_piece(sends.part(in, peers.rank()), recvs.part(out, peers.rank()));
  for (std::size_t i = 0; i < cut.count; ++i) {
    for (int r = 0; r < n; ++r)
      if (r != peers.rank())
        put(peers, cut.of(sends.part(in, r), i), peers.control_block()->next_stage() + static_cast<std::size_t>(r) * stride);
    peers.sync();
    for (int r = 0; r < n; ++r)
      if (r != peers.rank())
        take(peers.control_block()->stage(r) + static_cast<std::size_t>(peers.rank()) * stride, cut.of(recvs.part(out, r), i));
  }
}

}  // namespace cohort::collective::shared
