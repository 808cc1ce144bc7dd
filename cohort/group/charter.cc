#include "cohort/group/charter.h"

#include <algorithm>
#include <utility>

#include "cohort/base/error.h"
#include "cohort/net/little.h"

namespace cohort::group {
namespace {

enum class Word : std::uint8_t { opened = 1, formed, gone, respawned, finished, left, handed };
constexpr std::uint64_t kNoStep = UINT64_MAX;  // where a step is optional

std::int64_t step_of(std::uint64_t number) {
  if (number > INT64_MAX) throw_failure(Kind::corrupt, "a decision log holds step {}, which cannot be", number);
  return static_cast<std::int64_t>(number);
}

template <class... Cases>
struct Match : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Match(Cases...) -> Match<Cases...>;  // clang 14 asks for it

// The members travel as a Roster, in its own bytes, behind what a Roster does not have.
void write_formed(net::LittleWriter& w, const Formed& formed) {
  w.number(formed.base ? static_cast<std::uint64_t>(*formed.base) : kNoStep);
  w.number(formed.holders);
  w.number<std::uint64_t>(formed.roster.size());
  Roster roster{"", formed.epoch, {}};
  for (const Worker& worker : formed.roster) {
    w.number(worker.id.value);
    roster.members.push_back(worker.member);
  }
  const auto bytes = encode(roster);
  w.letters({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

Formed read_formed(net::LittleReader& r) {
  Formed formed;
  const auto base = r.number<std::uint64_t>();
  if (base != kNoStep) formed.base = step_of(base);
  formed.holders = r.number<std::uint32_t>();
  const auto count = r.number<std::uint64_t>();
  if (count > r.left() / sizeof(WorkerId)) throw_failure(Kind::corrupt, "a decision log announces an epoch of {} workers", count);
  std::vector<WorkerId> ids(count);
  for (WorkerId& id : ids) id = WorkerId{r.number<std::uint64_t>()};
  const std::string rest = r.letters(r.left());
  Roster roster = decode_roster(std::as_bytes(std::span(rest)));
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
      throw_failure(Kind::corrupt, "epoch {} lists rank {} in place {}", formed.epoch.value, worker.member.rank.value, i);
    if (!ids.insert(worker.id).second)
      throw_failure(Kind::corrupt, "epoch {} lists worker {:x} twice", formed.epoch.value, worker.id.value);
  }
  if (ids.empty()) throw_failure(Kind::corrupt, "epoch {} has no members", formed.epoch.value);
  if (formed.holders > ids.size() || (formed.holders > 0) != formed.base.has_value())
    throw_failure(Kind::corrupt, "epoch {} of {} workers cannot have {} that hold its first state", formed.epoch.value, ids.size(),
                  formed.holders);
}

void follow(Charter& charter, const Formed& formed) {
  if (formed.epoch.value != charter.epoch.value + 1)
    throw_failure(Kind::corrupt, "epoch {} cannot follow epoch {}", formed.epoch.value, charter.epoch.value);
  if (charter.finished) throw_failure(Kind::corrupt, "epoch {} cannot follow the end of training", formed.epoch.value);
  check_roster(formed);
  charter.epoch = formed.epoch;
  charter.base = formed.base;
  charter.roster = formed.roster;
  charter.holders = formed.holders;
  charter.gone.clear();
  charter.handed.clear();
}

void follow(Charter& charter, const Handed& handed) {
  if (!charter.rank_of(handed.worker) || handed.to.value < kNoRank.value || handed.to.value >= std::ssize(charter.roster))
    throw_failure(Kind::corrupt, "worker {:x} handed its state to rank {}, and epoch {} has {} ranks", handed.worker.value, handed.to.value,
                  charter.epoch.value, charter.roster.size());
  charter.handed[handed.worker] = handed.to;
}

}  // namespace

std::optional<Rank> Charter::rank_of(WorkerId worker) const {
  for (const Worker& w : roster)
    if (w.id == worker) return w.member.rank;
  return std::nullopt;
}

// Newcomers are spread over those who hold the state. Where nobody does, rank 0 reads it and the others heal from rank 0.
Rank Charter::heals_from(Rank rank) const {
  const auto r = static_cast<std::uint32_t>(rank.value);
  if (holders == 0) return r == 0 ? kNoRank : Rank{0};
  return r < holders ? kNoRank : Rank{static_cast<std::int32_t>((r - holders) % holders)};
}

void apply(Charter& charter, const Entry& entry) {
  std::visit(Match{[&](const Opened& e) {
                     if (e.term <= charter.term) throw_failure(Kind::corrupt, "term {} cannot follow term {}", e.term, charter.term);
                     charter.term = e.term;
                   },
                   [&](const Formed& e) { follow(charter, e); },
                   [&](const Gone& e) {
                     if (!charter.rank_of(e.worker))
                       throw_failure(Kind::corrupt, "worker {:x} is gone, but was not in epoch {}", e.worker.value, charter.epoch.value);
                     charter.gone.insert(e.worker);
                   },
                   [&](const Respawned& e) {
                     if (e.so_far < charter.respawned)
                       throw_failure(Kind::corrupt, "{} respawned workers cannot become {}", charter.respawned, e.so_far);
                     charter.respawned = e.so_far;
                   },
                   [&](const Finished& e) { charter.finished = e.step; }, [&](const Left& e) { charter.left = e.now; },
                   [&](const Handed& e) { follow(charter, e); }},
             entry);
}

Charter replay(const std::vector<Entry>& entries) {
  Charter charter;
  for (const Entry& entry : entries) apply(charter, entry);
  return charter;
}

std::vector<std::byte> encode(const Entry& entry) {
  net::LittleWriter w;
  const auto word = [&](Word which) { w.number(static_cast<std::uint8_t>(which)); };
  std::visit(Match{[&](const Opened& e) {
                     word(Word::opened);
                     w.number(e.term);
                   },
                   [&](const Formed& e) {
                     word(Word::formed);
                     write_formed(w, e);
                   },
                   [&](const Gone& e) {
                     word(Word::gone);
                     w.number(e.worker.value);
                   },
                   [&](const Respawned& e) {
                     word(Word::respawned);
                     w.number(e.so_far);
                   },
                   [&](const Finished& e) {
                     word(Word::finished);
                     w.number(static_cast<std::uint64_t>(e.step));
                   },
                   [&](const Left& e) {
                     word(Word::left);
                     w.number(e.now);
                   },
                   [&](const Handed& e) {
                     word(Word::handed);
                     w.number(e.worker.value);
                     w.number(static_cast<std::uint32_t>(e.to.value));
                   }},
             entry);
  return w.take();
}

Entry decode_entry(ConstBytes bytes) {
  if (bytes.size() > kMostEntryBytes)
    throw_failure(Kind::corrupt, "an entry of {} bytes; at most {} are possible", bytes.size(), kMostEntryBytes);
  net::LittleReader r(bytes, "a decision log");
  const auto word = r.number<std::uint8_t>();
  Entry entry;
  switch (Word{word}) {
    case Word::opened: entry = Opened{r.number<std::uint64_t>()}; break;
    case Word::formed: entry = read_formed(r); break;
    case Word::gone: entry = Gone{WorkerId{r.number<std::uint64_t>()}}; break;
    case Word::respawned: entry = Respawned{r.number<std::uint32_t>()}; break;
    case Word::finished: entry = Finished{step_of(r.number<std::uint64_t>())}; break;
    case Word::left: entry = Left{r.number<std::uint32_t>()}; break;
    case Word::handed: {
      const WorkerId worker{r.number<std::uint64_t>()};
      entry = Handed{worker, Rank{static_cast<std::int32_t>(r.number<std::uint32_t>())}};
      break;
    }
    default: throw_failure(Kind::corrupt, "a decision log holds an entry of sort {}, which does not exist", word);
  }
  r.end();
  if (const auto* formed = std::get_if<Formed>(&entry)) check_roster(*formed);
  return entry;
}

}  // namespace cohort::group
