#include "cohort/collective/cost/cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <nlohmann/json.hpp>

#include "cohort/base/error.h"
#include "cohort/base/file.h"
#include "cohort/collective/cost/calibration_file.h"

namespace cohort::collective {
namespace {

struct Constant {
  const char* name;
  double Calibration::*value;
  bool needed = true;  // false: files from before it was known are fine
};
constexpr std::array<Constant, 9> kConstants{{{"sync_s", &Calibration::sync_s},
                                              {"crowded_s", &Calibration::crowded_s},
                                              {"update_rate", &Calibration::update_rate},
                                              {"stage_rate", &Calibration::stage_rate},
                                              {"link_s", &Calibration::link_s},
                                              {"link_rate", &Calibration::link_rate},
                                              {"reduce_rate", &Calibration::reduce_rate},
                                              {"between_s", &Calibration::between_s, false},
                                              {"between_rate", &Calibration::between_rate, false}}};

}  // namespace

Calibration Calibration::load(const std::string& path) {
  Calibration k;
  const auto json = nlohmann::json::parse(read_file(path), nullptr, false);
  if (!json.is_object()) throw_failure(Kind::usage, "{} is no JSON object; write it again with `cohort bench --calibrate`", path);
  for (const auto& constant : kConstants) {
    const auto found = json.find(constant.name);
    if (found == json.end() && !constant.needed) continue;
    if (found == json.end() || !found->is_number() || !(found->get<double>() > 0))
      throw_failure(Kind::usage, "{}: '{}' must be a number above zero; write it again with `cohort bench --calibrate`", path,
                    constant.name);
    k.*constant.value = found->get<double>();
  }
  return k;
}

void Calibration::save(const std::string& path) const {
  nlohmann::json json;
  for (const auto& constant : kConstants) json[constant.name] = this->*constant.value;
  json["machine"] = machine_text();
  write_file_atomically(path, json.dump(2) + "\n");
}

std::string Calibration::text() const {
  return fmt::format(
      "step {:.2f} us (crowded {:.2f} us a rank), update {:.1f} GB/s, stage {:.1f} GB/s, link {:.2f} us and {:.1f} GB/s, reduce {:.1f} "
      "GB/s, between hosts {:.1f} us and {:.2f} GB/s",
      sync_s * 1e6, crowded_s * 1e6, update_rate / 1e9, stage_rate / 1e9, link_s * 1e6, link_rate / 1e9, reduce_rate / 1e9, between_s * 1e6,
      between_rate / 1e9);
}

Calibration tcp_defaults() {
  Calibration k;
  k.link_s = 15e-6;
  k.link_rate = 2e9;
  return k;
}

double crowding(const Shape& shape) {
  const int here = shape.mixed() ? shape.most : shape.ranks;
  return std::max(1.0, static_cast<double>(here) / std::max(1, shape.cores));
}

Seconds sync_cost(const Shape& shape, const Calibration& k) {
  return Seconds{shape.ranks <= shape.cores ? k.sync_s : k.crowded_s * shape.ranks};
}

Seconds link_cost(const Shape& shape, const Calibration& k, const Traffic& t) {
  return Seconds{crowding(shape) * (t.rounds * k.link_s + t.bytes / k.link_rate) + t.between_rounds * k.between_s +
                 t.between_bytes / k.between_rate};
}

int log2_ceil(int n) { return n <= 1 ? 0 : std::bit_width(static_cast<unsigned>(n - 1)); }

}  // namespace cohort::collective
