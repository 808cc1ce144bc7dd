#include "cohort/collective/own.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "cohort/base/trace.h"
#include "cohort/collective/selector.h"
#include "cohort/collective/staged.h"

namespace cohort::collective {
namespace {

int cores_here() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  // A rank bound to one core says nothing about how many the ranks have together.
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0 && CPU_COUNT(&allowed) > 1) return CPU_COUNT(&allowed);
  return static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
}

// What all ranks must see alike to choose alike; rank 0's word counts.
struct Terms {
  Calibration calibration;
  std::int64_t cores = 1;
  std::int64_t canonical_only = 1;
  std::int64_t measured = 0;  // the constants come from a file of rank 0
  std::array<char, 16> comm{};
};

bool shares_with_anybody(const net::Mesh& mesh) {
  if (mesh.shares_memory()) return true;
  for (Rank r{0}; r.value < mesh.size(); ++r.value)
    if (r != mesh.rank() && mesh.host(r) == mesh.host(mesh.rank())) return true;
  return false;
}

std::array<char, 16> short_text(std::string_view text) {
  std::array<char, 16> out{};
  std::copy_n(text.begin(), std::min(text.size(), out.size() - 1), out.begin());
  return out;
}

// What to begin with: auto measures over the own engine, and then takes the fastest.
Underneath settled(Underneath under, bool canonical_only) {
  if (under.comm == "auto") under.comm = "own";
  if (under.comm != "own" && canonical_only)
    throw_failure(Kind::usage,
                  "comm: {} adds in an order of its own, so runs would not repeat bit for bit as bits: same promises; say bits: free "
                  "(--bits free, COHORT_BITS=free) or comm: own",
                  under.comm);
  return under;
}

bool lasting(Kind kind) { return kind != Kind::usage; }

void need(bool ok, Verb verb, std::string_view why) {
  if (!ok) throw_failure(Kind::usage, "{}: {}", name_of(verb), why);
}

}  // namespace

struct Own::Busy {
  std::atomic_flag& flag;
  Busy(std::atomic_flag& f, Verb verb) : flag(f) {
    need(!flag.test_and_set(std::memory_order_acquire), verb,
         "another thread is inside a verb of this communicator; give each thread its own by split()");
  }
  ~Busy() { flag.clear(std::memory_order_release); }
};

Own::Own(std::shared_ptr<net::Mesh> mesh, std::shared_ptr<Arena> arena, std::shared_ptr<Tally> tally, std::vector<Rank> members, int me,
         std::uint32_t channel, Options options, const Calibration& calibration, int cores, Underneath under)
    : peers_(std::move(mesh), std::move(arena), std::move(members), me, channel),
      tally_(std::move(tally)),
      options_(std::move(options)),
      calibration_(calibration),
      cores_(cores),
      under_(std::move(under)) {
  if (!options_.algorithm.empty()) all_reduce_named(options_.algorithm);
}

std::unique_ptr<Communicator> open(std::shared_ptr<net::Mesh> mesh, Options options) {
  return open(std::move(mesh), std::move(options), Underneath{});
}

std::unique_ptr<Communicator> open(std::shared_ptr<net::Mesh> mesh, Options options, const Underneath& asked) {
  const int n = mesh->size();
  const int me = mesh->rank().value;
  std::vector<Rank> members;
  for (int r = 0; r < n; ++r) members.push_back(Rank{r});
  Terms terms{mesh->transport() == "tcp" ? tcp_defaults() : Calibration{}, cores_here(), options.canonical_only, 0, short_text(asked.comm)};
  if (me == 0 && !options.calibration.empty()) {
    terms.calibration = Calibration::load(options.calibration);
    terms.measured = 1;
  }
  const auto deadline = Deadline::in(options.timeout);
  const Tag tag{kWorldChannel, ~0u};
  if (me == 0)
    for (int r = 1; r < n; ++r) mesh->link(Rank{r}).send(bytes_of(terms), tag).wait(deadline);
  else
    mesh->link(Rank{0}).recv(writable_bytes_of(terms), tag).wait(deadline);
  options.canonical_only = terms.canonical_only != 0;
  if (terms.comm != short_text(asked.comm))
    throw_failure(Kind::usage, "rank {} was told comm: {}, rank 0 comm: {}; every rank must be told the same", me, asked.comm,
                  terms.comm.data());
  const Underneath under = settled(asked, options.canonical_only);
  if (me != 0) options.calibration = terms.measured != 0 ? "a file of rank 0" : "";
  auto arena = options.arena ? std::exchange(options.arena, nullptr) : std::make_shared<Arena>(mesh->rank());
  auto own = std::make_unique<Own>(std::move(mesh), arena, std::make_shared<Tally>(), members, me, kWorldChannel, options,
                                   terms.calibration, static_cast<int>(terms.cores), under);
  own->connect(deadline);
  if (asked.comm == "auto") return fastest(std::move(own), under, options.canonical_only);
  return own;
}

