// Collectives over links: every rank sends to every other directly, which moves the fewest bytes; large broadcasts are scattered first.
#include <algorithm>
#include <cstring>

#include "cohort/collective/operations/collectives.h"
#include "cohort/collective/plans/plan.h"

namespace cohort::collective::linked {
namespace {

constexpr std::size_t kSliceBytes = 1_MiB;     // scratch per peer in a reduce-scatter
constexpr std::size_t kScatterBytes = 64_KiB;  // broadcasts from here on: scatter, then all-gather

ConstBytes readable(Piece piece) { return {static_cast<const std::byte*>(piece.data), piece.bytes()}; }
Bytes writable(Piece piece) { return {static_cast<std::byte*>(piece.data), piece.bytes()}; }

// Starts operations by start() and waits for all of them. After a failure, peers get the cause before the rest is given up.
template <class Start>
void run_all(Peers& peers, Start start) {
  std::vector<net::Pending> pending;
  peers.or_abort([&] {
    start(pending);
    for (auto& one : pending) peers.finish(one);
  });
}

// send(r) and recv(r) are the pieces for and from rank r; empty ones are not sent. Each rank starts with its right neighbour.
template <class Send, class Recv>
void exchange_all(Peers& peers, Send send, Recv recv) {
  run_all(peers, [&](std::vector<net::Pending>& pending) {
    for (int i = 1; i < peers.size(); ++i) {
      const int from = (peers.rank() + peers.size() - i) % peers.size();
      if (const Piece in = recv(from); in.count > 0) pending.push_back(peers.recv(from, writable(in)));
    }
    for (int i = 1; i < peers.size(); ++i) {
      const int to = (peers.rank() + i) % peers.size();
      if (const Piece out = send(to); out.count > 0) pending.push_back(peers.send(to, readable(out)));
    }
  });
}

Piece none(Piece like) { return like.part(0, 0); }

// Every rank's slice of block r goes to rank r, which reduces in rank order.
void scatter_reduce(Peers& peers, Piece in, Piece out, const Layout& layout, const Reduction& how) {
  const auto n = static_cast<std::size_t>(peers.size());
  const std::size_t each = std::max<std::size_t>(1, kSliceBytes / size_of(in.dtype));
  std::vector<std::vector<std::byte>> scratch(n, std::vector<std::byte>(std::min(each, out.count) * size_of(in.dtype)));
  const auto slice = [&](Piece block, std::size_t i) {
    const std::size_t first = std::min(block.count, i * each);
    return block.part(first, std::min(each, block.count - first));
  };
  std::vector<const void*> sources(n);
  for (std::size_t i = 0; i * each < layout.largest(); ++i) {
    const Piece mine = slice(layout.part(in, peers.rank()), i);
    exchange_all(
        peers, [&](int r) { return slice(layout.part(in, r), i); },
        [&](int r) {
          return Piece{scratch[static_cast<std::size_t>(r)].data(), mine.count, in.dtype, in.device};
        });
    for (std::size_t r = 0; r < n; ++r) sources[r] = static_cast<int>(r) == peers.rank() ? mine.data : scratch[r].data();
    void* const target = slice(out, i).data;
    if (mine.count > 0) kernels().reduce(how, sources, {&target, 1}, mine.count);
  }
}

void gather_all(Peers& peers, Piece in, Piece out, const Layout& layout) {
  copy_piece(in, layout.part(out, peers.rank()));
  const Piece mine = layout.part(out, peers.rank());
  exchange_all(
      peers, [&](int) { return mine; }, [&](int r) { return layout.part(out, r); });
}

void gather_to(Peers& peers, Piece in, Piece out, int root, const Layout& layout) {
  if (peers.rank() == root) copy_piece(in, layout.part(out, root));
  exchange_all(
      peers, [&](int r) { return r == root ? in : none(in); },
      [&](int r) { return peers.rank() == root ? layout.part(out, r) : none(in); });
}

void scatter_from(Peers& peers, Piece in, Piece out, int root, const Layout& layout) {
  if (peers.rank() == root) copy_piece(layout.part(in, root), out);
  exchange_all(
      peers, [&](int r) { return peers.rank() == root ? layout.part(in, r) : none(out); },
      [&](int r) { return r == root ? out : none(out); });
}

Layout near_even(const Peers& peers, std::size_t count) {
  std::vector<std::size_t> counts;
  for (int r = 0; r < peers.size(); ++r) counts.push_back(part_of(count, peers.size(), r).size());
  return Layout::of(counts);
}

}  // namespace

void barrier(Peers& peers) { peers.agree(); }

void reduce_scatter(Peers& peers, Piece in, Piece out, const Layout& layout, const Reduction& how) {
  peers.agree();
  scatter_reduce(peers, in, out, layout, how);
}

void all_gather(Peers& peers, Piece in, Piece out, const Layout& layout) {
  peers.agree();
  gather_all(peers, in, out, layout);
}

void broadcast(Peers& peers, Piece data, int root) {
  peers.agree();
  if (data.bytes() < kScatterBytes || peers.size() == 2) {  // binomial tree, ranks counted from the root
    const int me = (peers.rank() - root + peers.size()) % peers.size();
    const auto absolute = [&](int r) { return (r + root) % peers.size(); };
    int width = 1;
    while (width < peers.size() && me % (2 * width) == 0) width *= 2;
    if (data.count > 0 && me != 0) {
      auto incoming = peers.recv(absolute(me - width), writable(data));
      peers.finish(incoming);
    }
    return run_all(peers, [&](std::vector<net::Pending>& sends) {
      for (width /= 2; width >= 1 && data.count > 0; width /= 2)
        if (me + width < peers.size()) sends.push_back(peers.send(absolute(me + width), readable(data)));
    });
  }
  const Layout layout = near_even(peers, data.count);
  const Piece mine = layout.part(data, peers.rank());
  scatter_from(peers, data, mine, root, layout);
  gather_all(peers, mine, data, layout);
}

void reduce(Peers& peers, Piece in, Piece out, int root, const Reduction& how) {
  peers.agree();
  const Layout layout = near_even(peers, in.count);
  std::vector<std::byte> own(layout.part(in, peers.rank()).bytes());
  const Piece mine{own.data(), layout.counts[static_cast<std::size_t>(peers.rank())], in.dtype, in.device};
  scatter_reduce(peers, in, mine, layout, how);
  gather_to(peers, mine, out, root, layout);
}

void gather(Peers& peers, Piece in, Piece out, int root, const Layout& layout) {
  peers.agree();
  gather_to(peers, in, out, root, layout);
}

void scatter(Peers& peers, Piece in, Piece out, int root, const Layout& layout) {
  peers.agree();
  scatter_from(peers, in, out, root, layout);
}

void all_to_all(Peers& peers, Piece in, Piece out, const Layout& sends, const Layout& recvs) {
  peers.agree();
  const int n = peers.size();
  CountMatrix matrix{n, std::vector<std::uint64_t>(static_cast<std::size_t>(2 * n * n))};
  std::vector<std::uint64_t> row(sends.counts.begin(), sends.counts.end());
  row.insert(row.end(), recvs.counts.begin(), recvs.counts.end());
  const Piece whole{matrix.cells.data(), matrix.cells.size(), Dtype::i64, Device::cpu};
  gather_all(peers, {row.data(), row.size(), Dtype::i64, Device::cpu}, whole, Layout::even(n, row.size()));
  matrix.check();
  copy_piece(sends.part(in, peers.rank()), recvs.part(out, peers.rank()));
  exchange_all(
      peers, [&](int r) { return sends.part(in, r); }, [&](int r) { return recvs.part(out, r); });
}

}  // namespace cohort::collective::linked
