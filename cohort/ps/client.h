// A Client is a worker's side of parameter servers: it makes tables, pushes what changes them, marks the end of a clock, and pulls values
// that are as fresh as the table's clock promises (gate.h).
//   Client client(channel, servers, me, workers);
//   const auto w = client.make({.name = "weights", .count = 1000, .rule = "sgd(lr=0.1)", .clock = "ssp(2)"});
//   client.pull(w, values);  client.wait(w);             // clock 0
//   client.push(w, gradient);  client.mark(w);           // ends it
//   const auto ids = ...;  client.push_rows(e, ids, gradients);                  // a table of rows: make_rows()
// A table of elements is cut into one run for each server, a table of rows by a hash of their ids. All workers make the same tables in
// the same order. Between two marks of a table of elements there is one push; of rows there may be several.
// What is pushed is borrowed until mark() returns; where a pull lands, until wait() has. Closing says bye: the servers wait no more for
// this worker; closed by an exception it is lost, and others that would wait for it hear so.
// Owner: the caller; the channel is borrowed, and may be a server's own. Threads: tables are independent; one thread at a time for one.
// Failure: from wait(), and from the call that runs into it: a server that is gone, a worker that others must not wait for, a request
// that was refused, each with what to do next; Kind::timeout after `patience`.
#pragma once
#include <mutex>

#include "cohort/collective/peer_channel.h"
#include "cohort/ps/gate.h"
#include "cohort/ps/message.h"

namespace cohort::ps {

struct DenseOptions {
  std::string name;
  std::size_t count = 0;
  Dtype dtype = Dtype::f32;
  std::string rule = "sgd(lr=0.1)";
  std::string clock = "bsp";
  bool average = true;
  std::vector<Part> parts{};         // empty: one of all
  std::vector<std::size_t> edges{};  // server s has [edges[s], edges[s + 1]); empty: even runs
};

struct RowOptions {
  std::string name;
  std::size_t width = 1;
  std::string rule = "adagrad(lr=0.1)";
  std::string clock = "tap";
  bool average = false;
};

// What a pull brought, by the server that is furthest behind.
struct Pulled {
  std::int64_t clock = 0;    // of this worker
  std::int64_t low = 0;      // every update stamped before it is in
  std::int64_t version = 0;  // updates applied
  std::int64_t behind() const { return clock > low ? clock - low : 0; }
};

class Client {
 public:
  using TableId = std::uint32_t;
  // worker: this one, of so many.
  Client(collective::PeerChannel& channel, std::vector<Rank> servers, int worker, int workers, Seconds patience = Seconds{300});
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  TableId make(const DenseOptions& options);
  TableId make_rows(const RowOptions& options);
  std::int64_t clock(TableId table) const;  // how many this worker has ended

  void push(TableId table, const Piece& gradient);
  void push_rows(TableId table, std::span<const std::uint64_t> ids, std::span<const float> gradients);
  void mark(TableId table);  // with the rule's own rate
  void mark(TableId table, const Update& update);
  // slack: how many clocks others may be behind, in place of the table's own promise.
  void pull(TableId table, const Piece& into, std::optional<std::int64_t> slack = {});
  void pull_rows(TableId table, std::span<const std::uint64_t> ids, std::span<float> into);
  Pulled wait(TableId table);
  Pulled pull_now(TableId table, const Piece& into) { return pull(table, into), wait(table); }

  // --- values and states of the rule (1 ..), while nobody pushes
  void put(TableId table, std::uint32_t which, std::size_t first, const Piece& values);  // both wait until it is done
  void fetch(TableId table, std::uint32_t which, std::size_t first, const Piece& into);
  // Before its first push, on all workers alike: a resumed run. updates: that the rule's state has behind it, if not one a clock.
  void begin_at(TableId table, std::int64_t clock, std::optional<std::int64_t> updates = {});
  bool begun(TableId table) const;  // something was pushed or marked
  void bye() noexcept;

 private:
  struct Sent;
  struct Shard;
  struct TableState;
  TableState& add(std::unique_ptr<TableState> table);
  TableState& state_of(TableId table) const;
  void make_shards(TableState& table, const Definition& definition);
  void send(TableState& table, const Shard& shard, Request request, const Piece& payload = {}, std::vector<std::byte> kept = {},
            bool borrowed = false);
  void listen(TableState& table, Shard& shard, const Piece& into);
  Reply await(TableState& table, Shard& shard);
  void await_borrowed(TableState& table);
  void give_up(TableState& table);
  Pulled collect(TableState& table);
  [[noreturn]] void explain(const Failure& failure, const TableState& table, const Shard& shard) const;

  collective::PeerChannel& channel_;
  const std::vector<Rank> servers_;
  const int worker_, workers_;
  const Seconds patience_;
  std::vector<std::unique_ptr<TableState>> tables_;
  const int exceptions_;  // under way when it was made
  bool said_bye_ = false;
  std::mutex mutex_;                         // of sending: a request and its payload follow each other
  std::vector<std::unique_ptr<Sent>> sent_;  // guarded by mutex_
};

}  // namespace cohort::ps
