#include "cohort/ps/gate.h"

#include <array>

#include "cohort/base/registry.h"

namespace cohort::ps {
namespace {

SpecParam clocks(const char* name, const char* doc, const char* preset) {
  return {.name = name, .type = SpecParam::Type::integer, .doc = doc, .preset = preset, .low = 0, .high = 1e9};
}

const SpecSchema& bsp_schema() {
  static const SpecSchema schema{"bsp", "every read has all updates of the clocks before, and none of this one"};
  return schema;
}
const SpecSchema& ssp_schema() {
  static const SpecSchema schema{"ssp", "a worker may be s clocks ahead of the slowest", {clocks("s", "clocks", "2")}};
  return schema;
}
const SpecSchema& ssp_push_schema() {
  static const SpecSchema schema{
      "ssp_push", "as ssp; servers send what a worker reads next without being asked", {clocks("s", "clocks", "2")}};
  return schema;
}
const SpecSchema& bounded_delay_schema() {
  static const SpecSchema schema{
      "bounded_delay", "a clock begins when all of tau + 1 clocks before it have ended, its own, too", {clocks("tau", "clocks", "2")}};
  return schema;
}
const SpecSchema& tap_schema() {
  static const SpecSchema schema{"tap", "nobody waits for anybody"};
  return schema;
}

Gate make_bsp(const SpecValues&) { return {}; }
Gate make_ssp(const SpecValues& values) { return {.slack = values.integer("s")}; }
Gate make_ssp_push(const SpecValues& values) { return {.slack = values.integer("s"), .sends = true}; }
Gate make_bounded_delay(const SpecValues& values) { return {.slack = values.integer("tau"), .own_writes = false}; }
Gate make_tap(const SpecValues&) { return {.slack = std::nullopt}; }

constexpr std::array kRows{GateRow{"bsp", bsp_schema, make_bsp}, GateRow{"ssp", ssp_schema, make_ssp},
                           GateRow{"ssp_push", ssp_push_schema, make_ssp_push},
                           GateRow{"bounded_delay", bounded_delay_schema, make_bounded_delay}, GateRow{"tap", tap_schema, make_tap}};

}  // namespace

std::span<const GateRow> gates() { return kRows; }

Gate make_gate(std::string_view spec) {
  const Spec parsed = Spec::parse(spec);
  std::vector<const GateRow*> rows;
  for (const GateRow& row : kRows) rows.push_back(&row);
  const GateRow& row = find_row(std::span<const GateRow* const>(rows), parsed.name, "clock");
  Gate gate = row.make(row.schema().read(parsed));
  gate.spec = parsed.to_string();
  return gate;
}

}  // namespace cohort::ps
