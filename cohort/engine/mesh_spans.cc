#include "cohort/engine/mesh_spans.h"

#include <algorithm>

namespace cohort::engine {

MeshSpans::MeshSpans(int ranks, std::string_view mesh, Rank me) : mesh_(ranks, mesh), me_(me) { number_of({"dp"}); }

int MeshSpans::number_of(const MeshAxes& axes) {
  MeshAxes wide;  // an axis of one rank makes no difference
  for (const auto& axis : mesh_.axes())
    if (axis.size > 1 && std::ranges::find(axes, axis.name) != axes.end()) wide.push_back(axis.name);
  const auto known = std::ranges::find(spans_, wide, &Span::axes);
  if (known != spans_.end()) return static_cast<int>(known - spans_.begin());
  spans_.push_back({wide, mesh_.span(axes)});
  return count() - 1;
}

sync::Holders MeshSpans::holders(const MeshAxes& differing) const {
  const auto at = mesh_.coordinates(me_);
  sync::Holders holders;
  for (std::size_t i = 0; i < at.size(); ++i) {
    const group::MeshAxis& axis = mesh_.axes()[i];
    if (std::ranges::find(differing, axis.name) != differing.end()) continue;
    holders.count *= axis.size;
    holders.me = holders.me * axis.size + at[i];
  }
  return holders;
}

SpanComms::SpanComms(collective::Communicator& world, const MeshSpans& spans, bool apart) {
  for (int span = 0; span < spans.count(); ++span) {
    const auto& groups = spans.groups(span);
    if (groups.groups.size() > 1 || apart)
      own_.push_back(world.split(groups.group_of[static_cast<std::size_t>(spans.me().value)], groups.place_of(spans.me())));
    comms_.push_back(groups.groups.size() > 1 || apart ? own_.back().get() : &world);
  }
}

void SpanComms::abort(const Error& error) const noexcept {
  for (const auto& comm : own_) comm->abort(error);
}

}  // namespace cohort::engine