void Own::connect(Deadline deadline) {
  peers_.share_board(Patience::for_ranks(peers_.size()), options_.warn_after, deadline);
  if (under_.comm != "own") open_underneath(deadline);
}

template <class Body>
void Own::verb(Fingerprint print, const Call& call, Body body) {
  const Busy busy(busy_, print.verb);
  print.number = ++number_;
  stream_ = call.stream;
  seal(print, call.name, call.algorithm);
  try {
    peers_.begin(print, call.deadline, options_.timeout);
    const Span span{name_of(print.verb), call.name};
    body();
  } catch (const Failure& failure) {
    if (!lasting(failure.kind())) throw;
    Error error{failure.kind(), fmt::format("{} #{} on rank {}: {}", print.text(), print.number, peers_.rank(), failure.what()),
                failure.error().rank};
    peers_.fail(failure.error());
    peers_.mesh().abort(error);  // whoever waits for us hears the cause, not just that we left
    throw Failure{std::move(error)};
  }
}

Region Own::allocate(std::size_t bytes, Device device) {
  if (device != Device::cpu) throw_failure(Kind::usage, "allocate: memory of a communicator is CPU memory; allocate GPU memory with torch");
  if (shares_with_anybody(peers_.mesh())) return peers_.arena()->allocate(bytes);
  auto pages = huge_pages(bytes);  // no peer can read it in place, but the kernel will
  void* const data = pages.get();
  return Region{std::move(pages), data, bytes};
}

Reduction Own::reduction(Dtype dtype, Op op, const Call& call) const {
  if (op == Op::average) return {dtype, Op::sum, call.prescale, call.postscale / size()};
  return {dtype, op, call.prescale, call.postscale};
}

Shape Own::shape(std::size_t bytes, bool in_place) const {
  const Hosts& hosts = peers_.hosts();
  return {bytes, size(), cores_, peers_.board() != nullptr, in_place, hosts.count(), hosts.fewest(), hosts.most(), hosts.nested()};
}

Layout Own::layout_for(Verb verb, std::span<const std::size_t> counts, std::size_t each) const {
  if (counts.empty()) return Layout::even(size(), each);
  need(counts.size() == static_cast<std::size_t>(size()), verb, fmt::format("counts has {} entries for {} ranks", counts.size(), size()));
  return Layout::of(counts);
}

int Own::member(Rank rank, Verb verb) const {
  need(rank.value >= 0 && rank.value < size(), verb, fmt::format("rank {} is not one of 0 .. {}", rank.value, size() - 1));
  return rank.value;
}

