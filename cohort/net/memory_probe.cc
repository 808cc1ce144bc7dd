#include "cohort/net/memory_probe.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <thread>

#include "cohort/base/error.h"
#include "cohort/net/frame/little_endian.h"
#include "cohort/net/shm/shm.h"
#include "cohort/net/shm/wake_pipe.h"
#include "cohort/net/socket/socket.h"

namespace cohort::net {
namespace {

enum : std::uint16_t { kMemoryFrame = 1, kMappedFrame = 2 };  // control frames between handshake and data
enum class Wish : std::uint8_t { any, shm, tcp };
constexpr std::array<std::string_view, 3> kWishes{"auto", "shm", "tcp"};
constexpr std::size_t kMemoryBytes = 64;
constexpr std::size_t kReasonBytes = 512;
constexpr Seconds kCheckInterval{0.02};  // of plan.given_up
constexpr Seconds kEnding{0.5};          // between the end of a process's memory and that of its connections

Wish wish_named(const std::string& name) {
  for (std::size_t i = 0; i < kWishes.size(); ++i)
    if (kWishes[i] == name) return static_cast<Wish>(i);
  throw_failure(Kind::usage, "transport '{}' is unknown: auto, shm or tcp", name);
}

// A rank's memory: the transport it requests, whether it has an inbox, and the name under which to open it.
struct Memory {
  Wish wish = Wish::any;
  bool there = false;
  SegmentName name;
  std::uint64_t network = 0;    // its network namespace
  std::int32_t wake_pipe = -1;  // descriptor in its process
};

std::uint64_t network_namespace() {
  struct stat st {};
  return stat("/proc/self/ns/net", &st) == 0 ? st.st_ino : 0;
}

std::array<std::byte, kMemoryBytes> encode(const Memory& m) {
  std::array<std::byte, kMemoryBytes> out{};
  store_le<std::uint8_t>(&out[0], static_cast<std::uint8_t>(m.wish));
  store_le<std::uint8_t>(&out[1], m.there ? 1 : 0);
  store_le<std::uint32_t>(&out[4], static_cast<std::uint32_t>(m.name.fd));
  store_le<std::uint64_t>(&out[8], static_cast<std::uint64_t>(m.name.pid));
  store_le<std::uint64_t>(&out[16], m.name.bytes);
  store_le<std::uint64_t>(&out[24], m.name.stamp[0]);
  store_le<std::uint64_t>(&out[32], m.name.stamp[1]);
  store_le<std::uint64_t>(&out[40], m.name.inode);
  store_le<std::uint64_t>(&out[48], m.network);
  store_le<std::uint32_t>(&out[56], static_cast<std::uint32_t>(m.wake_pipe));
  return out;
}

Memory decode(ConstBytes in) {
  Memory m;
  m.wish = static_cast<Wish>(std::min<std::uint8_t>(load_le<std::uint8_t>(&in[0]), 2));
  m.there = load_le<std::uint8_t>(&in[1]) != 0;
  m.name.fd = static_cast<std::int32_t>(load_le<std::uint32_t>(&in[4]));
  m.name.pid = static_cast<std::int64_t>(load_le<std::uint64_t>(&in[8]));
  m.name.bytes = load_le<std::uint64_t>(&in[16]);
  m.name.stamp = {load_le<std::uint64_t>(&in[24]), load_le<std::uint64_t>(&in[32])};
  m.name.inode = load_le<std::uint64_t>(&in[40]);
  m.network = load_le<std::uint64_t>(&in[48]);
  m.wake_pipe = static_cast<std::int32_t>(load_le<std::uint32_t>(&in[56]));
  return m;
}

class Prober {
 public:
  Prober(Rank me, Wish wish, const std::vector<std::string>& labels, std::vector<std::optional<ControlConnection>>& connections,
         Deadline deadline, const std::atomic<bool>* given_up)
      : me_(me), labels_(labels), connections_(connections), deadline_(deadline), given_up_(given_up), memories_(connections.size()) {
    memories_[mine()].wish = wish;
  }

