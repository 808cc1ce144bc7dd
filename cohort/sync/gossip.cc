#include "cohort/sync/gossip.h"

#include <algorithm>
#include <bit>

#include "cohort/base/error.h"

namespace cohort::sync {
namespace {

constexpr Seconds kPatience{300};  // for a neighbour that computes
constexpr const char* kNoFile = "none";

}  // namespace

Gossip::Meeting Gossip::meeting_of(const Mixing& mixing, int rank) {
  return {mixing[static_cast<std::size_t>(rank)], readers(mixing, rank)};
}

void Gossip::exchange(const Bucket& bucket, const Wire& wire, const Meeting& meeting, const Piece& sent, const Piece& arrived,
                      const std::function<void(const Neighbour&, const Piece&)>& took, std::uint32_t tag) const {
  const Deadline deadline = wire.deadline.value_or(Deadline::in(kPatience));
  const std::uint32_t of_bucket = 2 * static_cast<std::uint32_t>(bucket.index()) + tag;
  const int me = wire.comm->rank().value;
  std::vector<collective::Pending> sends;
  for (const int reader : meeting.readers) sends.push_back(channel_->send(Rank{reader}, of_bucket, sent));
  for (const Neighbour& n : meeting.reads) {
    if (n.rank != me) channel_->recv(Rank{n.rank}, of_bucket, arrived).wait(deadline);
    took(n, n.rank == me ? sent : arrived);
  }
  for (collective::Pending& p : sends) p.wait(deadline);
}

std::vector<SpecParam> graph_params(std::string_view preset) {
  return {{.name = "graph",
           .type = SpecParam::Type::word,
           .doc = "who the neighbours are",
           .preset = std::string(preset),
           .words = graph_names()},
          {.name = "file",
           .type = SpecParam::Type::text,
           .doc = "a file with weights instead: a line for each rank, with what it takes of each",
           .preset = kNoFile}};
}

GraphChoice::GraphChoice(const SpecValues& values, Stochastic what) : name_(values.word("graph")), path_(values.text("file")) {
  if (path_ != kNoFile) from_file_ = read_graph(path_, what);
}

Graph GraphChoice::of(int ranks) const {
  if (!from_file_) return make_graph(name_, ranks);
  if (const auto in_file = from_file_->front().size(); in_file != static_cast<std::size_t>(ranks))
    throw_failure(Kind::usage, "{} has weights for {} ranks, where there are {}", path_, in_file, ranks);
  return *from_file_;
}

void GraphChoice::refuse_turns(std::string_view why) const {
  constexpr int kSome = 8;  // ranks, of which every graph that changes with the step does
  const bool turns = from_file_ ? from_file_->size() > 1 : make_graph(name_, kSome).size() > 1;
  if (turns) throw_failure(Kind::usage, "{}, and those of {} change with the step; take another graph", why, from_file_ ? path_ : name_);
}

void GraphChoice::compare(collective::Communicator& comm) const {
  if (!from_file_ || comm.size() == 1) return;
  std::uint64_t sum = 0xcbf29ce484222325ULL;  // FNV-1a, by words
  const auto mix = [&sum](std::uint64_t word) { sum = (sum ^ word) * 0x100000001b3ULL; };
  for (const Mixing& mixing : *from_file_)
    for (const auto& row : mixing)
      for (const Neighbour& n : row) {
        mix(static_cast<std::uint64_t>(n.rank));
        mix(std::bit_cast<std::uint64_t>(n.weight));
      }
  const auto mine = static_cast<std::int64_t>(sum);
  std::vector<std::int64_t> all(static_cast<std::size_t>(comm.size()));
  comm.all_gather(collective::piece(std::span(&mine, 1)), collective::piece(std::span(all)), {.name = "weights of a graph"});
  const auto other = std::ranges::find_if(all, [&](std::int64_t theirs) { return theirs != all[0]; });
  if (other != all.end())
    throw_failure(Kind::usage, "{}: rank {} has read other weights than rank 0; give all hosts the same file", path_, other - all.begin());
}

}  // namespace cohort::sync
