// Everything an outside program needs: start a job, move data together, in order or asynchronously.
// `#include <cohort/cohort.h>`, link Cohort::cohort. Programs on libtorch add <cohort/nn/tensor.h> and link Cohort::torch.
#pragma once
#include "cohort/collective/communicator.h"
#include "cohort/queue/queue.h"
#include "cohort/train/job.h"