void Own::all_reduce(std::span<const Piece> pieces, Op op, const Call& call) {
  Fingerprint print{.verb = Verb::all_reduce, .dtype = pieces.empty() ? Dtype::u8 : pieces[0].dtype, .op = op};
  print.pieces = static_cast<std::uint8_t>(std::min<std::size_t>(255, pieces.size()));
  print.layout = mix(std::bit_cast<std::uint64_t>(call.prescale), std::bit_cast<std::uint64_t>(call.postscale));
  for (const Piece& piece : pieces) {
    check_piece(piece, print.verb, op);
    need(reducible(piece.dtype, op), print.verb, fmt::format("{} has no {}", name_of(piece.dtype), name_of(op)));
    print.count += piece.count;
    if (pieces.size() > 1) print.layout = mix(print.layout, piece.count << 8 | static_cast<std::uint64_t>(piece.dtype));
  }
  Call asked = call;
  if (asked.algorithm.empty()) asked.algorithm = options_.algorithm;
  if (!asked.algorithm.empty()) all_reduce_named(asked.algorithm);
  verb(print, asked, [&] {
    if (size() > 1 && (peers_.board() == nullptr || pieces.size() != 1 || engine_ != nullptr)) agree();
    for (const Piece& piece : pieces) {
      const Reduction how = reduction(piece.dtype, op, call);
      const bool under = asked.algorithm.empty() && carried(Verb::all_reduce, piece, op, piece.count);
      under ? all_reduce_under(piece, how) : all_reduce_one(piece, how, asked.algorithm);
    }
    const auto n = static_cast<std::size_t>(size());
    for (const Piece& piece : pieces) count(Verb::all_reduce, 2 * piece.count * (n - 1) / n, piece.dtype);
  });
}

void Own::count(Verb verb, std::size_t elements, Dtype dtype) {
  auto& row = tally_->rows[static_cast<std::size_t>(verb)];
  row.calls.fetch_add(1, std::memory_order_relaxed);
  row.elements.fetch_add(elements, std::memory_order_relaxed);
  row.bytes.fetch_add(elements * size_of(dtype), std::memory_order_relaxed);
}

Moved Own::moved(Verb verb) const {
  const auto& row = tally_->rows[static_cast<std::size_t>(verb)];
  return {row.calls.load(std::memory_order_relaxed), row.elements.load(std::memory_order_relaxed),
          row.bytes.load(std::memory_order_relaxed)};
}

void Own::agree() { peers_.board() != nullptr ? shared::barrier(peers_) : linked::barrier(peers_); }

void Own::all_reduce_one(Piece data, const Reduction& how, std::string_view algorithm) {
  if (size() == 1) {
    const void* const source = data.data;
    void* const target = data.data;
    if (how.pre != 1.0 || how.post != 1.0) kernels().reduce(how, {&source, 1}, {&target, 1}, data.count);
    return;
  }
  if (peers_.board() == nullptr) {
    return row_for(data, false, algorithm).run(peers_, data, how, Opening::cold);
  }
  const bool eager = data.bytes() <= kEagerBytes && algorithm.empty();
  const bool may_be_in_place = !eager && (algorithm.empty() || algorithm == "zero_copy");
  const bool may_be_staged = algorithm.empty() || algorithm == "staged";
  const auto where = may_be_in_place ? peers_.arena()->locate(data.data, data.bytes()) : std::nullopt;
  const Opening opening = peers_.open(where, [&](std::byte*) {
    if (may_be_staged) stage_first(peers_, data);
  });
  if (eager) return sum_eager(peers_, data, how);
  row_for(data, opening == Opening::in_place, algorithm).run(peers_, data, how, opening);
}

const AllReduce& Own::row_for(Piece data, bool in_place, std::string_view algorithm) const {
  return algorithm.empty() ? choose(shape(data.bytes(), in_place), calibration_, options_.canonical_only) : all_reduce_named(algorithm);
}

void Own::reduce_scatter(Piece in, Piece out, Op op, const Call& call, std::span<const std::size_t> counts) {
  constexpr auto kVerb = Verb::reduce_scatter;
  check_piece(in, kVerb, op);
  check_piece(out, kVerb, op);
  const Layout layout = layout_for(kVerb, counts, out.count);
  need(in.dtype == out.dtype, kVerb, "input and output differ in type");
  need(reducible(in.dtype, op), kVerb, fmt::format("{} has no {}", name_of(in.dtype), name_of(op)));
  need(in.count == layout.total, kVerb, fmt::format("input has {} elements, the blocks together {}", in.count, layout.total));
  const auto own = layout.counts[static_cast<std::size_t>(peers_.rank())];
  need(out.count == own, kVerb, fmt::format("output has {} elements, this rank's block {}", out.count, own));
  Fingerprint print{.verb = kVerb, .dtype = in.dtype, .op = op, .count = in.count};
  print.layout =
      mix(mix(hash_of(layout.counts), std::bit_cast<std::uint64_t>(call.prescale)), std::bit_cast<std::uint64_t>(call.postscale));
  verb(print, call, [&] {
    const auto how = reduction(in.dtype, op, call);
    count(kVerb, own * static_cast<std::size_t>(size() - 1), in.dtype);
    if (carried(kVerb, in, op, in.count)) return reduce_scatter_under(in, out, layout, how);
    if (peers_.board() != nullptr) return shared::reduce_scatter(peers_, in, out, layout, how);
    linked::reduce_scatter(peers_, in, out, layout, how);
  });
}

