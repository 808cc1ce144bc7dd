// Everything an outside program needs: start a job, move data together, in order or asynchronously.
// `#include <cohort/cohort.h>`, link Cohort::cohort. Programs on libtorch link Cohort::torch and add what they
// use: <cohort/nn/tensor.h>, <cohort/nn/autocast.h>, <cohort/train/loop/data_parallel.h>, <cohort/train/loop/grad_scaler.h>.
#pragma once
#include "cohort/collective/communicator.h"
#include "cohort/queue/queue.h"
#include "cohort/train/job.h"
