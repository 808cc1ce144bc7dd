#include "cohort/ps/message.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "cohort/net/frame/little_endian.h"

namespace cohort::ps {
namespace {

using net::ByteReader;
using net::ByteWriter;

constexpr std::uint16_t kMagic = 0x5053;
constexpr std::uint8_t kLastKind = static_cast<std::uint8_t>(Kind::bug);

void put(ByteWriter& out, double value) { out.number(std::bit_cast<std::uint64_t>(value)); }
double take_double(ByteReader& in) { return std::bit_cast<double>(in.number<std::uint64_t>()); }
void put(ByteWriter& out, std::int64_t value) { out.number(static_cast<std::uint64_t>(value)); }
std::int64_t take_signed(ByteReader& in) { return static_cast<std::int64_t>(in.number<std::uint64_t>()); }

void put(ByteWriter& out, std::string_view text) {
  out.number(static_cast<std::uint32_t>(text.size()));
  out.letters(text);
}
std::string take_text(ByteReader& in) {
  const auto n = in.number<std::uint32_t>();
  if (n > kMostNameBytes) throw_failure(Kind::corrupt, "a definition of a table has a text of {} bytes", n);
  return in.letters(n);
}

template <std::size_t n>
std::array<std::byte, n> fixed(ByteWriter& out) {
  const auto bytes = out.take();
  std::array<std::byte, n> all{};
  std::copy_n(bytes.begin(), std::min(n, bytes.size()), all.begin());
  return all;
}

void refuse_unless(bool right, std::string_view what) {
  if (!right) throw_failure(Kind::corrupt, "a message between worker and server has {}", what);
}

}  // namespace

std::array<std::byte, kRequestBytes> encode(const Request& r) {
  ByteWriter out;
  out.number(kMagic);
  out.number(static_cast<std::uint8_t>(r.verb));
  out.number(static_cast<std::uint8_t>(r.go));
  out.number(r.table);
  out.number(r.which);
  out.number(std::uint32_t{0});
  put(out, r.clock);
  out.number(r.seq);
  out.number(r.first);
  out.number(r.count);
  put(out, r.slack);
  out.number(r.payload);
  put(out, r.lr);
  put(out, r.scale);
  return fixed<kRequestBytes>(out);
}

Request decode_request(ConstBytes bytes) {
  ByteReader in(bytes, "a request to a server");
  refuse_unless(in.number<std::uint16_t>() == kMagic, "another beginning");
  Request r;
  const auto verb = in.number<std::uint8_t>(), go = in.number<std::uint8_t>();
  refuse_unless(verb >= 1 && verb <= kLastVerb, "an unknown verb");
  refuse_unless(go <= 1, "neither yes nor no");
  r.verb = static_cast<Verb>(verb);
  r.go = go == 1;
  r.table = in.number<std::uint32_t>();
  r.which = in.number<std::uint32_t>();
  refuse_unless(in.number<std::uint32_t>() == 0, "something where nothing belongs");
  r.clock = take_signed(in);
  r.seq = in.number<std::uint64_t>();
  r.first = in.number<std::uint64_t>();
  r.count = in.number<std::uint64_t>();
  r.slack = take_signed(in);
  r.payload = in.number<std::uint64_t>();
  r.lr = take_double(in);
  r.scale = take_double(in);
  in.end();
  refuse_unless(r.table < kMostTables, "a table that cannot be");
  refuse_unless(r.clock >= 0 && r.slack >= Request::kOfTable, "a negative clock");
  return r;
}

std::array<std::byte, kReplyBytes> encode(const Reply& r) {
  ByteWriter out;
  out.number(kMagic);
  out.number(static_cast<std::uint8_t>(r.failed));
  out.number(static_cast<std::uint8_t>(r.kind));
  out.number(r.table);
  put(out, r.clock);
  put(out, r.low);
  put(out, r.version);
  out.number(r.payload);
  const std::string_view text = std::string_view(r.text).substr(0, kMostReplyText);
  out.number(static_cast<std::uint64_t>(text.size()));
  out.letters(text);
  return fixed<kReplyBytes>(out);
}

Reply decode_reply(ConstBytes bytes) {
  refuse_unless(bytes.size() == kReplyBytes, "another length than a reply");
  ByteReader in(bytes, "a reply of a server");
  refuse_unless(in.number<std::uint16_t>() == kMagic, "another beginning");
  Reply r;
  const auto failed = in.number<std::uint8_t>(), kind = in.number<std::uint8_t>();
  refuse_unless(failed <= 1, "neither yes nor no");
  refuse_unless(kind <= kLastKind, "an unknown kind of failure");
  r.failed = failed == 1;
  r.kind = static_cast<Kind>(kind);
  r.table = in.number<std::uint32_t>();
  r.clock = take_signed(in);
  r.low = take_signed(in);
  r.version = take_signed(in);
  r.payload = in.number<std::uint64_t>();
  const auto n = in.number<std::uint64_t>();
  refuse_unless(n <= kMostReplyText, "a text that is too long");
  r.text = in.letters(n);
  return r;
}

std::vector<std::byte> encode(const Definition& d) {
  ByteWriter out;
  put(out, std::string_view(d.dense.name));
  put(out, std::string_view(d.dense.rule));
  put(out, std::string_view(d.clock));
  out.number(static_cast<std::uint8_t>(d.dense.dtype));
  out.number(static_cast<std::uint8_t>(d.average));
  out.number(d.workers);
  out.number(d.width);
  out.number(static_cast<std::uint64_t>(d.dense.count));
  out.number(static_cast<std::uint32_t>(d.dense.parts.size()));
  for (const Part& part : d.dense.parts) {
    out.number(static_cast<std::uint64_t>(part.first));
    out.number(static_cast<std::uint64_t>(part.count));
    put(out, part.lr_scale);
    put(out, part.weight_decay);
  }
  return out.take();
}

Definition decode_definition(ConstBytes bytes) {
  constexpr std::size_t kPartBytes = 32;
  ByteReader in(bytes, "a definition of a table");
  Definition d;
  d.dense.name = take_text(in);
  d.dense.rule = take_text(in);
  d.clock = take_text(in);
  const auto dtype = in.number<std::uint8_t>(), average = in.number<std::uint8_t>();
  refuse_unless(dtype < kDtypes, "an unknown type of elements");
  refuse_unless(average <= 1, "neither yes nor no");
  d.dense.dtype = static_cast<Dtype>(dtype);
  d.average = average == 1;
  d.workers = in.number<std::uint32_t>();
  d.width = in.number<std::uint32_t>();
  d.dense.count = in.number<std::uint64_t>();
  refuse_unless(d.workers >= 1, "no workers");
  refuse_unless(d.dense.count <= SIZE_MAX / 16, "more elements than there can be");
  refuse_unless(in.left() >= 4, "no parts");
  const auto parts = in.number<std::uint32_t>();
  refuse_unless(in.left() == parts * kPartBytes, "another number of parts than it says");
  for (std::uint32_t p = 0; p < parts; ++p) {
    Part part;
    part.first = in.number<std::uint64_t>();
    part.count = in.number<std::uint64_t>();
    part.lr_scale = take_double(in);
    part.weight_decay = take_double(in);
    d.dense.parts.push_back(part);
  }
  return d;
}

std::vector<std::byte> encode_missing(const std::vector<bool>& missing) {
  std::vector<std::byte> bytes((missing.size() + 7) / 8);
  for (std::size_t i = 0; i < missing.size(); ++i)
    if (missing[i]) bytes[i / 8] |= static_cast<std::byte>(1U << (i % 8));
  return bytes;
}

std::vector<bool> decode_missing(ConstBytes bytes, std::size_t parts) {
  if (bytes.size() != (parts + 7) / 8)
    throw_failure(Kind::corrupt, "{} bytes say which of {} tensors are missing; they take {}", bytes.size(), parts, (parts + 7) / 8);
  std::vector<bool> missing(parts);
  for (std::size_t i = 0; i < parts; ++i) missing[i] = (std::to_integer<unsigned>(bytes[i / 8]) >> (i % 8) & 1U) != 0;
  return missing;
}

}  // namespace cohort::ps
