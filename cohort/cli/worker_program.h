// Starting the ranks of something that trains: cohort-worker under the same launcher as `cohort run`.
#pragma once
#include <string>
#include <vector>

#include "cohort/base/deadline.h"
#include "cohort/group/elastic_types.h"

namespace cohort::cli {

// Beside this program, or where it is installed (../libexec/cohort). Kind::usage saying how to get it when it is not there.
std::string find_worker();

// What becomes of a job that loses a rank.
struct Losses {
  Seconds rescue{0};                               // how long survivors may take to end by themselves; 0: they get a signal at once
  group::Holding holding = group::Holding::whole;  // elastic: what a worker has of the state
  bool notices = false;                            // SIGTERM and SIGUSR1 tell a rank to leave, from its first moment on
};

// Runs `cohort-worker args..` as `ranks` ("2", "auto") ranks of one job, like `cohort run`; returns the exit status. Output is not
// prefixed. where: options of `cohort run` that say on which hosts, {"-H", "h1:2,h2:2"}; none: here.
int run_workers(const std::string& ranks, const std::vector<std::string>& args, const Losses& losses = {},
                const std::vector<std::string>& where = {});

}  // namespace cohort::cli
