// The laws an engine underneath obeys, as bodies that every rank runs: threads in engines_test, processes in engine_rank. Inputs are small
// whole numbers, so that every order of addition gives the same result, which is then compared bit for bit with the plain reference.
// A law throws std::runtime_error saying what was broken.
#pragma once
#include <span>
#include <string_view>

#include "cohort/collective/communicator.h"

namespace cohort::collective {

struct EngineLaw {
  std::string_view name;
  void (*hold)(Communicator& comm);
};
std::span<const EngineLaw> engine_laws();

}  // namespace cohort::collective
