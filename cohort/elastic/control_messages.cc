#include "cohort/elastic/control_messages.h"

#include <algorithm>
#include <string_view>

#include "cohort/group/rendezvous.h"
#include "cohort/net/frame/little_endian.h"

namespace cohort::elastic {
namespace {

constexpr std::uint64_t kNoStep = UINT64_MAX;
constexpr std::string_view kWhat = "a message of an elastic job";

template <class... Cases>
struct Match : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Match(Cases...) -> Match<Cases...>;  // clang 14 asks for it

class Writer : public net::ByteWriter {
 public:
  void step(std::int64_t value) { number(static_cast<std::uint64_t>(value)); }
  void maybe(std::optional<std::int64_t> value) { number(value ? static_cast<std::uint64_t>(*value) : kNoStep); }
  void flag(bool value) { number<std::uint8_t>(value ? 1 : 0); }
  void epoch(Epoch value) { number(value.value); }
  void rank(Rank value) { number(static_cast<std::uint32_t>(value.value)); }
  void rest(std::string_view text) { letters(text.substr(0, kMaxTextBytes)); }
  void bytes(const std::vector<std::byte>& all) { letters({reinterpret_cast<const char*>(all.data()), all.size()}); }
  void worker_progress(const std::optional<WorkerProgress>& s) {
    flag(s.has_value());
    const WorkerProgress value = s.value_or(WorkerProgress{});
    epoch(value.epoch);
    step(value.applied);
    flag(value.prepared);
  }
};

class Reader : public net::ByteReader {
 public:
  explicit Reader(ConstBytes bytes) : ByteReader(bytes, kWhat) {}
  std::int64_t step() {
    const auto value = number<std::uint64_t>();
    if (value > INT64_MAX) throw_failure(Kind::corrupt, "{} holds step {}, which is impossible", kWhat, value);
    return static_cast<std::int64_t>(value);
  }
  std::optional<std::int64_t> maybe() {
    const auto value = number<std::uint64_t>();
    if (value == kNoStep) return std::nullopt;
    if (value > INT64_MAX) throw_failure(Kind::corrupt, "{} holds step {}, which is impossible", kWhat, value);
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
    if (value < kNoRank) throw_failure(Kind::corrupt, "{} holds rank {}, which is impossible", kWhat, value.value);
    return value;
  }
  std::string rest() {
    if (left() > kMaxTextBytes)
      throw_failure(Kind::corrupt, "{} has {} bytes of text; at most {} are possible", kWhat, left(), kMaxTextBytes);
    return letters(left());
  }
  std::vector<std::byte> rest_bytes() {
    const std::string raw = letters(left());
    const auto bytes = std::as_bytes(std::span(raw));
    return {bytes.begin(), bytes.end()};
  }
  Error error() {
    constexpr std::size_t kMost = kMaxTextBytes + 5;  // behind its kind and its rank
    if (left() > kMost) throw_failure(Kind::corrupt, "{} has an error of {} bytes; at most {} are possible", kWhat, left(), kMost);
    return group::decode_error(rest_bytes());
  }
  std::optional<WorkerProgress> worker_progress() {
    const bool there = flag();
    WorkerProgress s;
    s.epoch = epoch();
    s.applied = step();
    s.prepared = flag();
    if (!there && s != WorkerProgress{}) throw_failure(Kind::corrupt, "{} holds the progress of a worker without state", kWhat);
    return there ? std::optional(s) : std::nullopt;
  }
};

[[noreturn]] void refuse_local(std::string_view what) { throw_failure(Kind::bug, "{} is never sent", what); }

Arrive read_arrive(Reader& r, group::ConnectionId connection_id) {
  Arrive a{.connection_id = connection_id};
  a.worker.id = WorkerId{r.number<std::uint64_t>()};
  a.epoch = r.epoch();
  a.sealed = r.flag();
  a.settled = r.flag();
  a.worker_progress = r.worker_progress();
  const group::Join join = group::decode_join(r.rest_bytes());
  if (join.size != 0) throw_failure(Kind::corrupt, "{}: a worker that expects {} ranks", kWhat, join.size);
  a.worker.member = join.member;
  a.version = join.version;
  return a;
}

BeginEpoch read_begin(Reader& r) {
  BeginEpoch b;
  b.term = r.number<std::uint64_t>();
  b.rank = r.rank();
  b.base = r.maybe();
  b.heal_from = r.rank();
  b.roster = group::decode_roster(r.rest_bytes());
  const auto inside = [&](Rank rank) { return rank.value < b.roster.size(); };
  if (!b.rank || !inside(b.rank) || !inside(b.heal_from) || b.heal_from == b.rank || b.roster.epoch.value == 0)
    throw_failure(Kind::corrupt, "{}: rank {} of {}, with the state of rank {}, in membership epoch {}", kWhat, b.rank.value,
                  b.roster.size(), b.heal_from.value, b.roster.epoch.value);
  return b;
}

Alive read_alive(Reader& r) {
  Alive a;
  a.pid = r.step();
  a.silence_limit = r.step();
  a.host = r.rest();
  return a;
}

Stop read_stop(Reader& r) {
  if (!r.flag()) return {};
  return {{}, r.error()};
}

}  // namespace

net::Frame encode_event(const ElasticEvent& event) {
  Writer w;
  std::uint16_t type = 0;
  std::visit(Match{[&](const Arrive& e) {
                     type = kArriveFrame;
                     w.number(e.worker.id.value);
                     w.epoch(e.epoch);
                     w.flag(e.sealed);
                     w.flag(e.settled);
                     w.worker_progress(e.worker_progress);
                     w.bytes(encode(group::Join{e.worker.member, 0, e.version}));
                   },
                   [&](const Heartbeat&) { type = kHeartbeatFrame; },
                   [&](const Reported& e) {
                     type = kReportedFrame;
                     w.epoch(e.epoch);
                     w.worker_progress(e.worker_progress);
                   },
                   [&](const Settled& e) {
                     type = kSettledFrame;
                     w.epoch(e.epoch);
                     w.step(e.step);
                   },
                   [&](const PeerUnreachable& e) {
                     type = kPeerUnreachableFrame;
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
                   [&](const StateTransferred& e) {
                     type = kStateTransferredFrame;
                     w.epoch(e.epoch);
                     w.rank(e.to);
                   },
                   [&](const JobFailed& e) {
                     type = kJobFailedFrame;
                     w.bytes(group::encode_error(e.error));
                   },
                   [](const LinkEnded&) { refuse_local("the end of a connection"); },
                   [](const ProcessEnded&) { refuse_local("the end of a process"); },
                   [](const SpawnFailed&) { refuse_local("a start that failed"); },
                   [](const Adopted&) { refuse_local("what the launcher adopted"); }, [](const Tick&) { refuse_local("a tick"); }},
             event);
  return {type, w.take()};
}

ElasticEvent decode_event(const net::Frame& frame, group::ConnectionId connection_id) {
  Reader r(frame.body);
  ElasticEvent event;
  switch (frame.type) {
    case kArriveFrame: event = read_arrive(r, connection_id); break;
    case kHeartbeatFrame: event = Heartbeat{connection_id}; break;
    case kReportedFrame: {
      const Epoch epoch = r.epoch();
      event = Reported{connection_id, epoch, r.worker_progress()};
      break;
    }
    case kSettledFrame: {
      const Epoch epoch = r.epoch();
      event = Settled{connection_id, epoch, r.step()};
      break;
    }
    case kPeerUnreachableFrame: {
      const Epoch epoch = r.epoch();
      event = PeerUnreachable{connection_id, epoch, r.rank()};
      break;
    }
    case kLeavingFrame: event = Leaving{connection_id, r.rest()}; break;
    case kEndedFrame: event = Ended{connection_id, r.step()}; break;
    case kStateTransferredFrame: {
      const Epoch epoch = r.epoch();
      event = StateTransferred{connection_id, epoch, r.rank()};
      break;
    }
    case kJobFailedFrame: event = JobFailed{connection_id, r.error()}; break;
    default: throw_failure(Kind::corrupt, "an elastic worker sent a frame of type {:#x}, which does not exist", frame.type);
  }
  r.end();
  return event;
}

net::Frame encode_action(const ElasticAction& action) {
  Writer w;
  std::uint16_t type = 0;
  std::visit(Match{[&](const SealEpoch& a) {
                     type = kSealEpochFrame;
                     w.number(a.term);
                     w.epoch(a.epoch);
                     w.flag(a.urgent);
                   },
                   [&](const BeginEpoch& a) {
                     type = kBeginEpochFrame;
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
                     w.bytes(group::encode_error(a.error));
                   },
                   [&](const group::Refuse& a) {
                     type = kRefuseFrame;
                     w.bytes(group::encode_error(a.error));
                   },
                   [](const Respawn&) { refuse_local("a request for replacements"); },
                   [&](const Say& a) {
                     type = kSayFrame;
                     w.rest(a.text);
                   },
                   [&](const Alive& a) {
                     type = kAliveFrame;
                     w.step(a.pid);
                     w.step(a.silence_limit);
                     w.rest(a.host);
                   },
                   [&](const Stop& a) {
                     type = kStopFrame;
                     w.flag(a.error.has_value());
                     if (a.error) w.bytes(group::encode_error(*a.error));
                   }},
             action);
  return {type, w.take()};
}

ElasticAction decode_action(const net::Frame& frame) {
  Reader r(frame.body);
  ElasticAction action = Stop{};
  switch (frame.type) {
    case kSealEpochFrame: {
      SealEpoch seal{.connection_ids = {}, .term = r.number<std::uint64_t>()};
      seal.epoch = r.epoch();
      seal.urgent = r.flag();
      action = seal;
      break;
    }
    case kBeginEpochFrame: action = read_begin(r); break;
    case kReleaseFrame: {
      Release release;
      release.save = r.flag();
      release.finish = r.flag();
      action = release;
      break;
    }
    case kEvictFrame: action = Evict{0, r.error()}; break;
    case kRefuseFrame: action = group::Refuse{0, r.error()}; break;
    case kSayFrame: action = Say{r.rest(), {}}; break;
    case kStopFrame: action = read_stop(r); break;
    case kAliveFrame: action = read_alive(r); break;
    default: throw_failure(Kind::corrupt, "an elastic coordinator sent a frame of type {:#x}, which does not exist", frame.type);
  }
  r.end();
  return action;
}

std::vector<group::ConnectionId> recipients(const ElasticAction& action) {
  return std::visit(Match{[](const SealEpoch& a) { return a.connection_ids; }, [](const Say& a) { return a.connection_ids; },
                          [](const Stop& a) { return a.connection_ids; }, [](const Respawn&) { return std::vector<group::ConnectionId>{}; },
                          [](const auto& a) { return std::vector<group::ConnectionId>{a.connection_id}; }},
                    action);
}

}  // namespace cohort::elastic
