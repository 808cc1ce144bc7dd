// For tests: a UnitLoader that keeps every unit's values as a plain copy and loads them into fresh memory each time, overwritten when
// unloaded.
#pragma once
#include <cstring>
#include <memory>

#include "cohort/base/error.h"
#include "cohort/nn/unshard/unsharder.h"

namespace cohort::nn {

class CopyingLoader : public UnitLoader {
 public:
  explicit CopyingLoader(const Model& model) {
    const NamedTensors all = model.named_parameters();
    for (const auto& places : assign_units(model, all)) {
      Unit unit{.name = all[places.front()].first, .members = {}, .bytes = 0};
      for (const std::size_t i : places) {
        unit.members.push_back({all[i].first, all[i].second, unit.bytes});
        unit.bytes += all[i].second.nbytes();
      }
      std::vector<std::byte> copy(unit.bytes);
      for (const auto& m : unit.members) std::memcpy(copy.data() + m.offset, m.parameter.data_ptr(), m.parameter.nbytes());
      copies.push_back(std::move(copy));
      units.push_back(std::move(unit));
    }
    loaded.resize(units.size());
  }

  void* load(std::size_t unit) override {
    if (fail_after >= 0 && fail_after-- == 0) throw_failure(Kind::peer_lost, "no such unit today");
    calls.push_back("load " + units[unit].name);
    loaded[unit] = std::make_unique<std::byte[]>(units[unit].bytes);
    std::memcpy(loaded[unit].get(), copies[unit].data(), units[unit].bytes);
    ++loads;
    return loaded[unit].get();
  }
  void prefetch(std::size_t unit) override { calls.push_back("prefetch " + units[unit].name); }
  void unload(std::size_t unit) noexcept override {
    if (!loaded[unit]) return;                                 // was prefetched only
    std::memset(loaded[unit].get(), 0xff, units[unit].bytes);  // NaN for a read that comes too late
    loaded[unit].reset();
  }

  std::vector<Unit> units;
  std::vector<std::vector<std::byte>> copies;
  std::vector<std::unique_ptr<std::byte[]>> loaded;
  std::vector<std::string> calls;
  int loads = 0, fail_after = -1;
};

}  // namespace cohort::nn