  MemoryProbe run() {
    MemoryProbe out;
    out.peers.resize(connections_.size());
    out.wake_pipes.resize(connections_.size());
    announce(out);
    const Wish wish = agree_on_wish();
    std::vector<bool> mapped(connections_.size(), false);
    mapped[mine()] = true;
    if (wish == Wish::tcp) {
      out.hosts.resize(connections_.size());
      std::iota(out.hosts.begin(), out.hosts.end(), 0);
      out.why = "tcp was requested";
      return out;
    }
    std::string why = out.why.empty() ? map_all(out, mapped) : out.why;
    out.hosts = agree_on_hosts(mapped, why);
    out.why = out.all_share() ? "" : why;
    if (!out.all_share() && wish == Wish::shm) refuse_if_one_ended();
    if (!out.all_share() && wish == Wish::shm)
      throw_failure(Kind::usage, "shm was requested but is not available: {}; use tcp or auto", out.why);
    for (std::size_t r = 0; r < out.peers.size(); ++r)
      if (out.hosts[r] != out.hosts[mine()]) out.peers[r] = {}, out.wake_pipes[r] = {};
    return out;
  }

 private:
  std::size_t mine() const { return static_cast<std::size_t>(me_.value); }

  void send_all(std::uint16_t type, ConstBytes body) {
    for (auto& connection : connections_)
      if (connection) connection->send(type, body, deadline_);
  }

  std::vector<std::byte> recv_from(std::size_t r, std::uint16_t type, std::size_t least, std::size_t most) {
    while (given_up_ != nullptr && !connections_[r]->readable() && !deadline_.passed()) {
      if (*given_up_) throw_failure(Kind::aborted, "rank {} gave up waiting for rank {}'s memory frame", me_.value, r);
      wait_ready(connections_[r]->fd(), POLLIN, deadline_.sooner(Deadline::in(kCheckInterval)));
    }
    Frame frame = connections_[r]->recv(deadline_);
    if (frame.type == type && frame.body.size() >= least && frame.body.size() <= most) return std::move(frame.body);
    throw Failure{{Kind::corrupt,
                   fmt::format("rank {} sent control frame {} of {} bytes where {} was expected", r, frame.type, frame.body.size(), type),
                   Rank{static_cast<std::int32_t>(r)}}};
  }

  void announce(MemoryProbe& out) {
    Memory& m = memories_[mine()];
    try {
      if (m.wish != Wish::tcp) out.own = make_shm_inbox(static_cast<int>(connections_.size()));
      if (m.wish != Wish::tcp) out.wake_pipe = make_wake_pipe();
      m.there = m.wish != Wish::tcp;
      if (m.there) m.name = out.own.name();
      m.wake_pipe = out.wake_pipe.get();
      m.network = network_namespace();
    } catch (const Failure& f) {
      out.why = fmt::format("rank {}: {}", me_.value, f.what());
    }
    send_all(kMemoryFrame, encode(m));
    for (std::size_t r = 0; r < connections_.size(); ++r)
      if (connections_[r]) memories_[r] = decode(recv_from(r, kMemoryFrame, kMemoryBytes, kMemoryBytes));
  }

  Wish agree_on_wish() const {
    std::size_t first[3] = {connections_.size(), connections_.size(), connections_.size()};  // the lowest rank with each wish
    for (std::size_t r = connections_.size(); r-- > 0;) first[static_cast<std::size_t>(memories_[r].wish)] = r;
    const bool shm = first[1] < connections_.size(), tcp = first[2] < connections_.size();
    if (shm && tcp)
      throw_failure(Kind::usage, "rank {} asks for shm, rank {} for tcp: give every rank the same transport", first[1], first[2]);
    return tcp ? Wish::tcp : shm ? Wish::shm : Wish::any;
  }

  // Maps those it can; the reason for the first it cannot.
  std::string map_all(MemoryProbe& out, std::vector<bool>& mapped) const {
    std::string first;
    for (std::size_t r = 0; r < connections_.size(); ++r) {
      if (!connections_[r]) continue;
      const std::string why = map_one(out, r);
      mapped[r] = why.empty();
      if (first.empty() && !why.empty()) first = fmt::format("rank {} cannot map the memory of rank {}: {}", me_.value, r, why);
    }
    return first;
  }