void Own::all_gather(Piece in, Piece out, const Call& call, std::span<const std::size_t> counts) {
  constexpr auto kVerb = Verb::all_gather;
  check_piece(in, kVerb);
  check_piece(out, kVerb);
  const Layout layout = layout_for(kVerb, counts, in.count);
  need(in.dtype == out.dtype, kVerb, "input and output differ in type");
  need(out.count == layout.total, kVerb, fmt::format("output has {} elements, the parts together {}", out.count, layout.total));
  const auto own = layout.counts[static_cast<std::size_t>(peers_.rank())];
  need(in.count == own, kVerb, fmt::format("input has {} elements, this rank's part {}", in.count, own));
  Fingerprint print{.verb = kVerb, .dtype = in.dtype, .count = layout.total, .layout = hash_of(layout.counts)};
  verb(print, call, [&] {
    count(kVerb, layout.total - own, in.dtype);
    if (carried(kVerb, in, Op::sum, layout.total)) return all_gather_under(in, out, layout);
    peers_.board() != nullptr ? shared::all_gather(peers_, in, out, layout) : linked::all_gather(peers_, in, out, layout);
  });
}

void Own::broadcast(Piece data, Rank root, const Call& call) {
  check_piece(data, Verb::broadcast);
  const int from = member(root, Verb::broadcast);
  const Fingerprint print{.verb = Verb::broadcast, .dtype = data.dtype, .root = from, .count = data.count};
  count(Verb::broadcast, peers_.rank() == from ? 0 : data.count, data.dtype);
  verb(print, call, [&] {
    if (carried(Verb::broadcast, data, Op::sum, data.count)) return broadcast_under(data, from);
    peers_.board() != nullptr ? shared::broadcast(peers_, data, from) : linked::broadcast(peers_, data, from);
  });
}

void Own::reduce(Piece in, Piece out, Op op, Rank root, const Call& call) {
  constexpr auto kVerb = Verb::reduce;
  const int to = member(root, kVerb);
  check_piece(in, kVerb, op);
  need(reducible(in.dtype, op), kVerb, fmt::format("{} has no {}", name_of(in.dtype), name_of(op)));
  if (peers_.rank() == to) {
    check_piece(out, kVerb, op);
    need(in.dtype == out.dtype && in.count == out.count, kVerb, "input and output differ in type or count");
  }
  Fingerprint print{.verb = kVerb, .dtype = in.dtype, .op = op, .root = to, .count = in.count};
  print.layout = mix(std::bit_cast<std::uint64_t>(call.prescale), std::bit_cast<std::uint64_t>(call.postscale));
  verb(print, call, [&] {
    const auto how = reduction(in.dtype, op, call);
    if (carried(kVerb, in, op, in.count)) return reduce_under(in, out, to, how);
    if (peers_.board() != nullptr) return shared::reduce(peers_, in, out, to, how);
    linked::reduce(peers_, in, out, to, how);
  });
}

void Own::gather(Piece in, Piece out, Rank root, const Call& call, std::span<const std::size_t> counts) {
  constexpr auto kVerb = Verb::gather;
  const int to = member(root, kVerb);
  check_piece(in, kVerb);
  const Layout layout = layout_for(kVerb, counts, in.count);
  const auto own = layout.counts[static_cast<std::size_t>(peers_.rank())];
  need(in.count == own, kVerb, fmt::format("input has {} elements, this rank's part {}", in.count, own));
  if (peers_.rank() == to) {
    check_piece(out, kVerb);
    need(in.dtype == out.dtype, kVerb, "input and output differ in type");
    need(out.count == layout.total, kVerb, fmt::format("output has {} elements, the parts together {}", out.count, layout.total));
  }
  const Fingerprint print{.verb = kVerb, .dtype = in.dtype, .root = to, .count = layout.total, .layout = hash_of(layout.counts)};
  verb(print, call,
       [&] { peers_.board() != nullptr ? shared::gather(peers_, in, out, to, layout) : linked::gather(peers_, in, out, to, layout); });
}

