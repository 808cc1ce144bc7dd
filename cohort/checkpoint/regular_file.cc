#include "cohort/checkpoint/regular_file.h"

#include <filesystem>

#include "cohort/checkpoint/store.h"

namespace cohort::checkpoint {

Folder open_step_folder(const std::string& path, int own) {
  const bool step = step_of_name(std::filesystem::path(path).filename().string()).has_value();
  return {path, step ? own + 1 : 0};
}

}  // namespace cohort::checkpoint
