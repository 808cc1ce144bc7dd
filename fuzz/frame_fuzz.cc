// Bytes of a peer, as read from a socket: control frames (with a MAC) and data frames. The first byte says how to cut the stream
// into pieces and which reader gets it. Whatever comes, nothing but Kind::corrupt may happen, and memory stays bounded.
#include <algorithm>
#include <cstring>

#include "cohort/base/error.h"
#include "cohort/net/frame/frame.h"
#include "cohort/net/tcp/receive_stream.h"
#include "cohort/net/transport/mailbox.h"

using namespace cohort;
using namespace cohort::net;

namespace {

void control(ConstBytes bytes, std::size_t piece) {
  ControlFrameReader reader{Key{}};
  while (!bytes.empty()) {
    const Bytes space = reader.space();
    if (space.empty() || space.size() > kControlCap + kDigestBytes) __builtin_trap();
    const std::size_t n = std::min({piece, bytes.size(), space.size()});
    std::memcpy(space.data(), bytes.data(), n);
    const auto frame = reader.advance(n);
    if (frame && frame->body.size() > kControlCap) __builtin_trap();
    bytes = bytes.subspan(n);
  }
}

void data(ConstBytes bytes, std::size_t piece) {
  Mailbox mailbox(Rank{0}, 2, 64_KiB);
  std::byte small[4];
  const auto receive = mailbox.post(Rank{1}, {0, 1}, small);
  ReceiveStream in(mailbox, Rank{1});
  while (!bytes.empty()) {
    const ReceiveStream::Pull pulled = in.feed(bytes.first(std::min(piece, bytes.size())));
    if (pulled.end != ReceiveStream::End::none || pulled.paused) break;
    bytes = bytes.subspan(std::min(piece, bytes.size()));
  }
  while (mailbox.take({0, 0, ~0U})) {
  }
  mailbox.fail(Rank{1}, {Kind::peer_lost, "end of input", Rank{1}});
  if (!receive->done()) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* input, std::size_t size) {
  if (size == 0) return 0;
  const std::size_t piece = std::size_t{1} << (input[0] & 15);
  const ConstBytes bytes = std::as_bytes(std::span(input + 1, size - 1));
  try {
    (input[0] & 16) != 0 ? control(bytes, piece) : data(bytes, piece);
  } catch (const Failure& f) {
    if (f.kind() != Kind::corrupt) __builtin_trap();
  }
  return 0;
}
