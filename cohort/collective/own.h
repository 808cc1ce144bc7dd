// The own engine: Communicator over a mesh of links, and over shared memory where the mesh shares it.
// Members are grouped by who may touch them; see communicator.h for the promises.
#pragma once
#include <array>
#include <atomic>
#include <memory>
#include <vector>

#include "cohort/collective/all_reduce.h"
#include "cohort/collective/communicator.h"
#include "cohort/collective/engine.h"
#include "cohort/collective/verbs.h"

namespace cohort::collective {

// Elements taken in, by verb. Shared by a communicator and its children: whoever asks the parent hears of all.
struct Tally {
  struct Row {
    std::atomic<std::uint64_t> calls{0}, elements{0}, bytes{0};
  };
  std::array<Row, kVerbs> rows;
};

inline constexpr std::uint32_t kWorldChannel = 1;

class Own final : public Communicator {
 public:
  Own(std::shared_ptr<net::Mesh> mesh, std::shared_ptr<Arena> arena, std::shared_ptr<Tally> tally, std::vector<Rank> members, int me,
      std::uint32_t channel, Options options, const Calibration& calibration, int cores, Underneath under);
  // The same members over another engine; all of them at once.
  std::unique_ptr<Own> with_engine(std::string_view name, Deadline deadline);
  // An all_reduce by that engine alone, as a trial: a failure is told to nobody else, and the communicator and its mesh stay well.
  void try_engine(const Region& region, Deadline deadline);
  void connect(Deadline deadline);  // meets the other members, opens the engine underneath; before the first verb

  Rank rank() const override { return Rank{peers_.rank()}; }
  int size() const override { return peers_.size(); }
  Epoch epoch() const override { return peers_.mesh().epoch(); }
  std::string_view transport() const override { return peers_.mesh().transport(); }
  Region allocate(std::size_t bytes, Device device) override;

  void all_reduce(Piece data, Op op, const Call& call) override { all_reduce(std::span<const Piece>(&data, 1), op, call); }
  void all_reduce(std::span<const Piece> pieces, Op op, const Call& call) override;
  void reduce_scatter(Piece in, Piece out, Op op, const Call& call, std::span<const std::size_t> counts) override;
  void all_gather(Piece in, Piece out, const Call& call, std::span<const std::size_t> counts) override;
  void broadcast(Piece data, Rank root, const Call& call) override;
  void reduce(Piece in, Piece out, Op op, Rank root, const Call& call) override;
  void gather(Piece in, Piece out, Rank root, const Call& call, std::span<const std::size_t> counts) override;
  void scatter(Piece in, Piece out, Rank root, const Call& call, std::span<const std::size_t> counts) override;
  void all_to_all(Piece in, Piece out, const Call& call, std::span<const std::size_t> send_counts,
                  std::span<const std::size_t> recv_counts) override;
  void barrier(const Call& call) override;
  void send(Piece data, Rank to, std::uint32_t tag, const Call& call) override;
  void recv(Piece data, Rank from, std::uint32_t tag, const Call& call) override;
  Message next(std::uint32_t first_tag, std::uint32_t last_tag, const Call& call) override;
  std::unique_ptr<Communicator> split(int color, int key, const Call& call) override;
  std::unique_ptr<Communicator> subset(std::span<const Rank> ranks, const Call& call) override;
  void abort(const Error& error) noexcept override;
  Moved moved(Verb verb) const override;
  std::string explain(Piece data, Op op) const override;

 private:
  struct Busy;  // one verb at a time
  // Runs body between the checks every verb shares: busy, fingerprint, sticky failure, the operation's name in errors, a trace span.
  template <class Body>
  void verb(Fingerprint print, const Call& call, Body body);
  void count(Verb verb, std::size_t elements, Dtype dtype);
  void agree();                                                     // fingerprints compared, nothing moved
  void meet(Fingerprint print, const Call& call);                   // a verb that does nothing else
  void gather_words(ConstBytes mine, Bytes all, const Call& call);  // a few bytes of every rank, as part of a split
  void all_reduce_one(Piece data, const Reduction& how, std::string_view algorithm);
  template <class Body>
  auto between(std::string_view what, Body body);  // point to point: what verb() is for collectives
  Message next_message(TagRange range, Deadline deadline);
  const AllReduce& row_for(Piece data, bool in_place, std::string_view algorithm) const;
  std::unique_ptr<Own> relative(std::vector<Rank> members, std::uint64_t salt, Underneath under, Deadline deadline);
  Reduction reduction(Dtype dtype, Op op, const Call& call) const;
  Shape shape(std::size_t bytes, bool in_place) const;
  Layout layout_for(Verb verb, std::span<const std::size_t> counts, std::size_t each) const;
  int member(Rank rank, Verb verb) const;
  void check_piece(Piece piece, Verb verb, Op op = Op::sum) const;

  // own_engine.cc: verbs by the engine underneath.
  void open_underneath(Deadline deadline);
  bool carried(Verb verb, Piece piece, Op op, std::size_t largest) const;
  template <class Body>
  void underneath(Body body);  // body(watch); a failure of the engine waits for the root cause and ends what it left under way
  void agree_first();          // fingerprints, before an engine that has none
  Piece prepared(Piece in, Piece out, Reduction& how, bool may_change);
  void finished(Piece out, const Reduction& how);
  void all_reduce_under(Piece data, Reduction how);
  void reduce_scatter_under(Piece in, Piece out, const Layout& layout, Reduction how);
  void all_gather_under(Piece in, Piece out, const Layout& layout);
  void broadcast_under(Piece data, int root);
  void reduce_under(Piece in, Piece out, int root, Reduction how);
  void all_to_all_under(Piece in, Piece out, const Layout& sends, const Layout& recvs);
  Deadline deadline(const Call& call) const { return call.deadline.value_or(Deadline::in(options_.timeout)); }

  Peers peers_;
  const std::shared_ptr<Tally> tally_;
  const Options options_;
  const Calibration calibration_;  // rank 0's, on every rank
  const int cores_;
  const Underneath under_;
  std::unique_ptr<Engine> engine_;  // constant after connect(); nullptr: we move everything ourselves
  std::atomic_flag busy_;
  std::uint64_t number_ = 0;  // of the last operation; owned by the thread that runs the verb
  void* stream_ = nullptr;    // of the running one; likewise
};

// comm: auto, on all ranks alike.
std::unique_ptr<Communicator> fastest(std::unique_ptr<Own> own, const Underneath& asked, bool canonical_only);

}  // namespace cohort::collective
