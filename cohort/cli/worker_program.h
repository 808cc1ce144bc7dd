// Starting the ranks of something that trains: cohort-worker under the same launcher as `cohort run`.
#pragma once
#include <string>
#include <vector>

#include "cohort/base/deadline.h"

namespace cohort::cli {

// Beside this program, or where it is installed (../libexec/cohort). Kind::usage saying how to get it when it is not there.
std::string find_worker();

// Runs `cohort-worker args..` as `ranks` ("2", "auto") ranks of one job, like `cohort run`; returns the exit status. Output is not
// prefixed. rescue: how long survivors of a failed rank may take to end by themselves; 0: they get a signal at once.
// where: options of `cohort run` that say on which hosts, {"-H", "h1:2,h2:2"}; none: here.
int run_workers(const std::string& ranks, const std::vector<std::string>& args, Seconds rescue = Seconds{0},
                const std::vector<std::string>& where = {});

}  // namespace cohort::cli
