#include <cmath>
#include <numeric>

#include "cohort/base/error.h"
#include "cohort/queue/signature.h"

namespace cohort::queue {

namespace {

// Everything check() knows while it looks at one operation; refuse() ends it.
struct Inspection {
  const Operation& operation;
  Rank me;
  std::size_t ranks;

  template <class... Args>
  void require(bool holds, fmt::format_string<Args...> format, Args&&... args) const {
    if (holds) return;
    throw_failure(Kind::usage, "{} '{}' on rank {}: {}", name_of(operation.collective), operation.name, me.value,
                  fmt::format(format, std::forward<Args>(args)...));
  }

  bool collective_is(std::initializer_list<Collective> collectives) const {
    for (const Collective collective : collectives) {
      if (operation.collective == collective) return true;
    }
    return false;
  }

  void whole() const {
    using enum Collective;
    require(!collective_is({split, send, recv}), "this collective is not asynchronous; call the communicator");
    if (collective_is({barrier})) return require(operation.parts.empty(), "a barrier carries no data");
    require(!operation.parts.empty(), "an operation needs at least one part");
    if (collective_is({broadcast, reduce, gather, scatter})) {
      require(operation.root.value >= 0 && operation.root.value < static_cast<int>(ranks), "root rank {} is not one of the {} ranks",
              operation.root.value, ranks);
    }
    require(std::isfinite(operation.prescale) && std::isfinite(operation.postscale), "scales must be finite, not {} and {}",
            operation.prescale, operation.postscale);
    if (!collective_is({all_reduce, reduce_scatter, reduce})) {
      require(operation.prescale == 1.0 && operation.postscale == 1.0, "only reductions scale; leave prescale and postscale at 1");
    }
    require(!operation.adasum || (collective_is({all_reduce}) && operation.op == Op::sum),
            "Adasum is a way to all_reduce, in place of an op");
    require(operation.codec.empty() == !operation.reduce, "a codec and what reduces by it come together");
    require(!operation.reduce || (collective_is({all_reduce}) && !operation.adasum && operation.prescale == 1.0 &&
                                  operation.postscale == 1.0 && (operation.op == Op::sum || operation.op == Op::average)),
            "codec {} is for sums and averages without scales", operation.codec);
    require(!operation.allocate || collective_is({all_gather, all_to_all}),
            "only all_gather and all_to_all ask for memory; give out pieces");
  }

  void shape(const Part& part) const {
    if (part.shape.empty()) return;
    const Piece& piece = operation.collective == Collective::scatter ? part.out : part.in;
    std::size_t count = 1;
    for (const auto length : part.shape) {
      require(length >= 0, "shape {} has a negative length", shape_text(part.shape));
      count *= static_cast<std::size_t>(length);
    }
    require(count == piece.count, "shape {} does not hold {} elements", shape_text(part.shape), piece.count);
  }

  // `counts`, or the even split when there are none, must fill `piece` exactly.
  void blocks(const Piece& piece, const std::vector<std::size_t>& counts, std::string_view what) const {
    if (counts.empty()) {
      return require(piece.count % ranks == 0, "{} of {} elements does not split evenly over {} ranks; give counts", what, piece.count,
                     ranks);
    }
    require(counts.size() == ranks, "{} counts for {} ranks", counts.size(), ranks);
    const std::size_t sum = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
    require(sum == piece.count, "the counts of {} add up to {}, not to its {} elements", what, sum, piece.count);
  }

  void one_block(const Piece& piece, const std::vector<std::size_t>& counts, const Piece& all, std::string_view what) const {
    const std::size_t mine = counts.empty() ? all.count / ranks : counts[static_cast<std::size_t>(me.value)];
    require(piece.count == mine, "{} has {} elements where this rank's block has {}", what, piece.count, mine);
  }

  void part(const Part& p) const {
    using enum Collective;
    const bool root = operation.root == me;
    const bool in_place = p.out.data == nullptr;
    shape(p);
    if (collective_is({all_reduce, reduce_scatter, reduce})) {
      require(reducible(p.in.dtype, operation.op), "{} cannot be reduced by {}", name_of(p.in.dtype), name_of(operation.op));
      require(!operation.adasum || p.in.dtype <= Dtype::f64, "Adasum combines real numbers, not {}", name_of(p.in.dtype));
      require(!operation.reduce || ((in_place || p.out.data == p.in.data) && p.in.dtype == Dtype::f32),
              "codec {} reduces f32 in place, not {}", operation.codec, name_of(p.in.dtype));
    }
    if (!in_place)
      require(p.in.dtype == p.out.dtype || p.in.data == nullptr, "in is {} and out is {}", name_of(p.in.dtype), name_of(p.out.dtype));
    switch (operation.collective) {
      case all_reduce:
      case broadcast:
        require(in_place || p.in.count == p.out.count, "in has {} elements, out has {}", p.in.count, p.out.count);
        require(in_place || (p.in.device.kind == DeviceKind::cpu && p.out.device.kind == DeviceKind::cpu),
                "memory of a GPU is worked on in place");
        break;
      case reduce_scatter: blocks(p.in, p.counts, "in"), one_block(p.out, p.counts, p.in, "out"); break;
      case all_gather:
        if (operation.allocate) break;
        blocks(p.out, p.counts, "out"), one_block(p.in, p.counts, p.out, "in");
        break;
      case reduce: require(!root || p.in.count == p.out.count, "in has {} elements, out has {}", p.in.count, p.out.count); break;
      case gather:
        if (root) blocks(p.out, p.counts, "out"), one_block(p.in, p.counts, p.out, "in");
        break;
      case scatter:
        if (root) blocks(p.in, p.counts, "in"), one_block(p.out, p.counts, p.in, "out");
        break;
      case all_to_all:
        blocks(p.in, p.counts, "in");
        if (!operation.allocate) blocks(p.out, p.recv_counts, "out");
        break;
      default: break;
    }
  }
};

}  // namespace

void check(const Operation& operation, Rank me, int ranks) {
  const Inspection inspection{operation, me, static_cast<std::size_t>(ranks)};
  inspection.whole();
  for (const Part& part : operation.parts) inspection.part(part);
}

}  // namespace cohort::queue
