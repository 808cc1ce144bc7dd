// The laws a backend obeys, as bodies that every rank runs: threads in backends_test, processes in backend_rank. Inputs are small
// whole numbers, so that every order of addition gives the same result, which is then compared bit for bit with the plain reference.
// A law throws std::runtime_error saying what was broken.
#pragma once
#include <span>
#include <string_view>

#include "cohort/collective/communicator.h"

namespace cohort::collective {

struct BackendLaw {
  std::string_view name;
  void (*hold)(Communicator& comm);
};
std::span<const BackendLaw> backend_laws();

}  // namespace cohort::collective
