// Point to point, groups and the end of a communicator: the parts of the own engine that are no collective reduction.
#include <fmt/format.h>

#include <algorithm>

#include "cohort/collective/own.h"
#include "cohort/collective/selector.h"

namespace cohort::collective {
namespace {

constexpr Seconds kLookAround{0.25};  // how often a server that waits for anybody looks whether the communicator failed
constexpr std::uint32_t kLastTag = (1u << 31) - 1;

void check_tag(std::uint32_t tag, Verb verb) {
  if (tag > kLastTag) throw_failure(Kind::usage, "{}: tag {} is above {}", name_of(verb), tag, kLastTag);
}

}  // namespace

// A lost peer or an abort ends the communicator and is told to all, as it is by a verb; anything else is between the two of them.
template <class Body>
auto Own::between(std::string_view what, Body body) {
  try {
    peers_.check_others();  // what one who has left sent before is still there
    return body();
  } catch (const Failure& failure) {
    if (failure.kind() != Kind::peer_lost && failure.kind() != Kind::aborted) throw;
    Error error{failure.kind(), fmt::format("{} on rank {}: {}", what, peers_.rank(), failure.what()), failure.error().rank};
    peers_.fail(failure.error());
    peers_.mesh().abort(error);
    throw Failure{std::move(error)};
  }
}

void Own::send(Piece data, Rank to, std::uint32_t tag, const Call& call) {
  const auto peer = peers_.members()[static_cast<std::size_t>(member(to, Verb::send))];
  check_tag(tag, Verb::send);
  between("send", [&] {
    auto sending = peers_.mesh().link(peer).send({static_cast<const std::byte*>(data.data), data.bytes()}, Tag{peers_.channel(), tag});
    peers_.finish(sending, deadline(call));
  });
}

void Own::recv(Piece data, Rank from, std::uint32_t tag, const Call& call) {
  const auto peer = peers_.members()[static_cast<std::size_t>(member(from, Verb::recv))];
  check_tag(tag, Verb::recv);
  between("recv", [&] {
    auto receiving = peers_.mesh().link(peer).recv({static_cast<std::byte*>(data.data), data.bytes()}, Tag{peers_.channel(), tag});
    peers_.finish(receiving, deadline(call));
    count(Verb::recv, data.count, data.dtype);
  });
}

Message Own::next(std::uint32_t first_tag, std::uint32_t last_tag, const Call& call) {
  check_tag(last_tag, Verb::recv);
  Message message = between("next", [&] { return next_message({peers_.channel(), first_tag, last_tag}, deadline(call)); });
  const auto& members = peers_.members();
  message.from = Rank{static_cast<std::int32_t>(std::find(members.begin(), members.end(), message.from) - members.begin())};
  return message;
}

Message Own::next_message(TagRange range, Deadline deadline) {
  for (;;) {
    peers_.check_others();
    try {
      return peers_.mesh().next(range, deadline.sooner(Deadline::in(kLookAround)));
    } catch (const Failure& failure) {
      peers_.check();
      if (failure.kind() != Kind::timeout || deadline.passed()) throw;
    }
  }
}

std::unique_ptr<Communicator> Own::split(int color, int key, const Call& call) {
  struct Ticket {
    std::int64_t color, key;
  };
  const auto n = static_cast<std::size_t>(size());
  Ticket mine{color, key};
  std::vector<Ticket> all(n);
  gather_words(bytes_of(mine), std::as_writable_bytes(std::span(all)), call);
  if (color < 0) return nullptr;

  std::vector<std::pair<std::int64_t, int>> order;  // (key, rank) of our colour
  for (int r = 0; r < size(); ++r)
    if (all[static_cast<std::size_t>(r)].color == color) order.emplace_back(all[static_cast<std::size_t>(r)].key, r);
  std::sort(order.begin(), order.end());
  std::vector<Rank> members;
  for (const auto& [k, r] : order) members.push_back(peers_.members()[static_cast<std::size_t>(r)]);
  return relative(std::move(members), static_cast<std::uint64_t>(color), under_, deadline(call));
}

std::unique_ptr<Communicator> Own::subset(std::span<const Rank> ranks, const Call& call) {
  std::vector<Rank> members;
  std::vector<std::size_t> listed;
  for (const Rank rank : ranks) {
    listed.push_back(static_cast<std::size_t>(member(rank, Verb::split)));
    members.push_back(peers_.members()[listed.back()]);
  }
  auto sorted = listed;
  std::sort(sorted.begin(), sorted.end());
  if (sorted.empty() || std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end())
    throw_failure(Kind::usage, "subset: the list of ranks must name at least one rank, and each once");
  const auto list_hash = hash_of(listed);
  meet({.verb = Verb::split, .count = listed.size(), .layout = list_hash}, call);
  if (std::find(listed.begin(), listed.end(), static_cast<std::size_t>(peers_.rank())) == listed.end()) return nullptr;
  return relative(std::move(members), list_hash, under_, deadline(call));
}

std::unique_ptr<Own> Own::relative(std::vector<Rank> members, std::uint64_t salt, Underneath under, Deadline deadline) {
  const Rank self = peers_.members()[static_cast<std::size_t>(peers_.rank())];
  const int me = static_cast<int>(std::find(members.begin(), members.end(), self) - members.begin());
  const auto hash = mix(mix(mix(peers_.channel(), number_), salt), members.size());
  const auto channel = static_cast<std::uint32_t>(hash >> 32) | 2u;  // never the world's
  auto own = std::make_unique<Own>(peers_.shared_mesh(), peers_.arena(), tally_, std::move(members), me, channel, options_, calibration_,
                                   cores_, std::move(under));
  own->connect(deadline);
  return own;
}

void Own::abort(const Error& error) noexcept {
  peers_.fail(error);
  peers_.mesh().abort(error);
}

std::string Own::explain(Piece data, Op op) const {
  const bool in_place = peers_.board() != nullptr && peers_.arena()->locate(data.data, data.bytes()).has_value();
  if (!options_.algorithm.empty()) return fmt::format("{} was asked for", options_.algorithm);
  if (carried(Verb::all_reduce, data, op, data.count)) return fmt::format("{} underneath: {}", under_.comm, engine_->text());
  return fmt::format("{}\n  constants: {}", collective::explain(shape(data.bytes(), in_place), calibration_, options_.canonical_only),
                     options_.calibration.empty() ? "built in" : options_.calibration);
}

}  // namespace cohort::collective
