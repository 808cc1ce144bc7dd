#include "cohort/net/probe.h"

#include <fmt/format.h>

#include <array>

#include "cohort/base/error.h"
#include "cohort/net/little.h"
#include "cohort/net/shm.h"

namespace cohort::net {
namespace {

enum : std::uint16_t { kMemoryFrame = 1, kMappedFrame = 2 };  // control frames between handshake and data
enum class Wish : std::uint8_t { any, shm, tcp };
constexpr std::array<std::string_view, 3> kWishes{"auto", "shm", "tcp"};
constexpr std::size_t kMemoryBytes = 56;
constexpr std::size_t kReasonBytes = 512;

Wish wish_named(const std::string& name) {
  for (std::size_t i = 0; i < kWishes.size(); ++i)
    if (kWishes[i] == name) return static_cast<Wish>(i);
  throw_failure(Kind::usage, "transport '{}' is unknown: auto, shm or tcp", name);
}

// What a rank says about its memory: its wish, whether it has any, and the name under which to open it.
struct Memory {
  Wish wish = Wish::any;
  bool there = false;
  SegmentName name;
};

std::array<std::byte, kMemoryBytes> encode(const Memory& m) {
  std::array<std::byte, kMemoryBytes> out{};
  put_little<std::uint8_t>(&out[0], static_cast<std::uint8_t>(m.wish));
  put_little<std::uint8_t>(&out[1], m.there ? 1 : 0);
  put_little<std::uint32_t>(&out[4], static_cast<std::uint32_t>(m.name.fd));
  put_little<std::uint64_t>(&out[8], static_cast<std::uint64_t>(m.name.pid));
  put_little<std::uint64_t>(&out[16], m.name.bytes);
  put_little<std::uint64_t>(&out[24], m.name.stamp[0]);
  put_little<std::uint64_t>(&out[32], m.name.stamp[1]);
  put_little<std::uint64_t>(&out[40], m.name.inode);
  return out;
}

Memory decode(ConstBytes in) {
  Memory m;
  m.wish = static_cast<Wish>(std::min<std::uint8_t>(get_little<std::uint8_t>(&in[0]), 2));
  m.there = get_little<std::uint8_t>(&in[1]) != 0;
  m.name.fd = static_cast<std::int32_t>(get_little<std::uint32_t>(&in[4]));
  m.name.pid = static_cast<std::int64_t>(get_little<std::uint64_t>(&in[8]));
  m.name.bytes = get_little<std::uint64_t>(&in[16]);
  m.name.stamp = {get_little<std::uint64_t>(&in[24]), get_little<std::uint64_t>(&in[32])};
  m.name.inode = get_little<std::uint64_t>(&in[40]);
  return m;
}

class Prober {
 public:
  Prober(Rank me, Wish wish, std::vector<std::optional<Wire>>& wires, Deadline deadline)
      : me_(me), wires_(wires), deadline_(deadline), memories_(wires.size()) {
    memories_[mine()].wish = wish;
  }

  Probe run() {
    Probe out;
    announce(out);
    const Wish wish = agree_on_wish();
    if (wish == Wish::tcp) {
      out.why = "tcp was asked for";
      return out;
    }
    std::string why = out.why.empty() ? map_all(out) : out.why;
    out.why = agree_on_result(why);
    out.shared = out.why.empty();
    if (!out.shared && wish == Wish::shm) throw_failure(Kind::usage, "shm was asked for but cannot be had: {}; use tcp or auto", out.why);
    if (!out.shared) out.peers.clear();
    return out;
  }

 private:
  std::size_t mine() const { return static_cast<std::size_t>(me_.value); }

  void send_all(std::uint16_t type, ConstBytes body) {
    for (auto& wire : wires_)
      if (wire) wire->send(type, body, deadline_);
  }

  std::vector<std::byte> recv_from(std::size_t r, std::uint16_t type, std::size_t least, std::size_t most) {
    Frame frame = wires_[r]->recv(deadline_);
    if (frame.type == type && frame.body.size() >= least && frame.body.size() <= most) return std::move(frame.body);
    throw Failure{{Kind::corrupt,
                   fmt::format("rank {} sent control frame {} of {} bytes where {} was due", r, frame.type, frame.body.size(), type),
                   Rank{static_cast<std::int32_t>(r)}}};
  }

  void announce(Probe& out) {
    Memory& m = memories_[mine()];
    try {
      if (m.wish != Wish::tcp) out.own = make_shm_inbox(static_cast<int>(wires_.size()));
      m.there = m.wish != Wish::tcp;
      if (m.there) m.name = out.own.name();
    } catch (const Failure& f) {
      out.why = fmt::format("rank {}: {}", me_.value, f.what());
    }
    send_all(kMemoryFrame, encode(m));
    for (std::size_t r = 0; r < wires_.size(); ++r)
      if (wires_[r]) memories_[r] = decode(recv_from(r, kMemoryFrame, kMemoryBytes, kMemoryBytes));
  }

  Wish agree_on_wish() const {
    std::size_t first[3] = {wires_.size(), wires_.size(), wires_.size()};  // the lowest rank with each wish
    for (std::size_t r = wires_.size(); r-- > 0;) first[static_cast<std::size_t>(memories_[r].wish)] = r;
    const bool shm = first[1] < wires_.size(), tcp = first[2] < wires_.size();
    if (shm && tcp)
      throw_failure(Kind::usage, "rank {} asks for shm, rank {} for tcp: give every rank the same transport", first[1], first[2]);
    return tcp ? Wish::tcp : shm ? Wish::shm : Wish::any;
  }

  std::string map_all(Probe& out) const {
    out.peers.resize(wires_.size());
    for (std::size_t r = 0; r < wires_.size(); ++r) {
      if (!wires_[r]) continue;
      std::string why = "it has none";
      auto segment = memories_[r].there ? Segment::open(memories_[r].name, false, &why) : std::nullopt;
      if (!segment) return fmt::format("rank {} cannot map the memory of rank {}: {}", me_.value, r, why);
      out.peers[r] = std::move(*segment);
    }
    return {};
  }

  // The lowest rank's reason, the same on every rank; empty: all mapped all.
  std::string agree_on_result(const std::string& why) {
    send_all(kMappedFrame, as_bytes(std::string_view(why).substr(0, kReasonBytes)));
    std::string first;
    for (std::size_t r = 0; r < wires_.size(); ++r) {
      std::string reason = why.substr(0, kReasonBytes);
      if (wires_[r]) {
        const auto body = recv_from(r, kMappedFrame, 0, kReasonBytes);
        reason.assign(reinterpret_cast<const char*>(body.data()), body.size());
      }
      if (first.empty()) first = reason;
    }
    return first;
  }

  const Rank me_;
  std::vector<std::optional<Wire>>& wires_;
  const Deadline deadline_;
  std::vector<Memory> memories_;  // by rank
};

}  // namespace

Probe probe_memory(Rank me, const std::string& wish, std::vector<std::optional<Wire>>& wires, Deadline deadline) {
  return Prober(me, wish_named(wish), wires, deadline).run();
}

}  // namespace cohort::net
