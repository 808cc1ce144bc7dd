// `cohort models`, and `cohort data` with plugins: tables that are in cohort-worker, which links torch, printed by it.
// Threads: the main one. Failure: as of what the worker says; returns its exit status.
#pragma once
#include <string>
#include <vector>

namespace cohort::cli {

// One cohort-worker with these arguments, of which the first is its task; what it prints is the command's output.
int run_in_worker(const std::vector<std::string>& args);

// what: models or data; name: one row only, empty: all.
int list_in_worker(const std::string& what, const std::string& name, bool markdown, const std::vector<std::string>& plugins);

}  // namespace cohort::cli