  std::string map_one(MemoryProbe& out, std::size_t r) const {
    const Memory& theirs = memories_[r];
    if (!theirs.there) return "it has none";
    if (!labels_.empty() && labels_[r] != labels_[mine()])
      return fmt::format("it is on host {}, this one on host {}", labels_[r], labels_[mine()]);
    if (theirs.network != memories_[mine()].network) return "it is in another network namespace";
    std::string why;
    auto segment = Segment::open(theirs.name, false, &why);
    if (!segment) return why;
    try {
      out.wake_pipes[r] = open_wake_pipe(theirs.name.pid, theirs.wake_pipe);
    } catch (const Failure& failure) {
      return failure.what();
    }
    out.peers[r] = std::move(*segment);
    return {};
  }

  // A rank that ended meanwhile took its memory along: it is lost, and nothing is wrong with what was asked for.
  void refuse_if_one_ended() const {
    const Deadline moment = deadline_.sooner(Deadline::in(kEnding));
    do {
      for (std::size_t r = 0; r < connections_.size(); ++r) {
        if (!connections_[r] || !memories_[r].there || ::access(fmt::format("/proc/{}", memories_[r].name.pid).c_str(), F_OK) == 0)
          continue;
        pollfd closed{connections_[r]->fd(), POLLRDHUP, 0};
        if (::poll(&closed, 1, 0) <= 0) continue;
        throw Failure{{Kind::peer_lost, fmt::format("rank {} died while the ranks connected (its process has ended)", r),
                       Rank{static_cast<std::int32_t>(r)}}};
      }
      std::this_thread::sleep_for(kCheckInterval);
    } while (!moment.passed());
  }

  // An all-gather of who maps whom: all ranks see the same table and number the hosts alike. why: the lowest rank's.
  std::vector<int> agree_on_hosts(const std::vector<bool>& mapped, std::string& why) {
    const std::size_t n = connections_.size();
    std::vector<std::byte> body(n);
    for (std::size_t r = 0; r < n; ++r) body[r] = std::byte{mapped[r]};
    const std::string_view reason = std::string_view(why).substr(0, kReasonBytes);
    body.insert(body.end(), as_bytes(reason).begin(), as_bytes(reason).end());
    send_all(kMappedFrame, body);
    std::vector<std::vector<bool>> maps(n);
    std::string first;
    for (std::size_t r = 0; r < n; ++r) {
      const auto frame = connections_[r] ? recv_from(r, kMappedFrame, n, n + kReasonBytes) : body;
      for (std::size_t peer = 0; peer < n; ++peer) maps[r].push_back(frame[peer] != std::byte{0});
      if (first.empty()) first.assign(reinterpret_cast<const char*>(frame.data()) + n, frame.size() - n);
    }
    why = first;
    return number_hosts(maps);
  }

  const Rank me_;
  const std::vector<std::string>& labels_;
  std::vector<std::optional<ControlConnection>>& connections_;
  const Deadline deadline_;
  const std::atomic<bool>* const given_up_;
  std::vector<Memory> memories_;  // by rank
};

}  // namespace

bool MemoryProbe::all_share() const {
  return std::all_of(hosts.begin(), hosts.end(), [&](int host) { return host == hosts.front(); });
}

bool MemoryProbe::none_share() const {
  return hosts.empty() || *std::max_element(hosts.begin(), hosts.end()) + 1 == static_cast<int>(hosts.size());
}

std::vector<int> number_hosts(const std::vector<std::vector<bool>>& maps) {
  std::vector<int> hosts;
  for (std::size_t r = 0; r < maps.size(); ++r) {
    int host = 0;
    const auto fits = [&] {
      for (std::size_t other = 0; other < r; ++other)
        if (hosts[other] == host && !(maps[r][other] && maps[other][r])) return false;
      return true;
    };
    while (!fits()) ++host;
    hosts.push_back(host);
  }
  return hosts;
}

MemoryProbe probe_memory(Rank me, const std::string& wish, const std::vector<std::string>& labels,
                         std::vector<std::optional<ControlConnection>>& connections, Deadline deadline, const std::atomic<bool>* given_up) {
  return Prober(me, wish_named(wish), labels, connections, deadline, given_up).run();
}

}  // namespace cohort::net
