// Point to point, groups and the end of a communicator: the parts of the native backend that are no collective reduction.
#include <fmt/format.h>

#include <algorithm>

#include "cohort/collective/channel/channel_core.h"
#include "cohort/collective/native/native_backend.h"
#include "cohort/collective/operations/selector.h"

namespace cohort::collective {
namespace {

constexpr Seconds kPollInterval{0.25};  // how often a server that waits for any message checks whether the communicator failed
constexpr std::uint32_t kLastTag = (1u << 31) - 1;

void check_tag(std::uint32_t tag, Collective collective) {
  if (tag > kLastTag) throw_failure(Kind::usage, "{}: tag {} is above {}", name_of(collective), tag, kLastTag);
}

}  // namespace

// A lost peer or an abort ends the communicator and is sent to all ranks, as in a collective; any other failure concerns these two only.
template <class Body>
auto NativeBackend::between(std::string_view what, Body body) {
  try {
    peers_.check_others();  // what one who has left sent before is still there
    return body();
  } catch (const Failure& failure) {
    if (failure.kind() != Kind::peer_lost && failure.kind() != Kind::aborted) throw;
    Error error{failure.kind(), fmt::format("{} on rank {}: {}", what, peers_.rank(), failure.what()), failure.error().rank};
    peers_.fail(failure.error());
    peers_.links().abort(error);
    throw Failure{std::move(error)};
  }
}

void NativeBackend::send(Piece data, Rank to, std::uint32_t tag, const Call& call) {
  const ObservedOperation observed(*observer_, "send", call.name, {&data, 1});
  const auto peer = peers_.members()[static_cast<std::size_t>(member(to, Collective::send))];
  check_tag(tag, Collective::send);
  between("send", [&] {
    auto sending = peers_.links().link(peer).send({static_cast<const std::byte*>(data.data), data.bytes()}, Tag{peers_.channel(), tag});
    peers_.finish(sending, deadline(call));
  });
}

void NativeBackend::recv(Piece data, Rank from, std::uint32_t tag, const Call& call) {
  const ObservedOperation observed(*observer_, "recv", call.name, {&data, 1});
  const auto peer = peers_.members()[static_cast<std::size_t>(member(from, Collective::recv))];
  check_tag(tag, Collective::recv);
  between("recv", [&] {
    auto receiving = peers_.links().link(peer).recv({static_cast<std::byte*>(data.data), data.bytes()}, Tag{peers_.channel(), tag});
    peers_.finish(receiving, deadline(call));
    count(Collective::recv, data.count, data.dtype);
  });
}

Message NativeBackend::next(std::uint32_t first_tag, std::uint32_t last_tag, const Call& call) {
  const ObservedOperation observed(*observer_, "next", call.name);
  check_tag(last_tag, Collective::recv);
  Message message = between("next", [&] { return next_message({peers_.channel(), first_tag, last_tag}, deadline(call)); });
  const auto& members = peers_.members();
  message.from = Rank{static_cast<std::int32_t>(std::find(members.begin(), members.end(), message.from) - members.begin())};
  return message;
}

Message NativeBackend::next_message(TagRange range, Deadline deadline) {
  for (;;) {
    peers_.check_others();
    try {
      return peers_.links().next(range, deadline.sooner(Deadline::in(kPollInterval)));
    } catch (const Failure& failure) {
      peers_.check();
      if (failure.kind() != Kind::timeout || deadline.passed()) throw;
    }
  }
}

// Not through between(): a lost peer is a matter of the calls to it. Communicators' channels are 1 or have bit 1, so this is none of them.
std::unique_ptr<PeerChannel> NativeBackend::channel() {
  const auto channel = static_cast<std::uint32_t>(mix(peers_.channel(), 1 + channels_.fetch_add(1)) >> 32) & ~3u;
  return std::make_unique<PeerChannel>(
      std::make_shared<ChannelCore>(peers_.shared_links(), peers_.members(), peers_.rank(), channel, counters_));
}

std::unique_ptr<Communicator> NativeBackend::split(int color, int key, const Call& call) {
  const ObservedOperation observed(*observer_, "split", call.name);
  struct Entry {
    std::int64_t color, key;
  };
  const auto n = static_cast<std::size_t>(size());
  Entry mine{color, key};
  std::vector<Entry> all(n);
  gather_small(bytes_of(mine), std::as_writable_bytes(std::span(all)), call);
  if (color < 0) return nullptr;

  std::vector<std::pair<std::int64_t, int>> order;  // (key, rank) of our colour
  for (int r = 0; r < size(); ++r)
    if (all[static_cast<std::size_t>(r)].color == color) order.emplace_back(all[static_cast<std::size_t>(r)].key, r);
  std::sort(order.begin(), order.end());
  std::vector<Rank> members;
  for (const auto& [k, r] : order) members.push_back(peers_.members()[static_cast<std::size_t>(r)]);
  return make_child(std::move(members), static_cast<std::uint64_t>(color), backend_options_, deadline(call));
}

std::unique_ptr<Communicator> NativeBackend::subset(std::span<const Rank> ranks, const Call& call) {
  const ObservedOperation observed(*observer_, "subset", call.name);
  std::vector<Rank> members;
  std::vector<std::size_t> listed;
  for (const Rank rank : ranks) {
    listed.push_back(static_cast<std::size_t>(member(rank, Collective::split)));
    members.push_back(peers_.members()[listed.back()]);
  }
  auto sorted = listed;
  std::sort(sorted.begin(), sorted.end());
  if (sorted.empty() || std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end())
    throw_failure(Kind::usage, "subset: the list of ranks must name at least one rank, and each once");
  const auto list_hash = hash_of(listed);
  synchronize({.collective = Collective::split, .count = listed.size(), .layout = list_hash}, call);
  if (std::find(listed.begin(), listed.end(), static_cast<std::size_t>(peers_.rank())) == listed.end()) return nullptr;
  return make_child(std::move(members), list_hash, backend_options_, deadline(call));
}

std::unique_ptr<NativeBackend> NativeBackend::make_child(std::vector<Rank> members, std::uint64_t salt, BackendOptions backend_options,
                                                         Deadline deadline) {
  const Rank self = peers_.members()[static_cast<std::size_t>(peers_.rank())];
  const int me = static_cast<int>(std::find(members.begin(), members.end(), self) - members.begin());
  const auto hash = mix(mix(mix(peers_.channel(), number_), salt), members.size());
  const auto channel = static_cast<std::uint32_t>(hash >> 32) | 2u;  // never the world's
  auto child = std::make_unique<NativeBackend>(peers_.shared_links(), peers_.arena(), counters_, observer_, std::move(members), me, channel,
                                               options_, calibration_, cores_, std::move(backend_options));
  child->connect(deadline);
  return child;
}

void NativeBackend::abort(const Error& error) noexcept {
  peers_.fail(error);
  peers_.links().abort(error);
}

std::string NativeBackend::explain(Piece data, Op op) const {
  const bool in_place = peers_.control_block() != nullptr && peers_.arena()->locate(data.data, data.bytes()).has_value();
  if (!options_.algorithm.empty()) return fmt::format("{} was asked for", options_.algorithm);
  if (delegated(Collective::all_reduce, data, op, data.count))
    return fmt::format("{} carries it: {}", backend_options_.name, backend_->text());
  return fmt::format("{}\n  constants: {}", collective::explain(shape(data.bytes(), in_place), calibration_, options_.canonical_only),
                     options_.calibration.empty() ? "built in" : options_.calibration);
}

}  // namespace cohort::collective
