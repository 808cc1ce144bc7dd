// The state behind a PeerChannel and its Pendings: which calls have met which messages, peer by peer. channel_core.cc has calls and waits,
// matching.cc what the records of the peers do (record.h). Bytes of a message travel with a tag of their own, straight between the buffers.
// Owner: the PeerChannel and its Pendings together. Threads: any. Failure: as in peer_channel.h; nothing here fails a link.
#pragma once
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "cohort/collective/channel/record.h"
#include "cohort/collective/moved_counters.h"
#include "cohort/collective/peer_channel.h"
#include "cohort/net/transport/link.h"

namespace cohort::collective {

// One send or receive. `core` first: its links outlive `net`.
struct Transfer {
  enum class Stage { waiting, moving, ended };  // waiting: for a send that meets this receive, or for the grant of this send
  const std::shared_ptr<ChannelCore> core;
  const bool sends;
  const int peer;
  const std::uint32_t tag;
  const Piece data;
  // guarded by the core's mutex_
  std::uint32_t id = 0;
  Stage stage = Stage::waiting;
  std::vector<std::byte> record{};  // of a small send ..
  net::Pending announcing{};        // .. on its way
  net::Pending net{};               // of the bytes, while moving
  std::optional<Error> error{};

  bool done() const { return announcing.done() && net.done(); }  // what moves has moved
  Bytes bytes() const { return {static_cast<std::byte*>(data.data), data.bytes()}; }
  std::string text() const;  // "recv of 400 bytes from rank 1 (tag 7)"
};

class ChannelCore : public std::enable_shared_from_this<ChannelCore> {
 public:
  // members: ranks in the links, by rank of the communicator. channel: of Tag, which nothing else uses.
  ChannelCore(std::shared_ptr<net::PeerLinks> links, const std::vector<Rank>& members, int me, std::uint32_t channel,
              std::shared_ptr<MovedCounters> counters);
  ~ChannelCore();
  Rank rank() const { return Rank{me_}; }
  int size() const { return static_cast<int>(peers_.size()); }
  std::shared_ptr<Transfer> send(Rank to, std::uint32_t tag, Piece data);
  std::shared_ptr<Transfer> recv(Rank from, std::uint32_t tag, Piece data);
  std::optional<Error> wait(Transfer& transfer, Deadline deadline);  // how it ended; Kind::timeout, Interrupted: it has not
  bool poll(Transfer& transfer);
  std::size_t wait_any(const std::vector<Transfer*>& transfers, Deadline deadline);  // null: passed over
  void give_up(Transfer& transfer) noexcept;
  std::optional<Error> lost(Rank peer) const;
  void interrupt() noexcept;
  void close() noexcept;

 private:
  using TransferPtr = std::shared_ptr<Transfer>;  // shared with the Pending
  struct Announced {                              // a message that no receive has met
    Record record;
    std::vector<std::byte> inline_bytes;
    bool withdrawn = false;
  };
  struct Outgoing {
    std::vector<std::byte> bytes;
    net::Pending sending;
  };
  struct Peer {
    int rank = 0;
    Rank member;
    std::optional<Error> lost;
    std::unordered_map<std::uint32_t, std::deque<TransferPtr>> posted;   // by tag: receives that no message has met
    std::unordered_map<std::uint32_t, std::deque<Announced>> announced;  // by tag
    std::unordered_map<std::uint32_t, TransferPtr> granted;              // by id: receives whose bytes come
    std::unordered_map<std::uint32_t, TransferPtr> offered;              // by id: sends that were not granted
    std::deque<Outgoing> outbox;                                         // records that the link has not taken
    std::uint64_t in_window = 0;                                         // bytes of small messages sent and not reported as received
    std::uint64_t unreported = 0;                                        // bytes of small messages received and not reported
    std::uint32_t next_id = 0;
  };
  TransferPtr begin(bool sends, Rank peer, std::uint32_t tag, Piece data);
  bool await(const std::function<bool()>& done, Deadline deadline);
  void progress(int waiting);  // of this thread: 1 in await()
  bool over(Transfer& transfer);
  void check_interrupted() const;

  // matching.cc; mutex_ is held
  void launch(Peer& peer, const TransferPtr& send);
  void post(Peer& peer, const TransferPtr& receive);
  void handle(Peer& peer, const net::Message& message);
  void meet(Peer& peer, const TransferPtr& receive, const Announced& announced);
  void send_bytes(Peer& peer, Transfer& send);
  void refuse(Peer& peer, Transfer& receive, const Record& record);
  void start_bytes(Peer& peer, const Record& grant);
  void withdraw(Peer& peer, const Record& record);
  void tell(Peer& peer, const Record& record);
  void move(Transfer& transfer, net::Pending pending);
  void settle(Transfer& transfer);
  void end(Transfer& transfer, std::optional<Error> cause = {}) const;
  void lose(Peer& peer, const Error& cause);
  template <class Act>
  void or_lose(Peer& peer, const Act& act) {  // a link that fails ends this peer's calls, and nobody else's
    try {
      act();
    } catch (const Failure& failure) {
      lose(peer, failure.error());
    }
  }
  net::Link& link(const Peer& peer) const { return links_->link(peer.member); }

  const std::shared_ptr<net::PeerLinks> links_;
  const int me_;
  const std::uint32_t channel_;
  const std::shared_ptr<MovedCounters> counters_;  // shared with the communicator
  std::vector<int> rank_of_;                       // by rank in the links: in the communicator, or -1
  std::atomic<int> waiters_{0};
  std::atomic<std::size_t> next_found_{0};  // where wait_any begins
  std::atomic<bool> interrupted_{false};
  mutable std::mutex mutex_;
  std::vector<Peer> peers_;  // guarded by mutex_, but for rank and member
};

}  // namespace cohort::collective
