// For tests: a Host that keeps every unit's values as a plain copy and hands out fresh memory each time, spoiled when it goes.
#pragma once
#include <cstring>
#include <memory>

#include "cohort/base/error.h"
#include "cohort/nn/residency.h"

namespace cohort::nn {

class CopyingHost : public Host {
 public:
  explicit CopyingHost(const Model& model) {
    const NamedTensors all = model.named_parameters();
    for (const auto& places : share_out(model, all)) {
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
    lent.resize(units.size());
  }

  void* bring(std::size_t unit) override {
    if (fail_after >= 0 && fail_after-- == 0) throw_failure(Kind::peer_lost, "no such unit today");
    said.push_back("bring " + units[unit].name);
    lent[unit] = std::make_unique<std::byte[]>(units[unit].bytes);
    std::memcpy(lent[unit].get(), copies[unit].data(), units[unit].bytes);
    ++brought;
    return lent[unit].get();
  }
  void prefetch(std::size_t unit) override { said.push_back("prefetch " + units[unit].name); }
  void let_go(std::size_t unit) noexcept override {
    if (!lent[unit]) return;                                 // was prefetched only
    std::memset(lent[unit].get(), 0xff, units[unit].bytes);  // NaN for whoever still looks
    lent[unit].reset();
  }

  std::vector<Unit> units;
  std::vector<std::vector<std::byte>> copies;
  std::vector<std::unique_ptr<std::byte[]>> lent;
  std::vector<std::string> said;
  int brought = 0, fail_after = -1;
};

}  // namespace cohort::nn
