#include "cohort/queue/message.h"

#include <bit>
#include <limits>

#include "cohort/net/frame/little_endian.h"

namespace cohort::queue {

namespace {

class Writer : public net::ByteWriter {
 public:
  void real(double value) { number(std::bit_cast<std::uint64_t>(value)); }
  void rank(Rank rank) { number(static_cast<std::uint32_t>(rank.value)); }
  void length(std::size_t n) {
    if (n > std::numeric_limits<std::uint32_t>::max()) throw_failure(Kind::usage, "a list of {} does not fit a message", n);
    number(static_cast<std::uint32_t>(n));
  }
  void text(std::string_view text) {
    length(text.size());
    letters(text);
  }
};

class Reader : public net::ByteReader {
 public:
  explicit Reader(ConstBytes bytes) : ByteReader(bytes, "a queue message") {}
  double real() { return std::bit_cast<double>(number<std::uint64_t>()); }
  Rank rank() { return Rank{static_cast<std::int32_t>(number<std::uint32_t>())}; }
  // A list's length; each item takes at least `least` bytes, so a wrong length is found before memory is allocated.
  std::size_t length(std::size_t least) {
    const std::size_t n = number<std::uint32_t>();
    if (n * least > left()) throw_failure(Kind::corrupt, "a queue message announces {} items but has {} bytes left", n, left());
    return n;
  }
  std::string text() { return letters(length(1)); }
  template <class Enum>
  Enum word(Enum last, std::string_view what) {
    const auto value = number<std::uint8_t>();
    if (value > static_cast<std::uint8_t>(last)) throw_failure(Kind::corrupt, "a queue message has the unknown {} {}", what, value);
    return static_cast<Enum>(value);
  }
};

template <class Enum>
std::uint8_t byte_of(Enum value) {
  return static_cast<std::uint8_t>(value);
}

constexpr std::uint8_t kSizesAsked = 1, kAdasum = 2, kCodec = 4;  // flags of a signature

void put(Writer& out, const Signature& s) {
  out.number(byte_of(s.collective));
  out.number(byte_of(s.op));
  out.rank(s.root);
  out.real(s.prescale);
  out.real(s.postscale);
  out.number(static_cast<std::uint8_t>((s.sizes_asked ? kSizesAsked : 0) | (s.adasum ? kAdasum : 0) | (s.codec.empty() ? 0 : kCodec)));
  if (!s.codec.empty()) out.text(s.codec);
  out.length(s.parts.size());
  for (const PartSignature& part : s.parts) {
    out.number(byte_of(part.dtype));
    out.number(byte_of(part.device.kind));
    out.length(part.shape.size());
    for (const auto length : part.shape) out.number(static_cast<std::uint64_t>(length));
  }
}

Signature get_signature(Reader& in) {
  Signature s;
  s.collective = in.word(Collective::recv, "collective");
  s.op = in.word(Op::product, "op");
  s.root = in.rank();
  s.prescale = in.real();
  s.postscale = in.real();
  const auto flags = in.number<std::uint8_t>();
  if (flags > (kSizesAsked | kAdasum | kCodec)) throw_failure(Kind::corrupt, "a queue message has the unknown flags {}", flags);
  s.sizes_asked = (flags & kSizesAsked) != 0;
  s.adasum = (flags & kAdasum) != 0;
  if ((flags & kCodec) != 0) s.codec = in.text();
  s.parts.resize(in.length(6));
  for (PartSignature& part : s.parts) {
    part.dtype = in.word(Dtype::i16, "dtype");
    part.device.kind = in.word(DeviceKind::cuda, "device");
    part.shape.resize(in.length(8));
    for (auto& length : part.shape) length = static_cast<std::int64_t>(in.number<std::uint64_t>());
  }
  return s;
}

void put(Writer& out, const NameRef& name_ref) {
  out.number(name_ref.id);
  out.text(name_ref.name);
  if (!name_ref.name.empty()) put(out, name_ref.signature);
}

NameRef get_name_ref(Reader& in) {
  NameRef name_ref{in.number<NameId>(), in.text()};
  if (!name_ref.name.empty()) name_ref.signature = get_signature(in);
  return name_ref;
}

}  // namespace

std::vector<std::byte> encode(const Request& request) {
  Writer out;
  out.number(request.acknowledged);
  out.length(request.entries.size());
  for (const Entry& entry : request.entries) {
    out.number(byte_of(entry.type));
    if (entry.type == Entry::Type::known) out.number(entry.id);
    if (entry.type != Entry::Type::fresh) continue;
    out.text(entry.name);
    put(out, entry.signature);
  }
  return out.take();
}

Request decode_request(ConstBytes bytes) {
  Reader in(bytes);
  Request request{in.number<std::uint64_t>()};
  request.entries.resize(in.length(1));
  for (Entry& entry : request.entries) {
    entry.type = in.word(Entry::Type::leave, "entry");
    if (entry.type == Entry::Type::known) entry.id = in.number<NameId>();
    if (entry.type != Entry::Type::fresh) continue;
    entry.name = in.text();
    entry.signature = get_signature(in);
  }
  in.end();
  return request;
}

std::vector<std::byte> encode(const Response& response) {
  Writer out;
  out.number(response.number);
  out.length(response.forgotten.size());
  for (const NameId id : response.forgotten) out.number(id);
  out.length(response.decisions.size());
  for (const DecisionMessage& decision_message : response.decisions) {
    out.number(byte_of(decision_message.decision.action));
    out.number(byte_of(decision_message.decision.kind));
    out.rank(decision_message.decision.rank);
    out.text(decision_message.decision.text);
    out.length(decision_message.name_refs.size());
    for (const NameRef& name_ref : decision_message.name_refs) put(out, name_ref);
  }
  return out.take();
}

Response decode_response(ConstBytes bytes) {
  Reader in(bytes);
  Response response{in.number<std::uint64_t>()};
  response.forgotten.resize(in.length(4));
  for (NameId& id : response.forgotten) id = in.number<NameId>();
  response.decisions.resize(in.length(14));
  for (DecisionMessage& decision_message : response.decisions) {
    decision_message.decision.action = in.word(Decision::Action::closed, "action");
    decision_message.decision.kind = in.word(Kind::bug, "kind");
    decision_message.decision.rank = in.rank();
    decision_message.decision.text = in.text();
    decision_message.name_refs.resize(in.length(8));
    for (NameRef& name_ref : decision_message.name_refs) name_ref = get_name_ref(in);
  }
  in.end();
  return response;
}

}  // namespace cohort::queue
