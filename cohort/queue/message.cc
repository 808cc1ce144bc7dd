#include "cohort/queue/message.h"

#include <bit>
#include <limits>

#include "cohort/net/little.h"

namespace cohort::queue {

namespace {

class Writer : public net::LittleWriter {
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

class Reader : public net::LittleReader {
 public:
  explicit Reader(ConstBytes bytes) : LittleReader(bytes, "a queue message") {}
  double real() { return std::bit_cast<double>(number<std::uint64_t>()); }
  Rank rank() { return Rank{static_cast<std::int32_t>(number<std::uint32_t>())}; }
  // A list's length; each item takes at least `least` bytes, so a lie is found before memory is taken.
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

constexpr std::uint8_t kSizesAsked = 1, kAdasum = 2;  // flags of a signature

void put(Writer& out, const Signature& s) {
  out.number(byte_of(s.verb));
  out.number(byte_of(s.op));
  out.rank(s.root);
  out.real(s.prescale);
  out.real(s.postscale);
  out.number(static_cast<std::uint8_t>((s.sizes_asked ? kSizesAsked : 0) | (s.adasum ? kAdasum : 0)));
  out.length(s.parts.size());
  for (const PartSignature& part : s.parts) {
    out.number(byte_of(part.dtype));
    out.number(byte_of(part.device));
    out.length(part.shape.size());
    for (const auto length : part.shape) out.number(static_cast<std::uint64_t>(length));
  }
}

Signature get_signature(Reader& in) {
  Signature s;
  s.verb = in.word(Verb::recv, "verb");
  s.op = in.word(Op::product, "op");
  s.root = in.rank();
  s.prescale = in.real();
  s.postscale = in.real();
  const auto flags = in.number<std::uint8_t>();
  if (flags > (kSizesAsked | kAdasum)) throw_failure(Kind::corrupt, "a queue message has the unknown flags {}", flags);
  s.sizes_asked = (flags & kSizesAsked) != 0;
  s.adasum = (flags & kAdasum) != 0;
  s.parts.resize(in.length(6));
  for (PartSignature& part : s.parts) {
    part.dtype = in.word(Dtype::i16, "dtype");
    part.device = in.word(Device::cuda, "device");
    part.shape.resize(in.length(8));
    for (auto& length : part.shape) length = static_cast<std::int64_t>(in.number<std::uint64_t>());
  }
  return s;
}

void put(Writer& out, const Mention& mention) {
  out.number(mention.id);
  out.text(mention.name);
  if (!mention.name.empty()) put(out, mention.signature);
}

Mention get_mention(Reader& in) {
  Mention mention{in.number<NameId>(), in.text()};
  if (!mention.name.empty()) mention.signature = get_signature(in);
  return mention;
}

}  // namespace

std::vector<std::byte> encode(const Request& request) {
  Writer out;
  out.number(request.obeyed);
  out.length(request.entries.size());
  for (const Entry& entry : request.entries) {
    out.number(byte_of(entry.says));
    if (entry.says == Entry::Says::known) out.number(entry.id);
    if (entry.says != Entry::Says::fresh) continue;
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
    entry.says = in.word(Entry::Says::leave, "entry");
    if (entry.says == Entry::Says::known) entry.id = in.number<NameId>();
    if (entry.says != Entry::Says::fresh) continue;
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
  out.length(response.rulings.size());
  for (const Ruling& ruling : response.rulings) {
    out.number(byte_of(ruling.verdict.does));
    out.number(byte_of(ruling.verdict.kind));
    out.rank(ruling.verdict.rank);
    out.text(ruling.verdict.text);
    out.length(ruling.mentions.size());
    for (const Mention& mention : ruling.mentions) put(out, mention);
  }
  return out.take();
}

Response decode_response(ConstBytes bytes) {
  Reader in(bytes);
  Response response{in.number<std::uint64_t>()};
  response.forgotten.resize(in.length(4));
  for (NameId& id : response.forgotten) id = in.number<NameId>();
  response.rulings.resize(in.length(14));
  for (Ruling& ruling : response.rulings) {
    ruling.verdict.does = in.word(Verdict::Does::closed, "verdict");
    ruling.verdict.kind = in.word(Kind::bug, "kind");
    ruling.verdict.rank = in.rank();
    ruling.verdict.text = in.text();
    ruling.mentions.resize(in.length(8));
    for (Mention& mention : ruling.mentions) mention = get_mention(in);
  }
  in.end();
  return response;
}

}  // namespace cohort::queue
