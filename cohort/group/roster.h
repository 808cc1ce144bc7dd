// The members of a job, as values that never change: a changed membership is a new Roster with a later Epoch.
// Owner: values. Threads: any. Failure: none; decode_roster() throws Kind::corrupt for bytes that are not a roster.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/bytes.h"
#include "cohort/base/ids.h"

namespace cohort::group {

inline constexpr const char* kThisHost = "localhost";  // the host name in a job on one host

struct Member {
  Rank rank;
  std::string address;  // where it accepts connections of peers: "127.0.0.1:40123"
  std::int64_t pid = 0;
  std::string host;  // in a job of several hosts, ranks with different host names share no memory; with equal ones it is probed
  bool operator==(const Member&) const = default;
};

struct Roster {
  std::string job;
  Epoch epoch;
  std::vector<Member> members;  // by rank, none missing
  int size() const { return static_cast<int>(members.size()); }
  bool operator==(const Roster&) const = default;
};

// A worker's request to take part.
struct Join {
  Member member;
  std::uint32_t size = 0;  // how many ranks it expects
  std::string version{};   // of Cohort; empty: one that does not say
};

std::vector<std::byte> encode(const Roster& roster);
std::vector<std::byte> encode(const Join& join);
Roster decode_roster(ConstBytes bytes);
Join decode_join(ConstBytes bytes);

// The refusal of a member ("rank 3 (process 4711 on here)") whose Cohort is of another version than the coordinator's.
std::string another_version(std::string_view who, std::string_view its, std::string_view job, std::string_view version);

// "rank 3", "ranks 1, 2 and 5", "ranks 1, 2, 3 and 60 more"
std::string name_ranks(const std::vector<Rank>& ranks);

}  // namespace cohort::group
