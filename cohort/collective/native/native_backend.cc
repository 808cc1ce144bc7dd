#include "cohort/collective/native/native_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "cohort/base/trace.h"
#include "cohort/collective/operations/selector.h"
#include "cohort/collective/operations/staged.h"
#include "cohort/cuda/runtime.h"

namespace cohort::collective {
namespace {

bool shares_with_anybody(const net::PeerLinks& links) {
  if (links.shares_memory()) return true;
  for (Rank r{0}; r.value < links.size(); ++r.value)
    if (r != links.rank() && links.host(r) == links.host(links.rank())) return true;
  return false;
}

bool lasting(Kind kind) { return kind != Kind::usage; }

void need(bool ok, Collective collective, std::string_view why) {
  if (!ok) throw_failure(Kind::usage, "{}: {}", name_of(collective), why);
}

}  // namespace

struct NativeBackend::Busy {
  std::atomic_flag& flag;
  Busy(std::atomic_flag& f, Collective collective) : flag(f) {
    need(!flag.test_and_set(std::memory_order_acquire), collective,
         "another thread is inside a collective of this communicator; give each thread its own by split()");
  }
  ~Busy() { flag.clear(std::memory_order_release); }
};

NativeBackend::NativeBackend(std::shared_ptr<net::PeerLinks> links, std::shared_ptr<Arena> arena, std::shared_ptr<MovedCounters> counters,
                             std::shared_ptr<SharedObserver> observer, std::vector<Rank> members, int me, std::uint32_t channel,
                             Options options, const Calibration& calibration, int cores, BackendOptions backend_options)
    : peers_(std::move(links), std::move(arena), std::move(members), me, channel),
      counters_(std::move(counters)),
      observer_(std::move(observer)),
      options_(std::move(options)),
      calibration_(calibration),
      cores_(cores),
      backend_options_(std::move(backend_options)) {
  if (!options_.algorithm.empty()) all_reduce_named(options_.algorithm);
}

void NativeBackend::connect(Deadline deadline) {
  peers_.share_control_block(SpinPolicy::for_ranks(peers_.size()), options_.warn_after, deadline);
  if (backend_options_.name != "native") attach_backend(deadline);
}

template <class Body>
void NativeBackend::collective(Fingerprint print, const Call& call, Body body) {
  const Busy busy(busy_, print.collective);
  print.number = ++number_;
  stream_ = call.stream;
  complete_fingerprint(print, call.name, call.algorithm);
  try {
    peers_.begin(print, call.deadline, options_.timeout);
    const Span span{name_of(print.collective), call.name};
    body();
  } catch (const Failure& failure) {
    if (!lasting(failure.kind())) throw;
    Error error{failure.kind(), fmt::format("{} #{} on rank {}: {}", print.text(), print.number, peers_.rank(), failure.what()),
                failure.error().rank};
    peers_.fail(failure.error());
    peers_.links().abort(error);  // ranks that wait for us get the cause, not just that we left
    throw Failure{std::move(error)};
  }
}

Region NativeBackend::allocate(std::size_t bytes, Device device) {
  if (device.kind != DeviceKind::cpu) {
    auto memory = cuda::allocate(bytes, device);
    void* const data = memory.get();
    return Region{std::move(memory), data, bytes};
  }
  if (shares_with_anybody(peers_.links())) return peers_.arena()->allocate(bytes);
  auto pages = huge_pages(bytes);  // no peer can read it in place, but the kernel copies it
  void* const data = pages.get();
  return Region{std::move(pages), data, bytes};
}

Reduction NativeBackend::reduction(Dtype dtype, Op op, const Call& call) const {
  if (op == Op::average) return {dtype, Op::sum, call.prescale, call.postscale / size()};
  return {dtype, op, call.prescale, call.postscale};
}

Shape NativeBackend::shape(std::size_t bytes, bool in_place) const {
  const Hosts& hosts = peers_.hosts();
  return {bytes, size(), cores_, peers_.control_block() != nullptr, in_place, hosts.count(), hosts.fewest(), hosts.most(), hosts.nested()};
}

Layout NativeBackend::layout_for(Collective collective, std::span<const std::size_t> counts, std::size_t each) const {
  if (counts.empty()) return Layout::even(size(), each);
  need(counts.size() == static_cast<std::size_t>(size()), collective,
       fmt::format("counts has {} entries for {} ranks", counts.size(), size()));
  return Layout::of(counts);
}

int NativeBackend::member(Rank rank, Collective collective) const {
  need(rank.value >= 0 && rank.value < size(), collective, fmt::format("rank {} is not one of 0 .. {}", rank.value, size() - 1));
  return rank.value;
}

void NativeBackend::all_reduce(std::span<const Piece> pieces, Op op, const Call& call) {
  if (std::ranges::any_of(pieces, [&](const Piece& p) { return through_host(Collective::all_reduce, p, op); }))
    return all_reduce_through_host(pieces, op, call);
  const ObservedOperation observed(*observer_, "all_reduce", call.name, pieces);
  Fingerprint print{.collective = Collective::all_reduce, .dtype = pieces.empty() ? Dtype::u8 : pieces[0].dtype, .op = op};
  print.pieces = static_cast<std::uint8_t>(std::min<std::size_t>(255, pieces.size()));
  print.layout = mix(std::bit_cast<std::uint64_t>(call.prescale), std::bit_cast<std::uint64_t>(call.postscale));
  for (const Piece& piece : pieces) {
    check_piece(piece, print.collective, op);
    need(reducible(piece.dtype, op), print.collective, fmt::format("{} has no {}", name_of(piece.dtype), name_of(op)));
    print.count += piece.count;
    if (pieces.size() > 1) print.layout = mix(print.layout, piece.count << 8 | static_cast<std::uint64_t>(piece.dtype));
  }
  Call asked = call;
  if (asked.algorithm.empty()) asked.algorithm = options_.algorithm;
  if (!asked.algorithm.empty()) all_reduce_named(asked.algorithm);
  collective(print, asked, [&] {
    if (size() > 1 && (peers_.control_block() == nullptr || pieces.size() != 1 || backend_ != nullptr)) agree();
    for (const Piece& piece : pieces) {
      const Reduction how = reduction(piece.dtype, op, call);
      const bool under = asked.algorithm.empty() && delegated(Collective::all_reduce, piece, op, piece.count);
      under ? all_reduce_on_backend(piece, how) : all_reduce_one(piece, how, asked.algorithm);
    }
    const auto n = static_cast<std::size_t>(size());
    for (const Piece& piece : pieces) count(Collective::all_reduce, 2 * piece.count * (n - 1) / n, piece.dtype);
  });
}

Moved NativeBackend::moved(Collective collective) const {
  const auto& row = counters_->rows[static_cast<std::size_t>(collective)];
  return {row.calls.load(std::memory_order_relaxed), row.elements.load(std::memory_order_relaxed),
          row.bytes.load(std::memory_order_relaxed)};
}

void NativeBackend::agree() { peers_.control_block() != nullptr ? shared::barrier(peers_) : linked::barrier(peers_); }

void NativeBackend::all_reduce_one(Piece data, const Reduction& how, std::string_view algorithm) {
  if (size() == 1) {
    const void* const source = data.data;
    void* const target = data.data;
    if (how.pre != 1.0 || how.post != 1.0) kernels().reduce(how, {&source, 1}, {&target, 1}, data.count);
    return;
  }
  if (peers_.control_block() == nullptr) {
    return row_for(data, false, algorithm).run(peers_, data, how, StartMode::unstaged);
  }
  const bool eager = data.bytes() <= kEagerBytes && algorithm.empty();
  const bool may_be_in_place = !eager && (algorithm.empty() || algorithm == "zero_copy");
  const bool may_be_staged = algorithm.empty() || algorithm == "staged";
  const auto where = may_be_in_place ? peers_.arena()->locate(data.data, data.bytes()) : std::nullopt;
  const StartMode start_mode = peers_.open(where, [&](std::byte*) {
    if (may_be_staged) stage_first(peers_, data);
  });
  if (eager) return sum_eager(peers_, data, how);
  row_for(data, start_mode == StartMode::in_place, algorithm).run(peers_, data, how, start_mode);
}

const AllReduce& NativeBackend::row_for(Piece data, bool in_place, std::string_view algorithm) const {
  return algorithm.empty() ? choose(shape(data.bytes(), in_place), calibration_, options_.canonical_only) : all_reduce_named(algorithm);
}

void NativeBackend::reduce_scatter(Piece in, Piece out, Op op, const Call& call, std::span<const std::size_t> counts) {
  if (through_host(Collective::reduce_scatter, in, op)) return reduce_scatter_through_host(in, out, op, call, counts);
  const ObservedOperation observed(*observer_, "reduce_scatter", call.name, {&in, 1});
  constexpr auto kCollective = Collective::reduce_scatter;
  check_piece(in, kCollective, op);
  check_piece(out, kCollective, op);
  const Layout layout = layout_for(kCollective, counts, out.count);
  need(in.dtype == out.dtype, kCollective, "input and output differ in type");
  need(reducible(in.dtype, op), kCollective, fmt::format("{} has no {}", name_of(in.dtype), name_of(op)));
  need(in.count == layout.total, kCollective, fmt::format("input has {} elements, the blocks together {}", in.count, layout.total));
  const auto own = layout.counts[static_cast<std::size_t>(peers_.rank())];
  need(out.count == own, kCollective, fmt::format("output has {} elements, this rank's block {}", out.count, own));
  Fingerprint print{.collective = kCollective, .dtype = in.dtype, .op = op, .count = in.count};
  print.layout =
      mix(mix(hash_of(layout.counts), std::bit_cast<std::uint64_t>(call.prescale)), std::bit_cast<std::uint64_t>(call.postscale));
  collective(print, call, [&] {
    const auto how = reduction(in.dtype, op, call);
    count(kCollective, own * static_cast<std::size_t>(size() - 1), in.dtype);
    if (delegated(kCollective, in, op, in.count)) return reduce_scatter_on_backend(in, out, layout, how);
    if (peers_.control_block() != nullptr) return shared::reduce_scatter(peers_, in, out, layout, how);
    linked::reduce_scatter(peers_, in, out, layout, how);
  });
}

void NativeBackend::all_gather(Piece in, Piece out, const Call& call, std::span<const std::size_t> counts) {
  if (through_host(Collective::all_gather, in)) return all_gather_through_host(in, out, call, counts);
  const ObservedOperation observed(*observer_, "all_gather", call.name, {&out, 1});
  constexpr auto kCollective = Collective::all_gather;
  check_piece(in, kCollective);
  check_piece(out, kCollective);
  const Layout layout = layout_for(kCollective, counts, in.count);
  need(in.dtype == out.dtype, kCollective, "input and output differ in type");
  need(out.count == layout.total, kCollective, fmt::format("output has {} elements, the parts together {}", out.count, layout.total));
  const auto own = layout.counts[static_cast<std::size_t>(peers_.rank())];
  need(in.count == own, kCollective, fmt::format("input has {} elements, this rank's part {}", in.count, own));
  Fingerprint print{.collective = kCollective, .dtype = in.dtype, .count = layout.total, .layout = hash_of(layout.counts)};
  collective(print, call, [&] {
    count(kCollective, layout.total - own, in.dtype);
    if (delegated(kCollective, in, Op::sum, layout.total)) return all_gather_on_backend(in, out, layout);
    peers_.control_block() != nullptr ? shared::all_gather(peers_, in, out, layout) : linked::all_gather(peers_, in, out, layout);
  });
}

void NativeBackend::broadcast(Piece data, Rank root, const Call& call) {
  if (through_host(Collective::broadcast, data)) return broadcast_through_host(data, root, call);
  const ObservedOperation observed(*observer_, "broadcast", call.name, {&data, 1});
  check_piece(data, Collective::broadcast);
  const int from = member(root, Collective::broadcast);
  const Fingerprint print{.collective = Collective::broadcast, .dtype = data.dtype, .root = from, .count = data.count};
  count(Collective::broadcast, peers_.rank() == from ? 0 : data.count, data.dtype);
  collective(print, call, [&] {
    if (delegated(Collective::broadcast, data, Op::sum, data.count)) return broadcast_on_backend(data, from);
    peers_.control_block() != nullptr ? shared::broadcast(peers_, data, from) : linked::broadcast(peers_, data, from);
  });
}

void NativeBackend::reduce(Piece in, Piece out, Op op, Rank root, const Call& call) {
  if (through_host(Collective::reduce, in, op)) return reduce_through_host(in, out, op, root, call);
  const ObservedOperation observed(*observer_, "reduce", call.name, {&in, 1});
  constexpr auto kCollective = Collective::reduce;
  const int to = member(root, kCollective);
  check_piece(in, kCollective, op);
  need(reducible(in.dtype, op), kCollective, fmt::format("{} has no {}", name_of(in.dtype), name_of(op)));
  if (peers_.rank() == to) {
    check_piece(out, kCollective, op);
    need(in.dtype == out.dtype && in.count == out.count, kCollective, "input and output differ in type or count");
  }
  Fingerprint print{.collective = kCollective, .dtype = in.dtype, .op = op, .root = to, .count = in.count};
  print.layout = mix(std::bit_cast<std::uint64_t>(call.prescale), std::bit_cast<std::uint64_t>(call.postscale));
  collective(print, call, [&] {
    const auto how = reduction(in.dtype, op, call);
    if (delegated(kCollective, in, op, in.count)) return reduce_on_backend(in, out, to, how);
    if (peers_.control_block() != nullptr) return shared::reduce(peers_, in, out, to, how);
    linked::reduce(peers_, in, out, to, how);
  });
}

void NativeBackend::gather(Piece in, Piece out, Rank root, const Call& call, std::span<const std::size_t> counts) {
  const ObservedOperation observed(*observer_, "gather", call.name, {&in, 1});
  constexpr auto kCollective = Collective::gather;
  const int to = member(root, kCollective);
  check_piece(in, kCollective);
  const Layout layout = layout_for(kCollective, counts, in.count);
  const auto own = layout.counts[static_cast<std::size_t>(peers_.rank())];
  need(in.count == own, kCollective, fmt::format("input has {} elements, this rank's part {}", in.count, own));
  if (peers_.rank() == to) {
    check_piece(out, kCollective);
    need(in.dtype == out.dtype, kCollective, "input and output differ in type");
    need(out.count == layout.total, kCollective, fmt::format("output has {} elements, the parts together {}", out.count, layout.total));
  }
  const Fingerprint print{
      .collective = kCollective, .dtype = in.dtype, .root = to, .count = layout.total, .layout = hash_of(layout.counts)};
  collective(print, call, [&] {
    peers_.control_block() != nullptr ? shared::gather(peers_, in, out, to, layout) : linked::gather(peers_, in, out, to, layout);
  });
}

void NativeBackend::scatter(Piece in, Piece out, Rank root, const Call& call, std::span<const std::size_t> counts) {
  const ObservedOperation observed(*observer_, "scatter", call.name, {&out, 1});
  constexpr auto kCollective = Collective::scatter;
  const int from = member(root, kCollective);
  check_piece(out, kCollective);
  const Layout layout = layout_for(kCollective, counts, out.count);
  const auto own = layout.counts[static_cast<std::size_t>(peers_.rank())];
  need(out.count == own, kCollective, fmt::format("output has {} elements, this rank's part {}", out.count, own));
  if (peers_.rank() == from) {
    check_piece(in, kCollective);
    need(in.dtype == out.dtype, kCollective, "input and output differ in type");
    need(in.count == layout.total, kCollective, fmt::format("input has {} elements, the parts together {}", in.count, layout.total));
  }
  const Fingerprint print{
      .collective = kCollective, .dtype = out.dtype, .root = from, .count = layout.total, .layout = hash_of(layout.counts)};
  collective(print, call, [&] {
    peers_.control_block() != nullptr ? shared::scatter(peers_, in, out, from, layout) : linked::scatter(peers_, in, out, from, layout);
  });
}

void NativeBackend::all_to_all(Piece in, Piece out, const Call& call, std::span<const std::size_t> send_counts,
                               std::span<const std::size_t> recv_counts) {
  const ObservedOperation observed(*observer_, "all_to_all", call.name, {&in, 1});
  constexpr auto kCollective = Collective::all_to_all;
  check_piece(in, kCollective);
  check_piece(out, kCollective);
  const auto n = static_cast<std::size_t>(size());
  need(in.dtype == out.dtype, kCollective, "input and output differ in type");
  need(!send_counts.empty() || in.count % n == 0, kCollective,
       fmt::format("{} elements do not part evenly over {} ranks; give send counts", in.count, n));
  need(!recv_counts.empty() || out.count % n == 0, kCollective,
       fmt::format("{} elements do not part evenly over {} ranks; give receive counts", out.count, n));
  const Layout sends = layout_for(kCollective, send_counts, in.count / n);
  const Layout recvs = layout_for(kCollective, recv_counts, out.count / n);
  need(sends.total == in.count, kCollective, fmt::format("input has {} elements, send counts add up to {}", in.count, sends.total));
  need(recvs.total == out.count, kCollective, fmt::format("output has {} elements, receive counts add up to {}", out.count, recvs.total));
  const Fingerprint print{.collective = kCollective,
                          .dtype = in.dtype};  // counts differ between ranks by right; they are compared as a matrix
  count(kCollective, recvs.total - recvs.counts[static_cast<std::size_t>(peers_.rank())], in.dtype);
  collective(print, call, [&] {
    if (delegated(kCollective, in, Op::sum, 0)) return all_to_all_on_backend(in, out, sends, recvs);
    if (size() == 1) return copy_piece(in, out);
    peers_.control_block() != nullptr ? shared::all_to_all(peers_, in, out, sends, recvs)
                                      : linked::all_to_all(peers_, in, out, sends, recvs);
  });
}

void NativeBackend::barrier(const Call& call) {
  const ObservedOperation observed(*observer_, "barrier", call.name);
  synchronize({.collective = Collective::barrier}, call);
}

void NativeBackend::synchronize(Fingerprint print, const Call& call) {
  collective(print, call, [&] { agree(); });
}

void NativeBackend::gather_small(ConstBytes mine, Bytes all, const Call& call) {
  const Piece in{const_cast<std::byte*>(mine.data()), mine.size(), Dtype::u8, Device::cpu};
  const Piece out{all.data(), all.size(), Dtype::u8, Device::cpu};
  const Layout layout = Layout::even(size(), mine.size());
  collective({.collective = Collective::split}, call, [&] {
    peers_.control_block() != nullptr ? shared::all_gather(peers_, in, out, layout) : linked::all_gather(peers_, in, out, layout);
  });
}

}  // namespace cohort::collective
