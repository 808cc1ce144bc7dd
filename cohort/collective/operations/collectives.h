// The collectives beside all-reduce, each once over the SharedControlBlock (ranks that share memory) and once over links.
// Counts are settled by the caller: counts[r] elements belong to rank r, offsets[r] is where they start.
// Both ways give the same bits: reductions follow the canonical bracket.
// Threads: the one that runs the collective. Failure: as Peers.
#pragma once
#include <span>
#include <vector>

#include "cohort/collective/kernels/kernels.h"
#include "cohort/collective/peers/peers.h"

namespace cohort::collective {

struct Layout {
  std::vector<std::size_t> counts, offsets;
  std::size_t total = 0;
  static Layout of(std::span<const std::size_t> counts);
  static Layout even(int ranks, std::size_t each);
  Piece part(Piece whole, int rank) const {
    const auto r = static_cast<std::size_t>(rank);
    return whole.part(offsets[r], counts[r]);
  }
  std::size_t largest() const;
};

void copy_piece(Piece from, Piece to);  // `from.count` elements; nothing when both are the same memory

// How an all-to-all's counts look from every rank, checked alike everywhere.
struct CountMatrix {
  int ranks = 0;
  std::vector<std::uint64_t> cells;  // [rank][send counts .., recv counts ..]
  std::uint64_t sends(int from, int to) const { return cells[index(from) * 2 * index(ranks) + index(to)]; }
  std::uint64_t expects(int to, int from) const { return cells[(index(to) * 2 + 1) * index(ranks) + index(from)]; }
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  void check() const;  // Kind::usage naming the first pair that differs
};

namespace shared {  // over the SharedControlBlock; each opens the operation itself
void reduce_scatter(Peers& peers, Piece in, Piece out, const Layout& layout, const Reduction& how);
void all_gather(Peers& peers, Piece in, Piece out, const Layout& layout);
void broadcast(Peers& peers, Piece data, int root);
void reduce(Peers& peers, Piece in, Piece out, int root, const Reduction& how);
void gather(Peers& peers, Piece in, Piece out, int root, const Layout& layout);
void scatter(Peers& peers, Piece in, Piece out, int root, const Layout& layout);
void all_to_all(Peers& peers, Piece in, Piece out, const Layout& sends, const Layout& recvs);
void barrier(Peers& peers);
}  // namespace shared

namespace linked {  // over links; agree() comes first
void reduce_scatter(Peers& peers, Piece in, Piece out, const Layout& layout, const Reduction& how);
void all_gather(Peers& peers, Piece in, Piece out, const Layout& layout);
void broadcast(Peers& peers, Piece data, int root);
void reduce(Peers& peers, Piece in, Piece out, int root, const Reduction& how);
void gather(Peers& peers, Piece in, Piece out, int root, const Layout& layout);
void scatter(Peers& peers, Piece in, Piece out, int root, const Layout& layout);
void all_to_all(Peers& peers, Piece in, Piece out, const Layout& sends, const Layout& recvs);
void barrier(Peers& peers);
}  // namespace linked

}  // namespace cohort::collective
