// Everything an outside program needs: start a job, move data together, in order or asynchronously.
// `#include <cohort/cohort.h>`, link Cohort::cohort. Programs on libtorch link Cohort::torch and add what they use:
//   <cohort/nn/tensor.h>                 tensors into collectives
//   <cohort/nn/autocast.h>               cohort::autocast: forward in 16 bits (docs/precision.md)
//   <cohort/nn/checkpoint.h>             cohort::checkpoint(function, inputs...): activation recomputation (docs/recompute.md)
//   <cohort/train/loop/data_parallel.h>  cohort::DataParallel (docs/training.md)
//   <cohort/train/loop/sharded.h>        cohort::Sharded: ZeRO 1 to 3 (docs/zero.md)
//   <cohort/train/loop/grad_scaler.h>    cohort::GradScaler: the loss scale of fp16 (docs/precision.md)
#pragma once
#include "cohort/collective/communicator.h"
#include "cohort/queue/queue.h"
#include "cohort/train/job.h"
