#include "cohort/group/orders.h"

#include <algorithm>
#include <string_view>

#include "cohort/group/rendezvous.h"
#include "cohort/net/little.h"

namespace cohort::group {
namespace {

constexpr std::uint64_t kNoStep = UINT64_MAX;
constexpr std::string_view kWhat = "a message of an elastic job";

template <class... Cases>
struct Match : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Match(Cases...) -> Match<Cases...>;  // clang 14 asks for it

class Writer : public net::LittleWriter {
 public:
  void step(std::int64_t value) { number(static_cast<std::uint64_t>(value)); }
  void maybe(std::optional<std::int64_t> value) { number(value ? static_cast<std::uint64_t>(*value) : kNoStep); }
  void flag(bool value) { number<std::uint8_t>(value ? 1 : 0); }
  void epoch(Epoch value) { number(value.value); }
  void rank(Rank value) { number(static_cast<std::uint32_t>(value.value)); }
  void rest(std::string_view text) { letters(text.substr(0, kMostWords)); }
  void bytes(const std::vector<std::byte>& all) { letters({reinterpret_cast<const char*>(all.data()), all.size()}); }
  void standing(const std::optional<Standing>& s) {
    flag(s.has_value());
    const Standing value = s.value_or(Standing{});
    epoch(value.epoch);
    step(value.applied);
    flag(value.prepared);
  }
};

class Reader : public net::LittleReader {
 public:
  explicit Reader(ConstBytes bytes) : LittleReader(bytes, kWhat) {}
  std::int64_t step() {
    const auto value = number<std::uint64_t>();
    if (value > INT64_MAX) throw_failure(Kind::corrupt, "{} holds step {}, which cannot be", kWhat, value);
    return static_cast<std::int64_t>(value);
  }
  std::optional<std::int64_t> maybe() {
    const auto value = number<std::uint64_t>();
    if (value == kNoStep) return std::nullopt;
    if (value > INT64_MAX) throw_failure(Kind::corrupt, "{} holds step {}, which cannot be", kWhat, value);
    return static_cast<std::int64_t>(value);
  }
  bool flag() {
    const auto value = number<std::uint8_t>();
    if (value > 1) throw_failure(Kind::corrupt, "{} holds {} where only yes or no is possible", kWhat, value);
    return value == 1;
  }
  Epoch epoch() { return Epoch{number<std::uint32_t>()}; }
  Rank rank() {
    const Rank value{static_cast<std::int32_t>(number<std::uint32_t>())};
    if (value < kNoRank) throw_failure(Kind::corrupt, "{} holds rank {}, which cannot be", kWhat, value.value);
    return value;
  }
  std::string rest() {
    if (left() > kMostWords) throw_failure(Kind::corrupt, "{} has {} bytes of text; at most {} are possible", kWhat, left(), kMostWords);
    return letters(left());
  }
  std::vector<std::byte> rest_bytes() {
    const std::string raw = letters(left());
    const auto bytes = std::as_bytes(std::span(raw));
    return {bytes.begin(), bytes.end()};
  }
  Error error() {
    constexpr std::size_t kMost = kMostWords + 5;  // behind its kind and its rank
    if (left() > kMost) throw_failure(Kind::corrupt, "{} has an error of {} bytes; at most {} are possible", kWhat, left(), kMost);
    return decode_error(rest_bytes());
  }
  std::optional<Standing> standing() {
    const bool there = flag();
    Standing s;
    s.epoch = epoch();
    s.applied = step();
    s.prepared = flag();
    if (!there && s != Standing{}) throw_failure(Kind::corrupt, "{} tells where somebody without state stands", kWhat);
    return there ? std::optional(s) : std::nullopt;
  }
};

[[noreturn]] void stays_here(std::string_view what) { throw_failure(Kind::bug, "{} does not travel", what); }

Arrive read_arrive(Reader& r, Guest guest) {
  Arrive a{.guest = guest};
  a.worker.id = WorkerId{r.number<std::uint64_t>()};
  a.epoch = r.epoch();
  a.sealed = r.flag();
  a.settled = r.flag();
  a.standing = r.standing();
  const Join join = decode_join(r.rest_bytes());
  if (join.size != 0) throw_failure(Kind::corrupt, "{}: a worker that believes in {} ranks", kWhat, join.size);
  a.worker.member = join.member;
  return a;
}

Begin read_begin(Reader& r) {
  Begin b;
  b.term = r.number<std::uint64_t>();
  b.rank = r.rank();
  b.base = r.maybe();
  b.heal_from = r.rank();
  b.roster = decode_roster(r.rest_bytes());
  const auto inside = [&](Rank rank) { return rank.value < b.roster.size(); };
  if (!b.rank || !inside(b.rank) || !inside(b.heal_from) || b.heal_from == b.rank || b.roster.epoch.value == 0)
    throw_failure(Kind::corrupt, "{}: rank {} of {}, with the state of rank {}, in epoch {}", kWhat, b.rank.value, b.roster.size(),
                  b.heal_from.value, b.roster.epoch.value);
  return b;
}

Stop read_stop(Reader& r) {
  if (!r.flag()) return {};
  return {{}, r.error()};
}

}  // namespace

net::Frame encode_event(const ElasticEvent& event) {
  Writer w;
  std::uint16_t type = 0;
  std::visit(
      Match{[&](const Arrive& e) {
              type = kArriveFrame;
              w.number(e.worker.id.value);
              w.epoch(e.epoch);
              w.flag(e.sealed);
              w.flag(e.settled);
              w.standing(e.standing);
              w.bytes(encode(Join{e.worker.member, 0}));
            },
            [&](const Heard&) { type = kHeardFrame; },
            [&](const Reported& e) {
              type = kReportedFrame;
              w.epoch(e.epoch);
              w.standing(e.standing);
            },
            [&](const Settled& e) {
              type = kSettledFrame;
              w.epoch(e.epoch);
              w.step(e.step);
            },
            [&](const Complained& e) {
              type = kComplainedFrame;
              w.epoch(e.epoch);
              w.rank(e.about);
            },
            [&](const Leaving& e) {
              type = kLeavingFrame;
              w.rest(e.why);
            },
            [&](const Ended& e) {
              type = kEndedFrame;
              w.step(e.step);
            },
            [&](const Entrusted& e) {
              type = kEntrustedFrame;
              w.epoch(e.epoch);
              w.rank(e.to);
            },
            [&](const Condemned& e) {
              type = kCondemnedFrame;
              w.bytes(encode_error(e.error));
            },
            [](const LinkEnded&) { stays_here("the end of a connection"); },
            [](const ProcessEnded&) { stays_here("the end of a process"); }, [](const SpawnFailed&) { stays_here("a start that failed"); },
            [](const Adopted&) { stays_here("what the launcher adopted"); }, [](const Tick&) { stays_here("a tick"); }},
      event);
  return {type, w.take()};
}

ElasticEvent decode_event(const net::Frame& frame, Guest guest) {
  Reader r(frame.body);
  ElasticEvent event;
  switch (frame.type) {
    case kArriveFrame: event = read_arrive(r, guest); break;
    case kHeardFrame: event = Heard{guest}; break;
    case kReportedFrame: {
      const Epoch epoch = r.epoch();
      event = Reported{guest, epoch, r.standing()};
      break;
    }
    case kSettledFrame: {
      const Epoch epoch = r.epoch();
      event = Settled{guest, epoch, r.step()};
      break;
    }
    case kComplainedFrame: {
      const Epoch epoch = r.epoch();
      event = Complained{guest, epoch, r.rank()};
      break;
    }
    case kLeavingFrame: event = Leaving{guest, r.rest()}; break;
    case kEndedFrame: event = Ended{guest, r.step()}; break;
    case kEntrustedFrame: {
      const Epoch epoch = r.epoch();
      event = Entrusted{guest, epoch, r.rank()};
      break;
    }
    case kCondemnedFrame: event = Condemned{guest, r.error()}; break;
    default: throw_failure(Kind::corrupt, "an elastic worker sent a frame of type {:#x}, which does not exist", frame.type);
  }
  r.end();
  return event;
}

net::Frame encode_order(const ElasticAction& action) {
  Writer w;
  std::uint16_t type = 0;
  std::visit(Match{[&](const Seal& a) {
                     type = kSealFrame;
                     w.number(a.term);
                     w.epoch(a.epoch);
                     w.flag(a.urgent);
                   },
                   [&](const Begin& a) {
                     type = kBeginFrame;
                     w.number(a.term);
                     w.rank(a.rank);
                     w.maybe(a.base);
                     w.rank(a.heal_from);
                     w.bytes(encode(a.roster));
                   },
                   [&](const Release& a) {
                     type = kReleaseFrame;
                     w.flag(a.save);
                     w.flag(a.finish);
                   },
                   [&](const Evict& a) {
                     type = kEvictFrame;
                     w.bytes(encode_error(a.error));
                   },
                   [&](const Refuse& a) {
                     type = kRefuseFrame;
                     w.bytes(encode_error(a.error));
                   },
                   [](const Respawn&) { stays_here("a wish for replacements"); },
                   [&](const Say& a) {
                     type = kSayFrame;
                     w.rest(a.text);
                   },
                   [&](const Stop& a) {
                     type = kStopFrame;
                     w.flag(a.error.has_value());
                     if (a.error) w.bytes(encode_error(*a.error));
                   }},
             action);
  return {type, w.take()};
}

ElasticAction decode_order(const net::Frame& frame) {
  Reader r(frame.body);
  ElasticAction action = Stop{};
  switch (frame.type) {
    case kSealFrame: {
      Seal seal{.guests = {}, .term = r.number<std::uint64_t>()};
      seal.epoch = r.epoch();
      seal.urgent = r.flag();
      action = seal;
      break;
    }
    case kBeginFrame: action = read_begin(r); break;
    case kReleaseFrame: {
      Release release;
      release.save = r.flag();
      release.finish = r.flag();
      action = release;
      break;
    }
    case kEvictFrame: action = Evict{0, r.error()}; break;
    case kRefuseFrame: action = Refuse{0, r.error()}; break;
    case kSayFrame: action = Say{r.rest(), {}}; break;
    case kStopFrame: action = read_stop(r); break;
    default: throw_failure(Kind::corrupt, "an elastic coordinator sent a frame of type {:#x}, which does not exist", frame.type);
  }
  r.end();
  return action;
}

std::vector<Guest> addressees(const ElasticAction& action) {
  return std::visit(
      Match{[](const Seal& a) { return a.guests; }, [](const Say& a) { return a.guests; }, [](const Stop& a) { return a.guests; },
            [](const Respawn&) { return std::vector<Guest>{}; }, [](const auto& a) { return std::vector<Guest>{a.guest}; }},
      action);
}

}  // namespace cohort::group
