// A PeerChannel between real processes: one that is killed, or stopped, fails the calls to it, and the others go on with each other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/laws/channel_world.h"
#include "tests/laws/processes.h"

namespace cohort::collective {
namespace {

using ::testing::HasSubstr;

constexpr int kRanks = 4, kVictim = 2;
constexpr std::size_t kLarge = 2_MiB;

std::vector<float> reduced(Communicator& comm) {
  std::vector<float> values(100'000);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(i % 97) * 0.37F + 0.11F * static_cast<float>(comm.rank().value);
  comm.all_reduce(piece(std::span(values)), Op::sum);
  return values;
}

// Rank 2: talks to everybody, and in the middle of that `end` comes, after so many rounds and looks at the calls under way.
[[noreturn]] void talk_until(PeerChannel& channel, int rounds, int looks, int signal) {
  Buffer out = pattern(kLarge, kVictim);
  std::vector<Buffer> in(kRanks, Buffer(kLarge));
  for (int round = 0;; ++round) {
    std::vector<Pending> pendings;
    for (int r = 0; r < kRanks; ++r) {
      if (r == kVictim) continue;
      pendings.push_back(channel.recv(Rank{r}, 1, piece_of(in[static_cast<std::size_t>(r)])));
      pendings.push_back(channel.send(Rank{r}, 1, piece_of(out)));
    }
    for (int look = 0; round == rounds && look < looks; ++look)
      for (auto& pending : pendings) pending.poll();
    if (round == rounds) raise(signal);
    for (auto& pending : pendings) pending.wait(soon());
  }
}

void exchange(PeerChannel& channel, int to, int from, std::uint32_t tag, Deadline deadline) {
  const Buffer out = pattern(kLarge, static_cast<unsigned>(channel.rank().value));
  Buffer in(kLarge);
  auto receiving = channel.recv(Rank{from}, tag, piece_of(in));
  auto sending = channel.send(Rank{to}, tag, piece_of(out));
  sending.wait(deadline);
  receiving.wait(deadline);
  if (in != pattern(kLarge, static_cast<unsigned>(from))) throw_failure(Kind::bug, "rank {} sent other bytes", from);
}

// Ranks 0, 1, 3: what their calls to rank 2 end with, after everything else has gone on.
std::string outlive(Communicator& comm, Communicator& survivors, PeerChannel& channel, Seconds patience) {
  const auto before = reduced(survivors);
  Error error;
  while (error.what.empty()) {
    const Error how = failure_of([&] { exchange(channel, kVictim, kVictim, 1, Deadline::in(patience)); });
    if (how.what != "no failure") error = how;
  }
  const std::vector<int> ring{0, 1, 3};
  const auto at = static_cast<std::size_t>(survivors.rank().value);
  for (int i = 0; i < 3; ++i) exchange(channel, ring[(at + 1) % 3], ring[(at + 2) % 3], 7, soon());
  if (reduced(survivors) != before) return "other bits";
  for (const int r : ring)
    if (channel.lost(Rank{r})) return fmt::format("rank {} is lost to rank {}", r, comm.rank().value);
  const bool lost = channel.lost(Rank{kVictim}).has_value();
  survivors.barrier();
  return fmt::format("{}, {}: {}", kind_name(error.kind), lost ? "lost" : "not lost", error.what);
}

void expect_others_go_on(const std::string& transport, int rounds, int looks, int signal, Seconds patience, const std::string& outcome) {
  Ranks ranks(kRanks, transport, [&](Communicator& comm) -> std::string {
    const std::vector<Rank> ring{Rank{0}, Rank{1}, Rank{3}};
    const auto survivors = comm.subset(ring);
    const auto channel = comm.channel();
    if (comm.rank() == Rank{kVictim}) talk_until(*channel, rounds, looks, signal);
    return outlive(comm, *survivors, *channel, patience);
  });
  for (int r = 0; r < kRanks; ++r) ASSERT_EQ(ranks.read_line(r), "ready");
  for (const int r : {0, 1, 3}) {
    const auto line = ranks.read_line(r);
    EXPECT_THAT(line, ::testing::StartsWith(outcome)) << transport << ", rank " << r;
    EXPECT_THAT(line, HasSubstr("rank 2")) << transport << ", rank " << r;
  }
}

class ChannelProcess : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(On, ChannelProcess, ::testing::Values("shm", "tcp", "tls", "mixed"),
                         [](const auto& given) { return given.param; });

}  // namespace

TEST_P(ChannelProcess, ARankKilledInTheMiddleFailsTheCallsToItAndNoOthers) {
  const Seconds never{1e9};  // it is known by the loss, not by a deadline
  for (int looks = 0; looks < 5; ++looks) expect_others_go_on(GetParam(), looks % 3, looks, SIGKILL, never, "peer_lost, lost: ");
}

TEST_P(ChannelProcess, ARankThatIsStoppedHoldsUpNobodyElse) {
  expect_others_go_on(GetParam(), 1, 2, SIGSTOP, 300ms * slowdown(), "timeout, not lost: ");
}

}  // namespace cohort::collective
