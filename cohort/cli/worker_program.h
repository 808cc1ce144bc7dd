// Starting the ranks of something that trains: cohort-worker under the same launcher as `cohort run`.
#pragma once
#include <string>
#include <vector>

namespace cohort::cli {

// Beside this program, or where it is installed (../libexec/cohort). Kind::usage saying how to get it when it is not there.
std::string find_worker();

// Runs `cohort-worker args..` as `ranks` ("2", "auto") ranks of one job, like `cohort run`; returns the exit status. Output is not
// prefixed.
int run_workers(const std::string& ranks, const std::vector<std::string>& args);

}  // namespace cohort::cli
