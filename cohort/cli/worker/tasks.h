// What `cohort-worker <task> [options]` can do: one rank's part in something that trains.
// `cohort` starts it under `cohort run`; it is no program for people, but it says --help.
// Threads: the main thread. Failure: a task throws Failure; main() prints one line and exits 2 for Kind::usage, else 1.
// To add a task `foo-bar`: foo_bar_task.cc with `Task cohort::cli::worker::foo_bar_task()`.
#pragma once
#include <string_view>
#include <vector>

namespace cohort::cli::worker {

struct Task {
  std::string_view name;
  std::string_view about;
  int (*run)(int argc, char** argv);  // argv[0] is the task's name; returns the exit status
};

std::vector<Task> tasks();  // generated from the *_task.cc files

}  // namespace cohort::cli::worker
