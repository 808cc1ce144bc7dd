#include "tests/backends/laws.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <thread>

#include "cohort/base/half.h"
#include "tests/laws/reference.h"

namespace cohort::collective {
namespace {

using Sizes = std::vector<std::size_t>;

template <class... Args>
void expect(bool holds, fmt::format_string<Args...> text, Args&&... args) {
  if (!holds) throw std::runtime_error(fmt::format(text, std::forward<Args>(args)...));
}
std::size_t at(const Communicator& comm) { return static_cast<std::size_t>(comm.rank().value); }
std::size_t total(const Sizes& counts) { return std::accumulate(counts.begin(), counts.end(), std::size_t{0}); }

void put(Buffer& to, std::size_t i, Dtype dtype, int value) {
  const auto as = [&](auto typed) { std::memcpy(&to[i * sizeof typed], &typed, sizeof typed); };
  switch (dtype) {
    case Dtype::f16: return as(to_f16(static_cast<float>(value)));
    case Dtype::bf16: return as(to_bf16(static_cast<float>(value)));
    case Dtype::f32: return as(static_cast<float>(value));
    case Dtype::f64: return as(static_cast<double>(value));
    case Dtype::i16: return as(static_cast<std::int16_t>(value));
    case Dtype::i32: return as(static_cast<std::int32_t>(value));
    case Dtype::i64: return as(static_cast<std::int64_t>(value));
    default: return as(static_cast<std::int8_t>(value));
  }
}

// 1 or 2 for products, 0 .. 4 otherwise: exact in every type for up to nine ranks. A bool may be any byte.
Buffer whole_numbers(Dtype dtype, Op op, std::size_t count, int rank) {
  Buffer bytes(count * size_of(dtype));
  for (std::size_t i = 0; i < count; ++i) {
    const auto mixed = static_cast<int>((i * 7 + static_cast<std::size_t>(rank) * 3) % 5);
    put(bytes, i, dtype, dtype != Dtype::boolean && op == Op::product ? 1 + mixed % 2 : mixed);
  }
  return bytes;
}
std::vector<Buffer> inputs_of_all(const Communicator& comm, Dtype dtype, Op op, std::size_t count) {
  std::vector<Buffer> all;
  for (int r = 0; r < comm.size(); ++r) all.push_back(whole_numbers(dtype, op, count, r));
  return all;
}
template <class Body>
void for_every_reduction(Body body) {
  for (const Dtype dtype : every_dtype())
    for (const Op op : every_op())
      if (reducible(dtype, op)) body(dtype, op);
}

void all_reduce_is_the_reference(Communicator& comm) {
  for_every_reduction([&](Dtype dtype, Op op) {
    for (const std::size_t count : {1, 1000}) {
      const auto all = inputs_of_all(comm, dtype, op, count);
      Buffer mine = all[at(comm)];
      const double pre = count == 1 ? 1.0 : 2.0, post = dtype == Dtype::boolean ? 1.0 : pre * 1.5;
      comm.all_reduce(piece_of(mine, dtype), op, {.name = "law", .prescale = pre, .postscale = post});
      expect(mine == reference_reduce(dtype, op, all, pre, post), "all_reduce {} {} of {}, scaled {} {}", name_of(dtype), name_of(op),
             count, pre, post);
    }
  });
  comm.all_reduce({nullptr, 0, Dtype::f32, Device::cpu}, Op::sum);
  const Region region = comm.allocate(1'300'001 * sizeof(float));  // memory of the communicator, and a large buffer
  const auto all = inputs_of_all(comm, Dtype::f32, Op::sum, 1'300'001);
  std::memcpy(region.data(), all[at(comm)].data(), region.bytes());
  comm.all_reduce(piece(region.as<float>()), Op::average);
  expect(std::memcmp(region.data(), reference_reduce(Dtype::f32, Op::average, all).data(), region.bytes()) == 0, "a large all_reduce");
}

void a_group_is_reduced_piece_by_piece(Communicator& comm) {
  std::vector<float> a(10, 1.0F);
  std::vector<std::int16_t> b(1000, 2);
  std::vector<double> c;
  const std::vector<Piece> pieces{piece(std::span(a)), piece(std::span(b)), piece(std::span(c))};
  comm.all_reduce(pieces, Op::sum, {.name = "group"});
  expect(a[9] == static_cast<float>(comm.size()) && b[999] == 2 * comm.size(), "a group: {} {}", a[9], b[999]);
}

void all_ranks_hold_the_same_bits(Communicator& comm) {
  for (const std::size_t count : {3, 1000, 300'007}) {  // sums that are not exact: order matters, ranks must still agree
    Buffer noise(count * sizeof(float));
    std::mt19937_64 random(7 + at(comm));
    for (std::size_t i = 0; i < count; ++i) {
      const auto value = static_cast<float>(static_cast<double>(random()) / 1e19 - 0.5);
      std::memcpy(&noise[i * sizeof value], &value, sizeof value);
    }
    comm.all_reduce(piece_of(noise, Dtype::f32), Op::sum);
    Buffer first = noise;
    comm.broadcast(piece_of(first, Dtype::f32), Rank{0});
    expect(first == noise, "ranks hold different bits of {} sums", count);
  }
}

void nan_is_never_lost(Communicator& comm) {
  for (const Op op : every_op())
    for (const int who : {0, comm.size() - 1}) {
      std::vector<float> values(100, static_cast<float>(comm.rank().value));
      if (comm.rank().value == who) values[42] = std::numeric_limits<float>::quiet_NaN();
      comm.all_reduce(piece(std::span(values)), op);
      expect(std::isnan(values[42]) && !std::isnan(values[41]), "{} with NaN on rank {} gives {}", name_of(op), who, values[42]);
    }
}

Sizes uneven(int ranks, std::size_t unit, int seed) {
  Sizes counts;
  for (int r = 0; r < ranks; ++r) counts.push_back(static_cast<std::size_t>((seed + r * r) % 5) * unit);
  return counts;
}
Sizes even(int ranks, std::size_t each) { return Sizes(static_cast<std::size_t>(ranks), each); }

void reduce_scatter_gives_each_rank_its_block(Communicator& comm) {
  for_every_reduction([&](Dtype dtype, Op op) {
    for (const Sizes& counts : {even(comm.size(), 33), uneven(comm.size(), 11, 2)}) {
      const auto all = inputs_of_all(comm, dtype, op, total(counts));
      Buffer mine = all[at(comm)], out(counts[at(comm)] * size_of(dtype));
      comm.reduce_scatter(piece_of(mine, dtype), piece_of(out, dtype), op, {.prescale = 2.0}, counts);
      expect(mine == all[at(comm)], "reduce_scatter changed its input");
      const Buffer whole = reference_reduce(dtype, op, all, 2.0);
      const auto first = std::accumulate(counts.begin(), counts.begin() + comm.rank().value, std::size_t{0}) * size_of(dtype);
      expect(std::equal(out.begin(), out.end(), whole.begin() + static_cast<long>(first)), "reduce_scatter {} {} of {}", name_of(dtype),
             name_of(op), total(counts));
    }
  });
}

void all_gather_joins_the_parts(Communicator& comm) {
  for (const Dtype dtype : every_dtype())
    for (const Sizes& counts : {even(comm.size(), 0), even(comm.size(), 33), uneven(comm.size(), 11, 3),
                                uneven(comm.size(), dtype == Dtype::f32 ? 40'001 : 0, 1)}) {
      Buffer want;
      for (int r = 0; r < comm.size(); ++r) {
        const Buffer part = random_input(dtype, counts[static_cast<std::size_t>(r)], 11, r);
        want.insert(want.end(), part.begin(), part.end());
      }
      Buffer mine = random_input(dtype, counts[at(comm)], 11, comm.rank().value), out(want.size());
      comm.all_gather(piece_of(mine, dtype), piece_of(out, dtype), {}, counts);
      expect(out == want, "all_gather {} of {}", name_of(dtype), total(counts));
      const auto first = std::accumulate(counts.begin(), counts.begin() + comm.rank().value, std::size_t{0});
      Buffer whole(want.size());
      std::copy(mine.begin(), mine.end(), whole.begin() + static_cast<long>(first * size_of(dtype)));
      comm.all_gather(piece_of(whole, dtype).part(first, counts[at(comm)]), piece_of(whole, dtype), {}, counts);
      expect(whole == want, "all_gather in place {} of {}", name_of(dtype), total(counts));
    }
}

void roots_give_and_take(Communicator& comm) {
  for (int root = 0; root < comm.size(); ++root)
    for (const std::size_t count : {0, 1001, root == 0 ? 200'001 : 1}) {
      auto mine = random_input(Dtype::bf16, count, 9, comm.rank().value);
      comm.broadcast(piece_of(mine, Dtype::bf16), Rank{root});
      expect(mine == random_input(Dtype::bf16, count, 9, root), "broadcast of {} from {}", count, root);
    }
  for_every_reduction([&](Dtype dtype, Op op) {
    const int root = comm.size() / 2;
    const auto all = inputs_of_all(comm, dtype, op, 101);
    Buffer mine = all[at(comm)], out(mine.size());
    comm.reduce(piece_of(mine, dtype), piece_of(out, dtype), op, Rank{root});
    expect(mine == all[at(comm)], "reduce changed its input");
    if (comm.rank().value == root) expect(out == reference_reduce(dtype, op, all), "reduce {} {}", name_of(dtype), name_of(op));
    comm.reduce(piece_of(mine, dtype), piece_of(mine, dtype), op, Rank{root});
    if (comm.rank().value == root) expect(mine == reference_reduce(dtype, op, all), "reduce in place {} {}", name_of(dtype), name_of(op));
  });
  const auto counts = uneven(comm.size(), 33, 1);
  const Rank last{comm.size() - 1};
  Buffer mine = random_input(Dtype::i32, counts[at(comm)], 3, comm.rank().value), back(mine.size());
  Buffer whole(comm.rank() == last ? total(counts) * 4 : 0);
  comm.gather(piece_of(mine, Dtype::i32), piece_of(whole, Dtype::i32), last, {}, counts);
  comm.scatter(piece_of(whole, Dtype::i32), piece_of(back, Dtype::i32), last, {}, counts);
  expect(back == mine, "gather and scatter");
}

void all_to_all_transposes(Communicator& comm) {
  const int n = comm.size();
  for (const std::size_t unit : {0, 1, 40, 9000}) {
    std::vector<std::int32_t> in, want;
    Sizes sends, recvs;
    for (int r = 0; r < n; ++r) {
      sends.push_back(static_cast<std::size_t>((comm.rank().value + r * r) % 5) * unit);
      recvs.push_back(static_cast<std::size_t>((r + comm.rank().value * comm.rank().value) % 5) * unit);
      in.insert(in.end(), sends.back(), comm.rank().value * 100 + r);
      want.insert(want.end(), recvs.back(), r * 100 + comm.rank().value);
    }
    std::vector<std::int32_t> out(want.size());
    comm.all_to_all(piece(std::span(in)), piece(std::span(out)), {}, sends, recvs);
    expect(out == want, "all_to_all of {}", unit);
  }
}

void messages_and_groups_work_beside_it(Communicator& comm) {
  const int n = comm.size(), me = comm.rank().value;
  std::vector<double> out(3001, me), in(3001);
  std::jthread sender([&] { comm.send(piece(std::span(out)), Rank{(me + 1) % n}, 7); });
  comm.recv(piece(std::span(in)), Rank{(me + n - 1) % n}, 7);
  sender.join();
  expect(in[3000] == (me + n - 1) % n, "a message");
  const auto half = comm.split(me % 2, -me);
  std::vector<std::int64_t> value{me};
  half->all_reduce(piece(std::span(value)), Op::sum);
  std::int64_t sum = 0;
  for (int r = me % 2; r < n; r += 2) sum += r;
  expect(value[0] == sum, "a split sums to {}, not {}", value[0], sum);
  const std::vector<Rank> ends{Rank{n - 1}, Rank{0}};
  const auto set = n > 1 ? comm.subset(ends) : nullptr;
  value[0] = me;
  if (set) set->broadcast(piece(std::span(value)), Rank{0});
  expect(!set || value[0] == n - 1, "a subset's order is the list's");
  comm.barrier();
}

void peer_channels_work_beside_it(Communicator& comm) {
  const int n = comm.size(), me = comm.rank().value;
  const auto channel = comm.channel();
  const Deadline soon = Deadline::in(Seconds{60});
  std::string broken;
  std::jthread messages([&] {
    try {
      std::vector<double> out(300'001, me), in(300'001);
      for (int i = 0; i < 10; ++i) {
        auto receiving = channel->recv(Rank{(me + n - 1) % n}, 7, piece(std::span(in)));
        auto sending = channel->send(Rank{(me + 1) % n}, 7, piece(std::span(out)));
        sending.wait(soon);
        receiving.wait(soon);
        expect(in.front() == (me + n - 1) % n && in.back() == in.front(), "a message of {}", in.back());
      }
    } catch (const std::exception& error) {
      broken = error.what();
    }
  });
  for (int i = 0; i < 10; ++i) {
    std::vector<float> values(30'000, 1.0F);
    comm.all_reduce(piece(std::span(values)), Op::sum);
    expect(values.back() == static_cast<float>(n), "an all_reduce beside it gave {}", values.back());
  }
  messages.join();
  expect(broken.empty(), "{}", broken);
  comm.barrier();  // nobody closes its channel before all have what they wait for
}

void children_run_side_by_side(Communicator& comm) {
  std::vector<std::unique_ptr<Communicator>> children;
  for (int child = 0; child < 3; ++child) children.push_back(comm.split(0));
  std::vector<std::string> broken(children.size());
  std::vector<std::jthread> threads;
  for (std::size_t child = 0; child < children.size(); ++child)
    threads.emplace_back([&, child] {
      try {
        for (int i = 1; i <= 10; ++i) {
          std::vector<float> values(static_cast<std::size_t>(i) * 997 * (child + 1), static_cast<float>(child + 1));
          children[child]->all_reduce(piece(std::span(values)), Op::sum);
          expect(values.back() == static_cast<float>(comm.size()) * static_cast<float>(child + 1), "child {} has {}", child, values.back());
        }
      } catch (const std::exception& error) {
        broken[child] = error.what();
      }
    });
  threads.clear();
  for (const auto& text : broken) expect(text.empty(), "{}", text);
}

void disagreement_is_named_and_moves_nothing(Communicator& comm) {
  if (comm.size() == 1) return;
  std::vector<float> values(5, 1.0F);
  std::string output = "nothing";
  try {
    comm.all_reduce(piece(std::span(values).first(comm.rank().value == 1 ? 5 : 4)), Op::sum, {.name = "grad"});
  } catch (const Failure& failure) {
    output = failure.what();
    expect(failure.kind() == Kind::usage, "{}", output);
  }
  expect(output.find("rank 1 called all_reduce 'grad' of 5 f32") != output.npos, "a disagreement gave: {}", output);
  expect(values[0] == 1.0F, "data moved");
  comm.all_reduce(piece(std::span(values)), Op::sum);
  expect(values[4] == static_cast<float>(comm.size()), "not usable afterwards");
}

constexpr BackendLaw kLaws[]{
    {"AllReduceIsTheReference", all_reduce_is_the_reference},
    {"AGroupIsReducedPieceByPiece", a_group_is_reduced_piece_by_piece},
    {"AllRanksHoldTheSameBits", all_ranks_hold_the_same_bits},
    {"NanIsNeverLost", nan_is_never_lost},
    {"ReduceScatterGivesEachRankItsBlock", reduce_scatter_gives_each_rank_its_block},
    {"AllGatherJoinsTheParts", all_gather_joins_the_parts},
    {"RootsGiveAndTake", roots_give_and_take},
    {"AllToAllTransposes", all_to_all_transposes},
    {"MessagesAndGroupsWorkBesideIt", messages_and_groups_work_beside_it},
    {"PeerChannelsWorkBesideIt", peer_channels_work_beside_it},
    {"ChildrenRunSideBySide", children_run_side_by_side},
    {"DisagreementIsNamedAndMovesNothing", disagreement_is_named_and_moves_nothing},
};

}  // namespace

std::span<const BackendLaw> backend_laws() { return kLaws; }

}  // namespace cohort::collective