void Own::scatter(Piece in, Piece out, Rank root, const Call& call, std::span<const std::size_t> counts) {
  constexpr auto kVerb = Verb::scatter;
  const int from = member(root, kVerb);
  check_piece(out, kVerb);
  const Layout layout = layout_for(kVerb, counts, out.count);
  const auto own = layout.counts[static_cast<std::size_t>(peers_.rank())];
  need(out.count == own, kVerb, fmt::format("output has {} elements, this rank's part {}", out.count, own));
  if (peers_.rank() == from) {
    check_piece(in, kVerb);
    need(in.dtype == out.dtype, kVerb, "input and output differ in type");
    need(in.count == layout.total, kVerb, fmt::format("input has {} elements, the parts together {}", in.count, layout.total));
  }
  const Fingerprint print{.verb = kVerb, .dtype = out.dtype, .root = from, .count = layout.total, .layout = hash_of(layout.counts)};
  verb(print, call, [&] {
    peers_.board() != nullptr ? shared::scatter(peers_, in, out, from, layout) : linked::scatter(peers_, in, out, from, layout);
  });
}

void Own::all_to_all(Piece in, Piece out, const Call& call, std::span<const std::size_t> send_counts,
                     std::span<const std::size_t> recv_counts) {
  constexpr auto kVerb = Verb::all_to_all;
  check_piece(in, kVerb);
  check_piece(out, kVerb);
  const auto n = static_cast<std::size_t>(size());
  need(in.dtype == out.dtype, kVerb, "input and output differ in type");
  need(!send_counts.empty() || in.count % n == 0, kVerb,
       fmt::format("{} elements do not part evenly over {} ranks; give send counts", in.count, n));
  need(!recv_counts.empty() || out.count % n == 0, kVerb,
       fmt::format("{} elements do not part evenly over {} ranks; give receive counts", out.count, n));
  const Layout sends = layout_for(kVerb, send_counts, in.count / n);
  const Layout recvs = layout_for(kVerb, recv_counts, out.count / n);
  need(sends.total == in.count, kVerb, fmt::format("input has {} elements, send counts add up to {}", in.count, sends.total));
  need(recvs.total == out.count, kVerb, fmt::format("output has {} elements, receive counts add up to {}", out.count, recvs.total));
  const Fingerprint print{.verb = kVerb, .dtype = in.dtype};  // counts differ between ranks by right; they are compared as a matrix
  count(kVerb, recvs.total - recvs.counts[static_cast<std::size_t>(peers_.rank())], in.dtype);
  verb(print, call, [&] {
    if (carried(kVerb, in, Op::sum, 0)) return all_to_all_under(in, out, sends, recvs);
    if (size() == 1) return copy_piece(in, out);
    peers_.board() != nullptr ? shared::all_to_all(peers_, in, out, sends, recvs) : linked::all_to_all(peers_, in, out, sends, recvs);
  });
}

void Own::barrier(const Call& call) { meet({.verb = Verb::barrier}, call); }

void Own::meet(Fingerprint print, const Call& call) {
  verb(print, call, [&] { agree(); });
}

void Own::gather_words(ConstBytes mine, Bytes all, const Call& call) {
  const Piece in{const_cast<std::byte*>(mine.data()), mine.size(), Dtype::u8, Device::cpu};
  const Piece out{all.data(), all.size(), Dtype::u8, Device::cpu};
  const Layout layout = Layout::even(size(), mine.size());
  verb({.verb = Verb::split}, call,
       [&] { peers_.board() != nullptr ? shared::all_gather(peers_, in, out, layout) : linked::all_gather(peers_, in, out, layout); });
}

}  // namespace cohort::collective
