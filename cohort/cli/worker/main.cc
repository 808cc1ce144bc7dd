// cohort-worker: picks the task, turns a failure into one line on stderr and an exit status.
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <cstdio>
#include <exception>

#include "cohort/base/error.h"
#include "cohort/base/terminal_text.h"
#include "cohort/base/text.h"
#include "cohort/cli/worker/tasks.h"
#include "cohort/launch/exit_codes.h"

namespace {

int fail(std::string_view task, const char* what, int status) {
  std::fflush(stdout);
  fmt::print(stderr, "cohort {}: {}\n", task, cohort::terminal_text(what));
  return status;
}

int help(const std::vector<cohort::cli::worker::Task>& tasks, std::FILE* out) {
  fmt::print(out, "cohort-worker: one rank of something that trains; `cohort` starts it\n\nusage: cohort-worker <task> [options]\n\n");
  for (const auto& task : tasks) fmt::print(out, "  {:<12} {}\n", task.name, task.about);
  return out == stdout ? 0 : cohort::launch::kExitUsage;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace cohort;
  const auto tasks = cli::worker::tasks();
  if (argc < 2) return help(tasks, stderr);
  const std::string_view word = argv[1];
  if (word == "--help" || word == "-h") return help(tasks, stdout);
  for (const auto& task : tasks) {
    if (task.name != word) continue;
    try {
      return task.run(argc - 1, argv + 1);
    } catch (const Failure& failure) {
      return fail(word, failure.what(), failure.kind() == Kind::usage ? launch::kExitUsage : launch::kExitFailure);
    } catch (const c10::Error& error) {
      return fail(word, error.what_without_backtrace(), launch::kExitFailure);
    } catch (const std::exception& other) {
      return fail(word, other.what(), launch::kExitFailure);
    }
  }
  return fail(printable(word), "there is no such task; `cohort-worker --help` lists them", launch::kExitUsage);
}
