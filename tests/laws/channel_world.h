// Ranks with a PeerChannel each, all in the hands of one test: it decides when which of them makes progress.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <string>
#include <vector>

#include "cohort/base/slowdown.h"
#include "cohort/collective/communicator.h"
#include "cohort/net/mixed.h"
#include "cohort/net/shm/shm.h"
#include "cohort/net/tcp/tcp.h"
#include "cohort/net/transport/loopback.h"

namespace cohort::collective {

inline Deadline soon() { return Deadline::in(60s * slowdown()); }
inline Deadline at_once() { return Deadline::in(1ms); }

inline std::vector<std::unique_ptr<net::PeerLinks>> links_over(const std::string& transport, int ranks) {
  if (transport == "shm") return net::shm_world(ranks);
  if (transport == "tcp") return net::tcp_world(ranks);
  if (transport == "tcp_far") return net::tcp_world(ranks, {}, "auto", true);
  if (transport == "tcp_streams") return net::tcp_world(ranks, {}, "auto", false, false, 3);
  if (transport == "tls") return net::tcp_world(ranks, {}, "auto", false, true);
  if (transport == "loopback") return net::loopback_world(ranks);
  std::vector<int> hosts(static_cast<std::size_t>(ranks), 0);  // mixed: the last rank is on a host of its own
  hosts.back() = 1;
  return net::mixed_world(hosts);
}

using Body = std::function<void(Communicator& comm, PeerChannel& channel)>;

struct ChannelWorld {
  explicit ChannelWorld(std::vector<std::unique_ptr<net::PeerLinks>> links) : comms(links.size()) {
    std::vector<std::future<std::unique_ptr<Communicator>>> opening;
    for (auto& one : links)
      opening.push_back(std::async(std::launch::async, [&one] { return open(std::move(one), {.timeout = Seconds{60}}); }));
    for (std::size_t r = 0; r < links.size(); ++r) comms[r] = opening[r].get();
    for (auto& comm : comms) channels.push_back(comm->channel());
  }
  ChannelWorld(const std::string& transport, int ranks) : ChannelWorld(links_over(transport, ranks)) {}
  PeerChannel& operator[](int rank) { return *channels[static_cast<std::size_t>(rank)]; }
  Communicator& comm(int rank) { return *comms[static_cast<std::size_t>(rank)]; }
  void leave(int rank) {
    channels[static_cast<std::size_t>(rank)].reset();
    comms[static_cast<std::size_t>(rank)].reset();
  }
  // Runs the body of every rank that has not left, in a thread each; the first exception is thrown here.
  void on_all(const Body& body) {
    std::vector<std::future<void>> ranks;
    for (std::size_t r = 0; r < comms.size(); ++r)
      if (comms[r]) ranks.push_back(std::async(std::launch::async, [&, r] { body(*comms[r], *channels[r]); }));
    for (auto& rank : ranks) rank.wait();
    for (auto& rank : ranks) rank.get();
  }
  std::vector<std::unique_ptr<Communicator>> comms;
  std::vector<std::unique_ptr<PeerChannel>> channels;
};

using Buffer = std::vector<std::byte>;

inline Buffer pattern(std::size_t size, unsigned seed) {
  Buffer bytes(size);
  std::uint32_t state = seed * 2654435761U + 1;
  for (auto& b : bytes) b = static_cast<std::byte>((state = state * 1664525U + 1013904223U) >> 24);
  return bytes;
}

inline Piece piece_of(const Buffer& bytes) { return {const_cast<std::byte*>(bytes.data()), bytes.size(), Dtype::u8, Device::cpu}; }

inline Error failure_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Failure& failure) {
    return failure.error();
  }
  return {Kind::bug, "no failure", kNoRank};
}

// Every call makes progress in turn until all have ended, each well or not.
inline void drive(const std::vector<Pending*>& pendings) {
  for (const Deadline limit = soon();;) {
    bool ended = true;
    for (Pending* const pending : pendings) ended = pending->poll() && ended;
    if (ended) return;
    if (limit.passed()) throw_failure(Kind::timeout, "calls did not end");
    std::this_thread::yield();
  }
}

inline void finish(const std::vector<Pending*>& pendings) {
  drive(pendings);
  for (Pending* const pending : pendings) pending->wait(soon());
}

inline void send_now(PeerChannel& channel, int to, std::uint32_t tag, const Buffer& data) {
  channel.send(Rank{to}, tag, piece_of(data)).wait(soon());
}

inline Buffer recv_now(PeerChannel& channel, int from, std::uint32_t tag, std::size_t size) {
  Buffer data(size);
  channel.recv(Rank{from}, tag, piece_of(data)).wait(soon());
  return data;
}

class ChannelLaws : public ::testing::TestWithParam<std::string> {
 protected:
  static ChannelWorld world(int ranks) { return ChannelWorld(GetParam(), ranks); }
};

}  // namespace cohort::collective
