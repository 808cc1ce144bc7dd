// A Server keeps shards of tables for workers on other ranks, or the same: it answers what they ask over a PeerChannel (message.h), in the
// order in which each of them asks, and parks what has to wait for others.
//   ServiceThread service("parameter server", std::move(channel), [&](PeerChannel& c) { Server(c, workers).run(); });
// It ends when all workers have said bye, or when the channel is interrupted. A worker that is lost without a bye: where the gate has a
// bound reads that would wait for it fail, with its rank and clock; without one the others go on. A request that cannot be met fails the
// reads of its worker from then on, also one that takes more memory than there is. Nothing a worker sends ends the server.
// Owner: the service's body. Threads: one. Failure: none of its own but Interrupted.
// To add a verb: message.h, and a case in Server::handle().
#pragma once
#include <map>

#include "cohort/collective/peer_channel.h"
#include "cohort/ps/message.h"
#include "cohort/ps/table.h"

namespace cohort::ps {

class Server {
 public:
  Server(collective::PeerChannel& channel, std::vector<Rank> workers, std::size_t most_bytes = std::size_t{64} << 30);
  ~Server();
  void run();

 private:
  struct Peer;
  struct Shard;
  struct Outgoing;
  struct Parked {
    int worker = 0;
    Request request;
    std::vector<std::byte> ids;  // of rows
  };

  Peer& peer(int worker) { return *peers_[static_cast<std::size_t>(worker)]; }
  void listen(int worker);
  void on_incoming(int worker);
  void on_request(int worker);
  bool must_wait(int worker);  // for what it has marked to be applied
  bool may_go_on(int worker);  // one that waits
  void receive_payload(int worker);
  std::optional<Piece> place_of_payload(int worker);
  void refuse_payload(int worker);
  void handle(int worker);  // all of a request is here
  void carry_out(int worker);
  bool go_on();  // what may be done now; false: nothing could
  bool go_on_with(const Parked& parked);
  void make(int worker);
  void push_rows(int worker);
  void mark(int worker);
  void fetch(int worker);
  void answer(const Parked& parked);
  void refuse(const Parked& parked, const Error& why);
  std::optional<Error> hopeless(const Parked& parked);  // why a parked read will never be answered
  std::optional<Error> lost_among(const Shard& shard);
  void send(int worker, Reply reply, std::vector<std::byte> payload);
  void drop_outgoing(std::size_t slot);
  void drop_outgoing_to(int worker);
  void lose(int worker, const Error& error);
  void leave(int worker);
  Shard& shard_of(const Request& request);
  std::size_t payload_of(const Request& request);
  Piece values_of(const Request& request);

  collective::PeerChannel& channel_;
  const std::size_t most_bytes_;
  std::size_t bytes_ = 0;
  std::vector<std::unique_ptr<Peer>> peers_;  // by worker
  std::map<std::uint32_t, std::unique_ptr<Shard>> shards_;
  std::vector<Parked> parked_;
  std::vector<std::unique_ptr<Outgoing>> outgoing_;  // memory of what is sent
  std::vector<collective::Pending> pendings_;        // by worker what comes from it; behind them outgoing_
};

}  // namespace cohort::ps
