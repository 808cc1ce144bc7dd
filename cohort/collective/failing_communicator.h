// For tests: a communicator whose rank is lost in the middle of an operation, or does not learn how one ended. Operations are counted and
// named, so that a test can lose a rank in every one of them in turn:
//   FailingCommunicator failing(comm);
//   failing.dies_at = 3;              // throws RankDies instead of taking part; the others notice when this rank's communicator goes
//   failing.misses_end_at = 2;        // takes part, then fails as if the result had not arrived
// Messages of channel() are not among them. Owner: the test. Threads: one. Failure: the inner communicator's, and those two.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "cohort/collective/communicator.h"

namespace cohort::collective {

struct RankDies : std::exception {};  // torch carries it out of backward

class FailingCommunicator final : public Communicator {
 public:
  using Counts = std::span<const std::size_t>;
  explicit FailingCommunicator(Communicator& inner) : inner_(inner) {}
  int dies_at = -1, misses_end_at = -1;  // operations by number
  std::vector<std::string> operations;   // names of those so far; cleared, it counts from 0 again

  Rank rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  Epoch epoch() const override { return inner_.epoch(); }
  std::string_view transport() const override { return inner_.transport(); }
  Region allocate(std::size_t bytes, Device device) override { return inner_.allocate(bytes, device); }
  void all_reduce(Piece data, Op op, const Call& c) override {
    through(c, [&] { inner_.all_reduce(data, op, c); });
  }
  void all_reduce(std::span<const Piece> pieces, Op op, const Call& c) override {
    through(c, [&] { inner_.all_reduce(pieces, op, c); });
  }
  void reduce_scatter(Piece in, Piece out, Op op, const Call& c, Counts n) override {
    through(c, [&] { inner_.reduce_scatter(in, out, op, c, n); });
  }
  void all_gather(Piece in, Piece out, const Call& c, Counts n) override {
    through(c, [&] { inner_.all_gather(in, out, c, n); });
  }
  void broadcast(Piece data, Rank root, const Call& c) override {
    through(c, [&] { inner_.broadcast(data, root, c); });
  }
  void all_to_all(Piece in, Piece out, const Call& c, Counts sends, Counts recvs) override {
    through(c, [&] { inner_.all_to_all(in, out, c, sends, recvs); });
  }
  void reduce(Piece in, Piece out, Op op, Rank root, const Call& c) override { inner_.reduce(in, out, op, root, c); }
  void gather(Piece in, Piece out, Rank root, const Call& c, Counts n) override { inner_.gather(in, out, root, c, n); }
  void scatter(Piece in, Piece out, Rank root, const Call& c, Counts n) override { inner_.scatter(in, out, root, c, n); }
  void barrier(const Call& c) override { inner_.barrier(c); }
  void send(Piece data, Rank to, std::uint32_t tag, const Call& c) override { inner_.send(data, to, tag, c); }
  void recv(Piece data, Rank from, std::uint32_t tag, const Call& c) override { inner_.recv(data, from, tag, c); }
  Message next(std::uint32_t first, std::uint32_t last, const Call& c) override { return inner_.next(first, last, c); }
  std::unique_ptr<PeerChannel> channel() override { return inner_.channel(); }
  std::unique_ptr<Communicator> split(int color, int key, const Call& c) override { return inner_.split(color, key, c); }
  std::unique_ptr<Communicator> subset(std::span<const Rank> ranks, const Call& c) override { return inner_.subset(ranks, c); }
  void abort(const Error& error) noexcept override { inner_.abort(error); }
  Moved moved(Collective which) const override { return inner_.moved(which); }
  std::string explain(Piece data, Op op) const override { return inner_.explain(data, op); }

 private:
  template <class Do>
  void through(const Call& c, const Do& operation) {
    const int now = static_cast<int>(operations.size());
    operations.emplace_back(c.name);
    if (now == dies_at) throw RankDies{};
    operation();
    if (now == misses_end_at) throw_failure(Kind::peer_lost, "this rank did not learn the end of it");
  }
  Communicator& inner_;
};

}  // namespace cohort::collective
