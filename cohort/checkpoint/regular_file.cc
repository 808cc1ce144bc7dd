#include "cohort/checkpoint/regular_file.h"

#include <filesystem>

#include "cohort/checkpoint/store.h"

namespace cohort::checkpoint {

void refuse_linked_step(const std::string& folder) {
  if (step_of_name(std::filesystem::path(folder).filename().string()) && is_link(folder)) refuse_link(folder);
}

}  // namespace cohort::checkpoint
