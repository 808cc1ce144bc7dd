#include "cohort/sync/placement.h"

namespace cohort::sync {

Placement Placement::without_gathered_parameters() const {
  Placement whole = *this;
  if (!gathers_parameters()) return whole;
  whole.live.extent = Extent::all;
  if (whole.master.home == Home::file) whole.master.home = Home::model;  // peers gather it
  return whole;
}

}  // namespace cohort::sync
