// What the two ends of a PeerChannel tell each other, as messages of one tag, so in order. Bytes from a peer: decode() trusts nothing.
//
//   sender                                   receiver
//   announce (inline: the bytes are in it) ─►
//   announce_eager, then the bytes ─────────►                      of a small message: the sender is done
//   announce ───────────────────────────────►                      of any other ..
//            ◄─────────────────────────────── grant                .. once its receive is posted; then the bytes
//            ◄─────────────────────────────── refuse               .. or it has another length
//   withdraw ───────────────────────────────►                      given up before the grant; one that comes later is answered by no bytes
//            ◄─────────────────────────────── received             so many bytes of small messages: the window opens again
//   close ──────────────────────────────────────────────────────── either
// Threads: values, any.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "cohort/base/bytes.h"

namespace cohort::collective {

struct Record {
  enum class Kind : std::uint32_t { announce_inline, announce_eager, announce, grant, refuse, withdraw, received, close };
  Kind kind = Kind::close;
  std::uint32_t tag = 0;
  std::uint32_t id = 0;  // of the message, among those of its sender to this receiver
  std::uint32_t unused = 0;
  std::uint64_t length = 0;  // of the message; refuse: that the receive has; received: bytes
};
inline constexpr int kRecordKinds = 8;

std::vector<std::byte> encode(const Record& record, ConstBytes inline_bytes = {});
std::optional<Record> decode(ConstBytes bytes);  // nullopt: no record. Inline bytes are those behind sizeof(Record)

}  // namespace cohort::collective
