// Records of a peer's PeerChannel. Each begins with a byte that gives its length; whatever comes, calls to that peer may fail, calls to
// others go on, and nothing is read or written out of place.
#include <span>

#include "cohort/collective/channel/channel_core.h"
#include "cohort/net/transport/loopback.h"

using namespace cohort;
using namespace cohort::collective;

namespace {

constexpr std::uint32_t kChannel = 4;

Piece piece_of(std::span<std::byte> bytes) { return {bytes.data(), bytes.size(), Dtype::u8, Device::cpu}; }

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* input, std::size_t size) {
  std::vector<std::shared_ptr<net::PeerLinks>> links;
  for (auto& one : net::loopback_world(3)) links.push_back(std::move(one));
  const std::vector<Rank> all{Rank{0}, Rank{1}, Rank{2}};
  std::byte in[4] = {}, other[4] = {}, out[128_KiB] = {};
  {
    PeerChannel channel(std::make_shared<ChannelCore>(links[0], all, 0, kChannel, std::make_shared<MovedCounters>()));
    Pending receiving = channel.recv(Rank{1}, 1, piece_of(in)), sending = channel.send(Rank{1}, 1, piece_of(out));
    ConstBytes bytes = std::as_bytes(std::span(input, size));
    while (!bytes.empty()) {
      const auto length = std::min<std::size_t>(std::to_integer<std::size_t>(bytes[0]), bytes.size() - 1);
      links[1]->link(Rank{0}).send(bytes.subspan(1, length), {kChannel, 0}).wait(Deadline::in(Seconds{1}));
      bytes = bytes.subspan(1 + length);
      receiving.poll();
    }
    sending.poll();
    Pending to_self = channel.send(Rank{0}, 2, piece_of(other)), from_self = channel.recv(Rank{0}, 2, piece_of(other));
    to_self.wait(Deadline::in(Seconds{1}));
    from_self.wait(Deadline::in(Seconds{1}));
  }
  return 0;
}
