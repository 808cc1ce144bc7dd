#include "cohort/net/tcp/receive_stream.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "cohort/net/tcp/send_stream.h"

namespace cohort::net {
namespace {

// An encoded message: header, blocks, a trailer after each.
std::vector<std::byte> stream_of(std::size_t bytes) {
  const std::vector<std::byte> body(bytes);
  const HeaderBytes header = encode_header({.type = kDataFrame, .flags = kChecksumFlag, .length = bytes, .tag = {0, 1}, .sequence = 0});
  std::vector<std::byte> out(header.begin(), header.end());
  for (std::size_t at = 0; at < bytes; at += kBlockBytes) {
    const ConstBytes block = ConstBytes(body).subspan(at, std::min(kBlockBytes, bytes - at));
    const TrailerBytes trailer = good_trailer(crc32c(block));
    out.insert(out.end(), block.begin(), block.end());
    out.insert(out.end(), trailer.begin(), trailer.end());
  }
  return out;
}

}  // namespace

// A thread that sleeps until so many bytes have come must not sleep for ever: sure() is never more than what is left, wherever a read
// ended.
TEST(ReceiveStream, NeverCountsOnMoreThanIsStillToCome) {
  const auto stream = stream_of(2 * kBlockBytes + 1000);
  for (const std::size_t piece : {std::size_t{1}, std::size_t{777}, std::size_t{100'000}, 3 * kBlockBytes}) {
    Mailbox mailbox(Rank{0}, 2);
    std::vector<std::byte> place(2 * kBlockBytes + 1000);
    const auto receive = mailbox.post(Rank{1}, {0, 1}, place);
    ReceiveStream in(mailbox, Rank{1});
    std::size_t most = 0;
    for (std::size_t at = 0; at < stream.size(); at += piece) {
      ASSERT_LE(in.sure(), stream.size() - at) << "after " << at << " bytes in pieces of " << piece;
      ASSERT_EQ(in.feed(ConstBytes(stream).subspan(at, std::min(piece, stream.size() - at))).end, ReceiveStream::End::none);
      most = std::max(most, in.sure());
    }
    EXPECT_TRUE(receive->done());
    EXPECT_EQ(in.sure(), 1U) << "the next message may be small, or never come";
    if (piece == 1) {
      EXPECT_EQ(most, kBlockBytes + kTrailerBytes);
    }
  }
}

// A sender that gives up in the middle pads its block first, so what was sure comes even then.
TEST(ReceiveStream, ASenderThatGivesUpStillSendsWhatWasSure) {
  const auto stream = stream_of(kBlockBytes + 5000);
  for (const std::size_t cut :
       {kHeaderBytes + 1, kHeaderBytes + 400'000, kHeaderBytes + kBlockBytes + 2, kHeaderBytes + kBlockBytes + 100}) {
    Mailbox mailbox(Rank{0}, 2);
    ReceiveStream in(mailbox, Rank{1});
    std::vector<std::byte> place(kBlockBytes + 5000);
    const auto receive = mailbox.post(Rank{1}, {0, 1}, place);
    ASSERT_EQ(in.feed(ConstBytes(stream).first(cut)).end, ReceiveStream::End::none);
    HeaderBytes header;
    std::copy_n(stream.begin(), kHeaderBytes, header.begin());
    const std::uint32_t check = crc32c(std::vector<std::byte>(kBlockBytes));
    EXPECT_LE(in.sure(), void_rest(header, kBlockBytes + 5000, cut, check).size()) << "cut at " << cut;
    mailbox.fail(Rank{1}, {Kind::peer_lost, "end of test", Rank{1}});
  }
}

}  // namespace cohort::net
