// What ranks and rank 0 tell each other in a negotiated queue, and its bytes.
//   Request   any rank -> rank 0: what was newly submitted here, and which responses have been obeyed
//   Response  rank 0 -> every rank: verdicts, to be obeyed in order
// Names both sides have seen run with an equal signature travel as ids (see cache.h).
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
  enum class Says : std::uint8_t { known, fresh, join, leave };
  Says says = Says::known;
  NameId id = kNoId;      // known
  std::string name{};     // fresh
  Signature signature{};  // fresh
};

struct Request {
  std::uint64_t obeyed = 0;  // number of the last response this rank has obeyed
  std::vector<Entry> entries{};
};

// A name in a verdict. id and name: it gets that id now. id alone: known. name alone: not remembered.
struct Mention {
  NameId id = kNoId;
  std::string name{};
  Signature signature{};
};

struct Ruling {
  Verdict verdict;  // its `whom` is empty: the mentions say it
  std::vector<Mention> mentions{};
};

struct Response {
  std::uint64_t number = 0;
  std::vector<NameId> forgotten{};  // ids that mean nothing from here on
  std::vector<Ruling> rulings{};
};

std::vector<std::byte> encode(const Request& request);
std::vector<std::byte> encode(const Response& response);
Request decode_request(ConstBytes bytes);
Response decode_response(ConstBytes bytes);

}  // namespace cohort::queue
