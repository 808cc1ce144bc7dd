#include "cohort/group/roster.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "cohort/base/error.h"
#include "cohort/net/frame/little_endian.h"

namespace cohort::group {
namespace {

constexpr std::size_t kMostText = 256;        // an address or a host name
constexpr std::uint32_t kMostMembers = 4096;  // fits easily into one frame

class Writer : public net::ByteWriter {
 public:
  void text(std::string_view value) {
    if (value.size() > kMostText)
      throw_failure(Kind::usage, "rendezvous: '{}...' has {} bytes, at most {} are allowed", value.substr(0, 40), value.size(), kMostText);
    number<std::uint64_t>(value.size());
    letters(value);
  }
};

class Reader : public net::ByteReader {
 public:
  explicit Reader(ConstBytes bytes) : ByteReader(bytes, "a rendezvous message") {}
  std::uint64_t number(std::uint64_t most) {
    const auto value = ByteReader::number<std::uint64_t>();
    if (value > most) throw_failure(Kind::corrupt, "a rendezvous message holds {} where at most {} is possible", value, most);
    return value;
  }
  std::string text() { return letters(number(kMostText)); }
};

void write_member(Writer& w, const Member& m) {
  w.number(static_cast<std::uint64_t>(m.rank.value));
  w.number(static_cast<std::uint64_t>(m.pid));
  w.text(m.address);
  w.text(m.host);
}

Member read_member(Reader& r) {
  Member m;
  m.rank = Rank{static_cast<std::int32_t>(r.number(kMostMembers - 1))};
  m.pid = static_cast<std::int64_t>(r.number(INT64_MAX));
  m.address = r.text();
  m.host = r.text();
  return m;
}

}  // namespace

std::vector<std::byte> encode(const Roster& roster) {
  if (roster.members.size() > kMostMembers)
    throw_failure(Kind::usage, "rendezvous: {} ranks, at most {} are possible", roster.members.size(), kMostMembers);
  Writer w;
  w.text(roster.job);
  w.number<std::uint64_t>(roster.epoch.value);
  w.number<std::uint64_t>(roster.members.size());
  for (const Member& m : roster.members) write_member(w, m);
  return w.take();
}

Roster decode_roster(ConstBytes bytes) {
  Reader r(bytes);
  Roster roster;
  roster.job = r.text();
  roster.epoch = Epoch{static_cast<std::uint32_t>(r.number(UINT32_MAX))};
  const auto count = r.number(kMostMembers);
  for (std::uint64_t i = 0; i < count; ++i) {
    roster.members.push_back(read_member(r));
    if (roster.members.back().rank.value != static_cast<std::int32_t>(i))
      throw_failure(Kind::corrupt, "rendezvous: a roster lists rank {} at position {}", roster.members.back().rank.value, i);
  }
  r.end();
  return roster;
}

std::vector<std::byte> encode(const Join& join) {
  Writer w;
  write_member(w, join.member);
  w.number<std::uint64_t>(join.size);
  if (!join.version.empty()) w.text(join.version);
  return w.take();
}

Join decode_join(ConstBytes bytes) {
  Reader r(bytes);
  Join join;
  join.member = read_member(r);
  join.size = static_cast<std::uint32_t>(r.number(kMostMembers));
  if (r.left() > 0) {
    join.version = r.text();
    if (join.version.empty()) throw_failure(Kind::corrupt, "a rendezvous message holds a version without letters");
  }
  r.end();
  return join;
}

std::string another_version(std::string_view who, std::string_view its, std::string_view job, std::string_view version) {
  std::array<char, 65> host{};
  gethostname(host.data(), host.size() - 1);
  return fmt::format("rendezvous: {} runs {}, the coordinator of job '{}' on {} runs Cohort {}: install the same version everywhere", who,
                     its.empty() ? "a Cohort that does not tell its version, an older one" : fmt::format("Cohort {}", its), job,
                     host.data(), version);
}

std::string name_ranks(const std::vector<Rank>& ranks) {
  constexpr std::size_t kShown = 16;
  if (ranks.empty()) return "no rank";
  if (ranks.size() == 1) return fmt::format("rank {}", ranks[0].value);
  const std::size_t shown = std::min(ranks.size() - 1, kShown);
  std::string text = fmt::format("ranks {}", ranks[0].value);
  for (std::size_t i = 1; i < shown; ++i) text += fmt::format(", {}", ranks[i].value);
  const std::size_t more = ranks.size() - shown;
  return text + (more == 1 ? fmt::format(" and {}", ranks.back().value) : fmt::format(" and {} more", more));
}

}  // namespace cohort::group
