#include "cohort/collective/operations/collectives.h"

#include <algorithm>
#include <cstring>

namespace cohort::collective {

Layout Layout::of(std::span<const std::size_t> counts) {
  Layout layout;
  for (const auto count : counts) {
    layout.counts.push_back(count);
    layout.offsets.push_back(layout.total);
    layout.total += count;
  }
  return layout;
}

Layout Layout::even(int ranks, std::size_t each) { return of(std::vector<std::size_t>(static_cast<std::size_t>(ranks), each)); }

std::size_t Layout::largest() const { return counts.empty() ? 0 : *std::max_element(counts.begin(), counts.end()); }

void copy_piece(Piece from, Piece to) {
  if (from.count > 0 && from.data != to.data) std::memmove(to.data, from.data, from.bytes());
}

void CountMatrix::check() const {
  for (int from = 0; from < ranks; ++from)
    for (int to = 0; to < ranks; ++to)
      if (sends(from, to) != expects(to, from))
        throw_failure(Kind::usage, "all_to_all: rank {} sends {} elements to rank {}, which expects {}; nothing was moved", from,
                      sends(from, to), to, expects(to, from));
}

}  // namespace cohort::collective
