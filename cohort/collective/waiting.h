// How long this thread has waited for ranks that had not come yet, over all its verbs so far: what a step loses to unequal ranks and not
// to moving bytes. Threads: each has its own count.
#pragma once
#include "cohort/base/deadline.h"

namespace cohort::collective {

Seconds waited();

}  // namespace cohort::collective
