#include "cohort/group/device_mesh.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cohort/base/error.h"
#include "cohort/base/text.h"

namespace cohort::group {
namespace {

constexpr int kRest = -1;
constexpr int kMostRanks = 1 << 20;

void check_axis(std::string_view name, std::string_view text) {
  if (std::ranges::find(kMeshAxes, name) != std::end(kMeshAxes)) return;
  const auto near = nearest(name, kMeshAxes);
  throw_failure(Kind::usage, "mesh '{}': no axis is called '{}'{}; there are: {}", printable(text), printable(name),
                near.empty() ? "" : fmt::format(", did you mean '{}'?", near), fmt::join(kMeshAxes, ", "));
}

int parse_size(std::string_view size, std::string_view text) {
  std::int64_t value = 0;
  try {
    value = parse_int(size);
  } catch (const Failure&) {
    throw_failure(Kind::usage, "mesh '{}': '{}' is no number of ranks; write dp=2,tp=2", printable(text), printable(size));
  }
  if (value != kRest && (value < 1 || value > kMostRanks))
    throw_failure(Kind::usage, "mesh '{}': an axis has 1 rank or more, or -1 for what the others leave, not {}", printable(text), value);
  return static_cast<int>(value);
}

MeshAxis parse_axis(std::string_view part, std::string_view text) {
  const auto equals = part.find('=');
  MeshAxis axis{std::string(trim(part.substr(0, equals))), kRest};
  check_axis(axis.name, text);
  if (equals != part.npos) axis.size = parse_size(trim(part.substr(equals + 1)), text);
  return axis;
}

}  // namespace

std::vector<MeshAxis> parse_mesh(std::string_view text) {
  if (trim(text).empty()) return {{"dp", kRest}};
  std::vector<MeshAxis> axes;
  for (const auto part : split(text, ',')) {
    axes.push_back(parse_axis(part, text));
    if (std::ranges::count(axes, axes.back().name, &MeshAxis::name) > 1)
      throw_failure(Kind::usage, "mesh '{}': {} is there twice", printable(text), axes.back().name);
  }
  if (std::ranges::count(axes, kRest, &MeshAxis::size) > 1)
    throw_failure(Kind::usage, "mesh '{}': one axis alone can be what the others leave; give the others a size", printable(text));
  return axes;
}

DeviceMesh::DeviceMesh(int world, std::string_view text) : world_(world), axes_(parse_mesh(text)) {
  std::int64_t named = 1;
  for (const MeshAxis& axis : axes_)
    if (axis.size != kRest && (named *= axis.size) > kMostRanks) break;
  const auto rest = std::ranges::find(axes_, kRest, &MeshAxis::size);
  if (rest != axes_.end() && world % named == 0) rest->size = static_cast<int>(world / named), named = world;
  if (named == world) return;
  throw_failure(Kind::usage, "mesh '{}' is of {} ranks{}, and the job has {}: change one of them", printable(text), named,
                rest != axes_.end() ? " or a multiple of it" : "", world);
}

int DeviceMesh::size(std::string_view axis) const {
  const auto found = std::ranges::find(axes_, axis, &MeshAxis::name);
  return found == axes_.end() ? 1 : found->size;
}

std::vector<int> DeviceMesh::coordinates(Rank rank) const {
  std::vector<int> at(axes_.size());
  int left = rank.value;
  for (std::size_t i = axes_.size(); i-- > 0; left /= axes_[i].size) at[i] = left % axes_[i].size;
  return at;
}

int DeviceMesh::coordinate(Rank rank, std::string_view axis) const {
  const auto found = std::ranges::find(axes_, axis, &MeshAxis::name);
  return found == axes_.end() ? 0 : coordinates(rank)[static_cast<std::size_t>(found - axes_.begin())];
}

Rank DeviceMesh::rank_at(std::span<const int> coordinates) const {
  int rank = 0;
  for (std::size_t i = 0; i < axes_.size(); ++i) rank = rank * axes_[i].size + coordinates[i];
  return Rank{rank};
}

RankGroups DeviceMesh::span(const std::vector<std::string>& axes) const {
  for (const auto& axis : axes) check_axis(axis, text());
  RankGroups all;
  std::vector<int> group_at(static_cast<std::size_t>(world_), -1);  // by the rank that stands first in it
  for (Rank rank{0}; rank.value < world_; ++rank.value) {
    auto at = coordinates(rank);
    for (std::size_t i = 0; i < axes_.size(); ++i)
      if (std::ranges::find(axes, axes_[i].name) != axes.end()) at[i] = 0;
    int& group = group_at[static_cast<std::size_t>(rank_at(at).value)];
    if (group < 0) group = static_cast<int>(all.groups.size()), all.groups.emplace_back();
    auto& members = all.groups[static_cast<std::size_t>(group)];
    all.group_of.push_back(group);
    all.place_in.push_back(static_cast<int>(members.size()));
    members.push_back(rank);
  }
  return all;
}

std::vector<std::string> DeviceMesh::others(const std::vector<std::string>& axes) const {
  std::vector<std::string> rest;
  for (const MeshAxis& axis : axes_)
    if (std::ranges::find(axes, axis.name) == axes.end()) rest.push_back(axis.name);
  return rest;
}

std::string DeviceMesh::text() const {
  std::vector<std::string> parts;
  for (const MeshAxis& axis : axes_) parts.push_back(fmt::format("{}={}", axis.name, axis.size));
  return fmt::format("{}", fmt::join(parts, ","));
}

}  // namespace cohort::group
