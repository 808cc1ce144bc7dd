// Who takes part, as values that never change: a changed membership is a new Roster with a later Epoch.
// Owner: values. Threads: any. Failure: none; decode_roster() gives Kind::corrupt for bytes that are no roster.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cohort/base/bytes.h"
#include "cohort/base/ids.h"

namespace cohort::group {

inline constexpr const char* kThisHost = "localhost";  // what a job on one host calls it

struct Member {
  Rank rank;
  std::string address;  // where its listener for peers is: "127.0.0.1:40123"
  std::int64_t pid = 0;
  std::string host;  // its name; in a job of several hosts, ranks of different names share no memory (of equal ones: it is tried)
  bool operator==(const Member&) const = default;
};

struct Roster {
  std::string job;
  Epoch epoch;
  std::vector<Member> members;  // by rank, none missing
  int size() const { return static_cast<int>(members.size()); }
  bool operator==(const Roster&) const = default;
};

// A worker's wish to take part.
struct Join {
  Member member;
  std::uint32_t size = 0;  // how many ranks it believes in
};

std::vector<std::byte> encode(const Roster& roster);
std::vector<std::byte> encode(const Join& join);
Roster decode_roster(ConstBytes bytes);
Join decode_join(ConstBytes bytes);

// "rank 3", "ranks 1, 2 and 5", "ranks 1, 2, 3 and 60 more"
std::string name_ranks(const std::vector<Rank>& ranks);

}  // namespace cohort::group
