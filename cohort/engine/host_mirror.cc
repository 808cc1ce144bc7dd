#include "cohort/engine/host_mirror.h"

#include "cohort/cuda/runtime.h"
#include "cohort/sync/memory.h"

namespace cohort::engine {

Piece HostMirror::of(const Piece& there) {
  if (there.device.kind == DeviceKind::cpu) return there;
  if (there.count == 0) return {.dtype = there.dtype};
  const auto [at, fresh] = copies_.try_emplace(there.data);
  Copy& copy = at->second;
  if (!fresh && copy.there.bytes() == there.bytes()) return copy.piece();
  copy = {there, sync::pages_for(there.bytes(), 0)};
  cuda::copy(copy.piece(), there);
  cuda::synchronize(there.device);
  return copy.piece();
}

void HostMirror::upload() const {
  for (const auto& [place, copy] : copies_) {
    cuda::copy(copy.there, copy.piece());
    cuda::synchronize(copy.there.device);
  }
}

}  // namespace cohort::engine
