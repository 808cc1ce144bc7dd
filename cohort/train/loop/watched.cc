// A communicator that tells Whereabouts what it is inside of. Nothing else differs: every verb goes straight to the one underneath.
#include <numeric>

#include "cohort/train/loop/whereabouts.h"

namespace cohort {
namespace {

using collective::Call;
using collective::Communicator;
using collective::Op;
using collective::Piece;
using Counts = std::span<const std::size_t>;

class Watched final : public Communicator {
 public:
  Watched(Communicator& inner, Whereabouts& where) : inner_(inner), where_(where) {}
  Watched(std::unique_ptr<Communicator> inner, Whereabouts& where) : own_(std::move(inner)), inner_(*own_), where_(where) {}

  Rank rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  Epoch epoch() const override { return inner_.epoch(); }
  std::string_view transport() const override { return inner_.transport(); }
  collective::Region allocate(std::size_t bytes, collective::Device device) override { return inner_.allocate(bytes, device); }

  void all_reduce(Piece data, Op op, const Call& call) override {
    const Operation now(where_, "all_reduce", call.name, data.bytes());
    inner_.all_reduce(data, op, call);
  }
  void all_reduce(std::span<const Piece> pieces, Op op, const Call& call) override {
    const auto sum = [](std::size_t bytes, const Piece& p) { return bytes + p.bytes(); };
    const Operation now(where_, "all_reduce", call.name, std::accumulate(pieces.begin(), pieces.end(), std::size_t{0}, sum));
    inner_.all_reduce(pieces, op, call);
  }
  void reduce_scatter(Piece in, Piece out, Op op, const Call& call, Counts counts) override {
    const Operation now(where_, "reduce_scatter", call.name, in.bytes());
    inner_.reduce_scatter(in, out, op, call, counts);
  }
  void all_gather(Piece in, Piece out, const Call& call, Counts counts) override {
    const Operation now(where_, "all_gather", call.name, out.bytes());
    inner_.all_gather(in, out, call, counts);
  }
  void broadcast(Piece data, Rank root, const Call& call) override {
    const Operation now(where_, "broadcast", call.name, data.bytes());
    inner_.broadcast(data, root, call);
  }
  void reduce(Piece in, Piece out, Op op, Rank root, const Call& call) override {
    const Operation now(where_, "reduce", call.name, in.bytes());
    inner_.reduce(in, out, op, root, call);
  }
  void gather(Piece in, Piece out, Rank root, const Call& call, Counts counts) override {
    const Operation now(where_, "gather", call.name, in.bytes());
    inner_.gather(in, out, root, call, counts);
  }
  void scatter(Piece in, Piece out, Rank root, const Call& call, Counts counts) override {
    const Operation now(where_, "scatter", call.name, out.bytes());
    inner_.scatter(in, out, root, call, counts);
  }
  void all_to_all(Piece in, Piece out, const Call& call, Counts send_counts, Counts recv_counts) override {
    const Operation now(where_, "all_to_all", call.name, in.bytes());
    inner_.all_to_all(in, out, call, send_counts, recv_counts);
  }
  void barrier(const Call& call) override {
    const Operation now(where_, "barrier", call.name, 0);
    inner_.barrier(call);
  }
  void send(Piece data, Rank to, std::uint32_t tag, const Call& call) override {
    const Operation now(where_, "send", call.name, data.bytes());
    inner_.send(data, to, tag, call);
  }
  void recv(Piece data, Rank from, std::uint32_t tag, const Call& call) override {
    const Operation now(where_, "recv", call.name, data.bytes());
    inner_.recv(data, from, tag, call);
  }
  collective::Message next(std::uint32_t first_tag, std::uint32_t last_tag, const Call& call) override {
    const Operation now(where_, "next", call.name, 0);
    return inner_.next(first_tag, last_tag, call);
  }
  std::unique_ptr<Communicator> split(int color, int key, const Call& call) override {
    const Operation now(where_, "split", call.name, 0);
    return wrapped(inner_.split(color, key, call));
  }
  std::unique_ptr<Communicator> subset(std::span<const Rank> ranks, const Call& call) override {
    const Operation now(where_, "subset", call.name, 0);
    return wrapped(inner_.subset(ranks, call));
  }
  void abort(const Error& error) noexcept override { inner_.abort(error); }
  collective::Moved moved(collective::Verb verb) const override { return inner_.moved(verb); }
  std::string explain(Piece data, Op op) const override { return inner_.explain(data, op); }

 private:
  std::unique_ptr<Communicator> wrapped(std::unique_ptr<Communicator> child) {
    return child ? std::make_unique<Watched>(std::move(child), where_) : nullptr;  // nullptr: this rank is not in it
  }

  std::unique_ptr<Communicator> own_;  // of a child
  Communicator& inner_;
  Whereabouts& where_;
};

}  // namespace

std::unique_ptr<Communicator> watched(Communicator& comm, Whereabouts& where) { return std::make_unique<Watched>(comm, where); }

}  // namespace cohort
