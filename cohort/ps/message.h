// What workers and servers tell each other. A worker sends requests, in order, each of kRequestBytes and followed by its payload where it
// has one; the server answers those that ask for something with a reply of kReplyBytes, followed by what was asked for.
//
//   worker                              server
//   make, definition ──────────────────►            a table with so many workers; all define it alike
//   push, values ──────────────────────►            staged                    rows: ids and values
//   mark [, which tensors are missing] ►            counts, or does not; ends the worker's clock
//   pull [, ids of rows] ──────────────►            parked until the gate opens
//          ◄────────────────── reply, values
//   put, values ───────────────────────►            values or a state of a table become these
//          ◄────────────────── reply
//   fetch ─────────────────────────────►
//          ◄────────────────── reply, values or a state of a table
//   bye ───────────────────────────────►            nothing comes any more
// All numbers are little-endian. Bytes from a peer: decode() trusts nothing, and a payload is received only when its size is what the table
// makes of the request; what is refused takes no memory, and its sender sees another length (Kind::corrupt).
// Threads: values, any. Failure: Kind::corrupt from decode(), naming what is wrong.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "cohort/base/bytes.h"
#include "cohort/base/error.h"
#include "cohort/ps/store.h"

namespace cohort::ps {

inline constexpr std::uint32_t kRequestTag = 0, kPayloadTag = 1, kReplyTag = 2;  // kReplyTag + 2 table, and one more for its payload
inline constexpr std::uint32_t kMostTables = 1U << 20;
inline constexpr std::size_t kMostDefinitionBytes = 64_MiB, kMostNameBytes = 1000, kMostRows = 1U << 24;  // rows: of one message
inline constexpr std::size_t kMostRowsBytes = std::size_t{1} << 30;                                       // that a message with rows takes

enum class Verb : std::uint8_t { make = 1, push, mark, pull, put, fetch, bye };
inline constexpr std::uint8_t kLastVerb = static_cast<std::uint8_t>(Verb::bye);

struct Request {
  Verb verb = Verb::bye;
  bool go = true;  // mark
  std::uint32_t table = 0;
  std::uint32_t which = 0;             // put, fetch: 0: the values, 1 ..: states of the rule; mark: 1: the next read is to be sent
  std::int64_t clock = 0;              // of the worker
  std::uint64_t seq = 0;               // push, mark
  std::uint64_t first = 0, count = 0;  // put, fetch: elements of the shard; push, pull of rows: so many
                                       // push, mark: first: updates before the table's first clock (table.h)
  std::int64_t slack = kOfTable;       // pull: in place of the gate's
  std::uint64_t payload = 0;           // bytes that follow
  double lr = 0, scale = 1;            // mark
  static constexpr std::int64_t kOfTable = -1;
  bool operator==(const Request&) const = default;
};
inline constexpr std::size_t kRequestBytes = 80;
std::array<std::byte, kRequestBytes> encode(const Request& request);
Request decode_request(ConstBytes bytes);

struct Reply {
  bool failed = false;
  Kind kind = Kind::bug;  // of the failure, whose text this is
  std::uint32_t table = 0;
  std::int64_t clock = 0, low = 0, version = 0;
  std::uint64_t payload = 0;
  std::string text{};  // at most kMostReplyText of it travel
  bool operator==(const Reply&) const = default;
};
inline constexpr std::size_t kReplyBytes = 512, kReplyHead = 48, kMostReplyText = kReplyBytes - kReplyHead;
std::array<std::byte, kReplyBytes> encode(const Reply& reply);
Reply decode_reply(ConstBytes bytes);

// A shard of a table as its workers define it.
struct Definition {
  DenseSpec dense;          // rows: name, type and rule
  std::uint32_t width = 0;  // 0: a table of elements; else of rows of so many, which are there once they were pushed
  std::string clock;        // gate.h
  std::uint32_t workers = 1;
  bool average = true;
};
std::vector<std::byte> encode(const Definition& definition);
Definition decode_definition(ConstBytes bytes);

// Which tensors a worker has no gradient of: a bit for each part.
std::vector<std::byte> encode_missing(const std::vector<bool>& missing);
std::vector<bool> decode_missing(ConstBytes bytes, std::size_t parts);

}  // namespace cohort::ps
