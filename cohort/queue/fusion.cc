#include "cohort/queue/fusion.h"

#include <algorithm>

namespace cohort::queue {

bool fusible(const Signature& signature) {
  if (signature.collective != Collective::all_reduce || signature.adasum || !signature.codec.empty() || signature.parts.empty())
    return false;
  return std::all_of(signature.parts.begin(), signature.parts.end(), [&](const PartSignature& part) {
    return part.device.kind == DeviceKind::cpu && part.dtype == signature.parts.front().dtype;
  });
}

namespace {

bool same_kind(const Signature& a, const Signature& b) {
  return a.parts.front().dtype == b.parts.front().dtype && a.op == b.op && a.prescale == b.prescale && a.postscale == b.postscale;
}

}  // namespace

std::vector<std::vector<std::size_t>> fusion_plan(std::span<const Signature* const> ready, std::size_t most) {
  std::vector<std::vector<std::size_t>> units;
  std::vector<bool> taken(ready.size(), false);
  for (std::size_t first = 0; first < ready.size(); ++first) {
    if (taken[first]) continue;
    auto& unit = units.emplace_back(1, first);
    if (most == 0 || !fusible(*ready[first])) continue;
    std::size_t bytes = bytes_of(*ready[first]);
    for (std::size_t next = first + 1; next < ready.size() && bytes < most; ++next) {
      if (taken[next] || !fusible(*ready[next]) || !same_kind(*ready[first], *ready[next])) continue;
      const std::size_t more = bytes_of(*ready[next]);
      if (bytes + more > most) continue;
      bytes += more;
      taken[next] = true;
      unit.push_back(next);
    }
  }
  return units;
}

}  // namespace cohort::queue
