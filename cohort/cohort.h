// Everything an outside program needs: start a job, communicate with collectives, in order or asynchronously.
// `#include <cohort/cohort.h>`, link Cohort::cohort. Programs on libtorch link Cohort::torch and add what they use:
//   <cohort/nn/tensor.h>           tensors into collectives
//   <cohort/nn/autocast.h>         cohort::autocast: forward in 16 bits (docs/precision.md)
//   <cohort/nn/recompute.h>        cohort::recompute(function, inputs...): activation recomputation (docs/recompute.md)
//   <cohort/ddp/data_parallel.h>   cohort::DataParallel (docs/training.md)
//   <cohort/ddp/sharded.h>         cohort::Sharded: ZeRO 1 to 3 (docs/zero.md)
//   <cohort/ddp/grad_scaler.h>     cohort::GradScaler: the loss scale of fp16 (docs/precision.md)
//   <cohort/train/loop/trainer.h>  cohort::Trainer: a whole training run from a configuration (docs/trainer.md)
//   <cohort/nn/own_model.h>, <cohort/nn/own_dataset.h>   cohort::nn::model_of, dataset_of: with a model and data of one's own
//   <cohort/nn/plugin.h>           COHORT_PLUGIN: the same for `cohort train --plugin` (docs/own_models.md)
// Public is what these headers declare in namespace cohort itself, what is named above, and cohort::collective and cohort::queue. The
// namespaces of the other modules (cohort::job, cohort::ddp, cohort::train, ..) and the headers in their folders are internals: they are
// installed, since public headers include them, and may change in any version.
#pragma once
#include "cohort/collective/communicator.h"
#include "cohort/job/job.h"
#include "cohort/queue/queue.h"
