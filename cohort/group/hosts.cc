#include "cohort/group/hosts.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "cohort/base/error.h"
#include "cohort/base/text.h"

namespace cohort::group {
namespace {

constexpr std::size_t kLongestName = 253;

// Letters that names and addresses have; none of them means anything to a shell or an option parser, and '-' may not come first.
bool is_host_name(std::string_view name) {
  if (name.empty() || name.size() > kLongestName || name.front() == '-' || name.front() == '@' || name.back() == '@') return false;
  if (std::count(name.begin(), name.end(), '@') > 1 || name.find("@-") != name.npos) return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-' || c == '_' || c == ':' || c == '@' || c == '%';
  });
}

int read_slots(std::string_view text) {
  std::int64_t slots = 0;
  try {
    slots = parse_int(text);
  } catch (const Failure&) {  // the caller's message has the whole text
  }
  if (slots < 1 || slots > kMostSlots)
    throw_failure(Kind::usage, "'{}' is not a number of slots from 1 to {}", printable(text), kMostSlots);
  return static_cast<int>(slots);
}

// "h1", "h1:2", "[::1]", "[::1]:2".
HostSlots read_host(std::string_view word, int default_slots) {
  std::string_view name = word, slots;
  if (word.starts_with('[')) {
    const auto close = word.find(']');
    if (close == word.npos) throw_failure(Kind::usage, "'{}': a bracket is missing", printable(word));
    name = word.substr(1, close - 1);
    slots = word.substr(close + 1);
    if (!slots.empty() && !slots.starts_with(':'))
      throw_failure(Kind::usage, "'{}': ':' and the slots follow the bracket", printable(word));
  } else if (const auto colon = word.find(':'); colon != word.npos) {
    name = word.substr(0, colon);
    slots = word.substr(colon);
    if (slots.find(':', 1) != slots.npos) throw_failure(Kind::usage, "'{}': an IPv6 address is written in brackets", printable(word));
  }
  if (!is_host_name(name)) throw_failure(Kind::usage, "'{}' is not a host name", printable(name));
  return {std::string(name), slots.empty() ? default_slots : read_slots(slots.substr(1))};
}

void add(Hosts& hosts, HostSlots host) {
  const auto known = std::find_if(hosts.begin(), hosts.end(), [&](const HostSlots& h) { return h.name == host.name; });
  if (known == hosts.end()) {
    if (static_cast<int>(hosts.size()) == kMostHosts) throw_failure(Kind::usage, "more than {} hosts", kMostHosts);
    return hosts.push_back(std::move(host));
  }
  known->slots += host.slots;
  if (known->slots > kMostSlots) throw_failure(Kind::usage, "host '{}' has more than {} slots", host.name, kMostSlots);
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  while (true) {
    const auto begin = line.find_first_not_of(" \t\r\f\v");
    if (begin == line.npos) return words;
    const auto end = std::min(line.find_first_of(" \t\r\f\v", begin), line.size());
    words.push_back(line.substr(begin, end - begin));
    line.remove_prefix(end);
  }
}

// "h1 slots=2 max_slots=4" or "h1:2".
HostSlots read_line(const std::vector<std::string_view>& words, int default_slots) {
  HostSlots host = read_host(words[0], default_slots);
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string_view word = words[i];
    if (word.starts_with("slots=")) {
      host.slots = read_slots(word.substr(6));
    } else if (word.starts_with("max_slots=") || word.starts_with("max-slots=")) {
      read_slots(word.substr(10));  // how far Open MPI may oversubscribe; a job here is never larger than its slots
    } else {
      throw_failure(Kind::usage, "'{}' is not understood; a line is `host slots=N`, `host:N` or `host`", printable(word));
    }
  }
  return host;
}

Hosts read_lines(std::string_view text, std::string_view source, int default_slots) {
  Hosts hosts;
  int number = 0;
  for (std::string_view line : split(text, '\n')) {
    ++number;
    line = line.substr(0, line.find('#'));
    const auto words = words_of(line);
    if (words.empty()) continue;
    try {
      add(hosts, read_line(words, default_slots));
    } catch (const Failure& failure) {
      throw_failure(Kind::usage, "{}, line {}: {}", source, number, failure.what());
    }
  }
  return hosts;
}

}  // namespace

Hosts parse_host_list(std::string_view text, int default_slots) {
  Hosts hosts;
  for (const auto word : split(text, ',')) add(hosts, read_host(trim(word), default_slots));
  if (hosts.empty()) throw_failure(Kind::usage, "the list of hosts is empty; write h1:2,h2:2");
  return hosts;
}

Hosts parse_host_file(std::string_view text, std::string_view source, int default_slots) {
  Hosts hosts = read_lines(text, source, default_slots);
  if (hosts.empty()) throw_failure(Kind::usage, "{} names no host; a line is `host slots=N` or `host:N`", source);
  return hosts;
}

Hosts parse_discovery(std::string_view text, std::string_view source, int default_slots) {
  Hosts hosts = read_lines(text, source, default_slots);
  if (hosts.empty()) throw_failure(Kind::usage, "{} printed no host; it prints host or host:slots, one a line", source);
  return hosts;
}

std::vector<HostShare> share_ranks(const Hosts& hosts, int ranks) {
  std::int64_t slots = 0;
  for (const HostSlots& h : hosts) slots += h.slots;
  if (ranks == 0 && slots > kMostSlots)
    throw_failure(Kind::usage, "{} slots, at most {} ranks are possible; choose with -n", slots, kMostSlots);
  if (ranks > slots)
    throw_failure(Kind::usage, "-n {}, but {} host{} {} {} slot{}: name more hosts, or give them more slots (host:N)", ranks, hosts.size(),
                  hosts.size() == 1 ? "" : "s", hosts.size() == 1 ? "has" : "have", slots, slots == 1 ? "" : "s");
  std::vector<HostShare> shares;
  int next = 0;
  const int all = ranks == 0 ? static_cast<int>(slots) : ranks;
  for (const HostSlots& h : hosts) {
    const int here = std::min(h.slots, all - next);
    if (here > 0) shares.push_back({h.name, next, here});
    next += here;
  }
  return shares;
}

bool names_this_host(std::string_view host) {
  if (host == "localhost" || host == "::1" || host.starts_with("127.")) return true;
  std::array<char, 65> name{};
  return gethostname(name.data(), name.size() - 1) == 0 && host == name.data();
}

}  // namespace cohort::group
