// A DeviceMesh arranges the ranks of a job in a grid with named axes, so that each kind of parallelism has ranks of its own:
//   DeviceMesh mesh(8, "pp=2,dp=2,tp=2");        // the last axis varies fastest: ranks 0 and 1 are one tp group, on one host
//   mesh.coordinate(Rank{5}, "tp")               // 1
//   mesh.along("dp").of(Rank{5})                 // 5 and 7: those that differ from it in dp alone
//   mesh.span({"dp", "tp"}).of(Rank{5})          // 4, 5, 6, 7: in dp and tp alone
// One size may be left to the others, "dp=-1,tp=2" or "dp,tp=2"; no text at all is dp alone. An axis that is not named has one place.
// Axes: dp data parallel, tp tensor, pp pipeline stages, ep experts, cp context, sp sequence.
// Owner: values. Threads: any. Failure: Kind::usage quoting the text. To add an axis: kMeshAxes.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/ids.h"

namespace cohort::group {

inline constexpr std::string_view kMeshAxes[] = {"dp", "tp", "pp", "ep", "cp", "sp"};

struct MeshAxis {
  std::string name;
  int size = 1;
  bool operator==(const MeshAxis&) const = default;
};

// All ranks in groups of equal size; in each they are in rising order.
struct RankGroups {
  std::vector<std::vector<Rank>> groups;
  std::vector<int> group_of, place_in;  // by rank
  const std::vector<Rank>& of(Rank rank) const { return groups[static_cast<std::size_t>(group_of[static_cast<std::size_t>(rank.value)])]; }
  int place_of(Rank rank) const { return place_in[static_cast<std::size_t>(rank.value)]; }
  int size() const { return static_cast<int>(groups.front().size()); }  // of each
};

class DeviceMesh {
 public:
  explicit DeviceMesh(int world, std::string_view text = "");

  int world() const { return world_; }
  const std::vector<MeshAxis>& axes() const { return axes_; }  // as written
  int size(std::string_view axis) const;                       // 1 where it is not named
  int coordinate(Rank rank, std::string_view axis) const;      // 0 where it is not named
  std::vector<int> coordinates(Rank rank) const;               // one for each of axes()
  Rank rank_at(std::span<const int> coordinates) const;

  RankGroups along(std::string_view axis) const { return span({std::string(axis)}); }
  RankGroups span(const std::vector<std::string>& axes) const;                  // none: every rank for itself
  std::vector<std::string> others(const std::vector<std::string>& axes) const;  // the axes that are not among these
  std::string text() const;                                                     // "dp=2,tp=2"

 private:
  const int world_;
  std::vector<MeshAxis> axes_;
};

// What can be said of it without the number of ranks: Kind::usage for what cannot be read.
std::vector<MeshAxis> parse_mesh(std::string_view text);  // size -1: the rest

}  // namespace cohort::group
