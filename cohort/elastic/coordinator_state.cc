#include "cohort/elastic/coordinator_state.h"

#include <algorithm>
#include <utility>

#include "cohort/base/error.h"
#include "cohort/net/frame/little_endian.h"

namespace cohort::elastic {
namespace {

enum class EntryType : std::uint8_t { opened = 1, formed, gone, respawned, finished, left, transferred };
constexpr std::uint64_t kNoStep = UINT64_MAX;  // where a step is optional

std::int64_t step_of(std::uint64_t number) {
  if (number > INT64_MAX) throw_failure(Kind::corrupt, "a decision log holds step {}, which is impossible", number);
  return static_cast<std::int64_t>(number);
}

template <class... Cases>
struct Match : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Match(Cases...) -> Match<Cases...>;  // clang 14 asks for it

// The members are encoded as a Roster, behind the fields that a Roster does not have.
void write_formed(net::ByteWriter& w, const Formed& formed) {
  w.number(formed.base ? static_cast<std::uint64_t>(*formed.base) : kNoStep);
  w.number(formed.holders);
  w.number<std::uint64_t>(formed.roster.size());
  group::Roster roster{"", formed.epoch, {}};
  for (const Worker& worker : formed.roster) {
    w.number(worker.id.value);
    roster.members.push_back(worker.member);
  }
  const auto bytes = encode(roster);
  w.letters({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

Formed read_formed(net::ByteReader& r) {
  Formed formed;
  const auto base = r.number<std::uint64_t>();
  if (base != kNoStep) formed.base = step_of(base);
  formed.holders = r.number<std::uint32_t>();
  const auto count = r.number<std::uint64_t>();
  if (count > r.left() / sizeof(WorkerId)) throw_failure(Kind::corrupt, "a decision log announces a membership epoch of {} workers", count);
  std::vector<WorkerId> ids(count);
  for (WorkerId& id : ids) id = WorkerId{r.number<std::uint64_t>()};
  const std::string rest = r.letters(r.left());
  group::Roster roster = group::decode_roster(std::as_bytes(std::span(rest)));
  if (roster.members.size() != count || !roster.job.empty())
    throw_failure(Kind::corrupt, "a decision log holds {} workers and a roster of {}", count, roster.size());
  formed.epoch = roster.epoch;
  for (std::size_t i = 0; i < ids.size(); ++i) formed.roster.push_back({ids[i], std::move(roster.members[i])});
  return formed;
}

void check_roster(const Formed& formed) {
  std::set<WorkerId> ids;
  for (std::size_t i = 0; i < formed.roster.size(); ++i) {
    const Worker& worker = formed.roster[i];
    if (worker.member.rank.value != static_cast<std::int32_t>(i))
      throw_failure(Kind::corrupt, "membership epoch {} lists rank {} at position {}", formed.epoch.value, worker.member.rank.value, i);
    if (!ids.insert(worker.id).second)
      throw_failure(Kind::corrupt, "membership epoch {} lists worker {:x} twice", formed.epoch.value, worker.id.value);
  }
  if (ids.empty()) throw_failure(Kind::corrupt, "membership epoch {} has no members", formed.epoch.value);
  if (formed.holders > ids.size() || (formed.holders > 0) != formed.base.has_value())
    throw_failure(Kind::corrupt, "membership epoch {} of {} workers cannot have {} holders of its first state", formed.epoch.value,
                  ids.size(), formed.holders);
}

void follow(CoordinatorState& coordinator_state, const Formed& formed) {
  if (formed.epoch.value != coordinator_state.epoch.value + 1)
    throw_failure(Kind::corrupt, "membership epoch {} cannot follow {}", formed.epoch.value, coordinator_state.epoch.value);
  if (coordinator_state.finished) throw_failure(Kind::corrupt, "membership epoch {} cannot follow the end of training", formed.epoch.value);
  check_roster(formed);
  coordinator_state.epoch = formed.epoch;
  coordinator_state.base = formed.base;
  coordinator_state.roster = formed.roster;
  coordinator_state.holders = formed.holders;
  coordinator_state.gone.clear();
  coordinator_state.transferred.clear();
}

void follow(CoordinatorState& coordinator_state, const ShardTransferred& transferred) {
  if (!coordinator_state.rank_of(transferred.worker) || transferred.to.value < kNoRank.value ||
      transferred.to.value >= std::ssize(coordinator_state.roster))
    throw_failure(Kind::corrupt, "worker {:x} transferred its state to rank {}, and membership epoch {} has {} ranks",
                  transferred.worker.value, transferred.to.value, coordinator_state.epoch.value, coordinator_state.roster.size());
  coordinator_state.transferred[transferred.worker] = transferred.to;
}

}  // namespace

std::optional<Rank> CoordinatorState::rank_of(WorkerId worker) const {
  for (const Worker& w : roster)
    if (w.id == worker) return w.member.rank;
  return std::nullopt;
}

// Newcomers are spread over the holders of the state. Without any, rank 0 reads the disk and the others receive the state from rank 0.
Rank CoordinatorState::heal_source(Rank rank) const {
  const auto r = static_cast<std::uint32_t>(rank.value);
  if (holders == 0) return r == 0 ? kNoRank : Rank{0};
  return r < holders ? kNoRank : Rank{static_cast<std::int32_t>((r - holders) % holders)};
}

void apply(CoordinatorState& coordinator_state, const Entry& entry) {
  std::visit(Match{[&](const Opened& e) {
                     if (e.term <= coordinator_state.term)
                       throw_failure(Kind::corrupt, "term {} cannot follow term {}", e.term, coordinator_state.term);
                     coordinator_state.term = e.term;
                   },
                   [&](const Formed& e) { follow(coordinator_state, e); },
                   [&](const Gone& e) {
                     if (!coordinator_state.rank_of(e.worker))
                       throw_failure(Kind::corrupt, "worker {:x} is gone, but was not in membership epoch {}", e.worker.value,
                                     coordinator_state.epoch.value);
                     coordinator_state.gone.insert(e.worker);
                   },
                   [&](const Respawned& e) {
                     if (e.so_far < coordinator_state.respawned)
                       throw_failure(Kind::corrupt, "{} respawned workers cannot become {}", coordinator_state.respawned, e.so_far);
                     coordinator_state.respawned = e.so_far;
                   },
                   [&](const Finished& e) { coordinator_state.finished = e.step; }, [&](const Left& e) { coordinator_state.left = e.now; },
                   [&](const ShardTransferred& e) { follow(coordinator_state, e); }},
             entry);
}

CoordinatorState replay(const std::vector<Entry>& entries) {
  CoordinatorState coordinator_state;
  for (const Entry& entry : entries) apply(coordinator_state, entry);
  return coordinator_state;
}

std::vector<std::byte> encode(const Entry& entry) {
  net::ByteWriter w;
  const auto type = [&](EntryType which) { w.number(static_cast<std::uint8_t>(which)); };
  std::visit(Match{[&](const Opened& e) {
                     type(EntryType::opened);
                     w.number(e.term);
                   },
                   [&](const Formed& e) {
                     type(EntryType::formed);
                     write_formed(w, e);
                   },
                   [&](const Gone& e) {
                     type(EntryType::gone);
                     w.number(e.worker.value);
                   },
                   [&](const Respawned& e) {
                     type(EntryType::respawned);
                     w.number(e.so_far);
                   },
                   [&](const Finished& e) {
                     type(EntryType::finished);
                     w.number(static_cast<std::uint64_t>(e.step));
                   },
                   [&](const Left& e) {
                     type(EntryType::left);
                     w.number(e.now);
                   },
                   [&](const ShardTransferred& e) {
                     type(EntryType::transferred);
                     w.number(e.worker.value);
                     w.number(static_cast<std::uint32_t>(e.to.value));
                   }},
             entry);
  return w.take();
}

Entry decode_entry(ConstBytes bytes) {
  if (bytes.size() > kMostEntryBytes)
    throw_failure(Kind::corrupt, "an entry of {} bytes; at most {} are possible", bytes.size(), kMostEntryBytes);
  net::ByteReader r(bytes, "a decision log");
  const auto type = r.number<std::uint8_t>();
  Entry entry;
  switch (EntryType{type}) {
    case EntryType::opened: entry = Opened{r.number<std::uint64_t>()}; break;
    case EntryType::formed: entry = read_formed(r); break;
    case EntryType::gone: entry = Gone{WorkerId{r.number<std::uint64_t>()}}; break;
    case EntryType::respawned: entry = Respawned{r.number<std::uint32_t>()}; break;
    case EntryType::finished: entry = Finished{step_of(r.number<std::uint64_t>())}; break;
    case EntryType::left: entry = Left{r.number<std::uint32_t>()}; break;
    case EntryType::transferred: {
      const WorkerId worker{r.number<std::uint64_t>()};
      entry = ShardTransferred{worker, Rank{static_cast<std::int32_t>(r.number<std::uint32_t>())}};
      break;
    }
    default: throw_failure(Kind::corrupt, "a decision log holds an entry of type {}, which does not exist", type);
  }
  r.end();
  if (const auto* formed = std::get_if<Formed>(&entry)) check_roster(*formed);
  return entry;
}

}  // namespace cohort::elastic
