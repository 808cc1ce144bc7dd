// The messages between the ranks and rank 0 of a negotiated queue, and their bytes.
//   Request   any rank -> rank 0: what was newly submitted here, and which responses have been applied
//   Response  rank 0 -> every rank: decisions, to be applied in order
// Names that both sides have seen run with an equal signature are sent as ids (see name_cache.h).
// Threads: values. Failure: decoding throws Kind::corrupt naming the sender's field; lengths are checked before memory is taken.
// Layout: docs/wire.md; integers little-endian, strings and lists with a u32 length first.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "cohort/base/bytes.h"
#include "cohort/queue/negotiator.h"

namespace cohort::queue {

using NameId = std::uint32_t;
inline constexpr NameId kNoId = 0;

struct Entry {
  enum class Type : std::uint8_t { known, fresh, join, leave };
  Type type = Type::known;
  NameId id = kNoId;      // known
  std::string name{};     // fresh
  Signature signature{};  // fresh
};

struct Request {
  std::uint64_t acknowledged = 0;  // number of the last response this rank has applied
  std::vector<Entry> entries{};
};

// A name in a decision. id and name: it gets that id now. id alone: known. name alone: not remembered.
struct NameRef {
  NameId id = kNoId;
  std::string name{};
  Signature signature{};
};

struct DecisionMessage {
  Decision decision;  // its `affected` is empty: name_refs has it
  std::vector<NameRef> name_refs{};
};

struct Response {
  std::uint64_t number = 0;
  std::vector<NameId> forgotten{};  // ids that are invalid from here on
  std::vector<DecisionMessage> decisions{};
};

std::vector<std::byte> encode(const Request& request);
std::vector<std::byte> encode(const Response& response);
Request decode_request(ConstBytes bytes);
Response decode_response(ConstBytes bytes);

}  // namespace cohort::queue
