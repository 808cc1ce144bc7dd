// What a network may do to data frames between hosts: a million of them, in streams that are each damaged in one place.
#include <gtest/gtest.h>

#include <random>

#include "cohort/net/frame/frame.h"
#include "cohort/net/tcp/receive_stream.h"

namespace cohort::net {
namespace {

constexpr int kFrames = 20;       // of a stream
constexpr int kStreams = 50'000;  // a million frames
constexpr std::uint64_t kSeed = 20240607;

using ByteStream = std::vector<std::byte>;

std::vector<std::byte> body_of(int stream, int frame) {
  std::vector<std::byte> body(static_cast<std::size_t>(8 + (stream * 7 + frame * 13) % 120));
  for (std::size_t i = 0; i < body.size(); ++i) body[i] = static_cast<std::byte>(stream + 31 * frame + 7 * static_cast<int>(i));
  return body;
}

ByteStream frame_of(int stream, int number) {
  const auto body = body_of(stream, number);
  const auto sequence = static_cast<std::uint64_t>(number);
  const HeaderBytes header =
      encode_header({.type = kDataFrame, .flags = kChecksumFlag, .length = body.size(), .tag = {0, 1}, .sequence = sequence});
  const TrailerBytes trailer = good_trailer(crc32c(body));
  ByteStream out(header.begin(), header.end());
  out.insert(out.end(), body.begin(), body.end());
  out.insert(out.end(), trailer.begin(), trailer.end());
  return out;
}

ByteStream join(const std::vector<ByteStream>& frames) {
  ByteStream out;
  for (const auto& frame : frames) out.insert(out.end(), frame.begin(), frame.end());
  return out;
}

enum class Fault : unsigned char { none, flip, burst, cut_out, doubled_bytes, truncate, duplicate, swap, replay, lose, count };

ByteStream damaged(const std::vector<ByteStream>& frames, const ByteStream& elsewhere, Fault fault, std::mt19937_64& random) {
  const auto any = [&](std::size_t below) { return std::uniform_int_distribution<std::size_t>(0, below - 1)(random); };
  const auto at_frame = [&](std::vector<ByteStream>& all) { return all.begin() + static_cast<std::ptrdiff_t>(any(all.size() - 1)); };
  std::vector<ByteStream> changed = frames;
  if (fault == Fault::duplicate) {
    const auto which = at_frame(changed);
    changed.insert(which, ByteStream(*which));
  }
  if (fault == Fault::swap) std::iter_swap(at_frame(changed), changed.end() - 1);
  if (fault == Fault::replay) *at_frame(changed) = elsewhere;  // a good frame of another moment
  if (fault == Fault::lose) changed.erase(at_frame(changed));
  ByteStream out = join(changed);
  const std::size_t at = any(out.size() - 40);
  const auto place = out.begin() + static_cast<std::ptrdiff_t>(at);
  const auto some = static_cast<std::ptrdiff_t>(1 + any(32));
  if (fault == Fault::flip) *place ^= static_cast<std::byte>(1 << any(8));
  if (fault == Fault::burst) std::for_each(place, place + some, [&](std::byte& b) { b ^= static_cast<std::byte>(1 + any(255)); });
  if (fault == Fault::cut_out) out.erase(place, place + some);
  if (fault == Fault::doubled_bytes) {
    const ByteStream again(place, place + some);
    out.insert(place, again.begin(), again.end());
  }
  if (fault == Fault::truncate) out.resize(at);
  return out;
}

// How many messages came before the stream ended; a failure of the test when one is not what was sent in its place.
int received(const ByteStream& bytes, int stream, ReceiveStream::Pull& end) {
  Mailbox mailbox(Rank{0}, 2);
  ReceiveStream in(mailbox, Rank{1});
  end = in.feed(bytes);
  int count = 0;
  for (auto message = mailbox.take({0, 0, 9}); message; message = mailbox.take({0, 0, 9}))
    EXPECT_EQ(message->bytes, body_of(stream, count++)) << "silent corruption, stream " << stream << ", seed " << kSeed;
  return count;
}

TEST(Corruption, OfAMillionFramesNoneIsTakenForAnother) {
  std::mt19937_64 random(kSeed);
  std::array<int, static_cast<std::size_t>(Fault::count)> noticed{};
  for (int c = 0; c < kStreams && !testing::Test::HasFailure(); ++c) {
    const auto fault = static_cast<Fault>(c % static_cast<int>(Fault::count));
    std::vector<ByteStream> frames;
    for (int f = 0; f < kFrames; ++f) frames.push_back(frame_of(c, f));
    ReceiveStream::Pull end;
    const int came = received(damaged(frames, frame_of(c + 1, kFrames), fault, random), c, end);
    const bool whole = came == kFrames && end.end == ReceiveStream::End::none;
    EXPECT_EQ(whole, fault == Fault::none) << "fault " << static_cast<int>(fault) << " of stream " << c << ", seed " << kSeed;
    if (end.end == ReceiveStream::End::corrupt) ++noticed[static_cast<std::size_t>(fault)];
  }
  EXPECT_EQ(noticed[static_cast<std::size_t>(Fault::none)], 0);
  for (const Fault loud : {Fault::flip, Fault::burst, Fault::duplicate, Fault::swap, Fault::replay, Fault::lose})
    EXPECT_GT(noticed[static_cast<std::size_t>(loud)], kStreams / static_cast<int>(Fault::count) * 9 / 10) << static_cast<int>(loud);
}

}  // namespace
}  // namespace cohort::net
