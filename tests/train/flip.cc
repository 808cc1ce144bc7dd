// train_flip RANK STEP key=value ..: one rank of a training run with these settings, fixed or elastic as the launcher says. After that step
// rank RANK flips one bit of its first parameter, as a broken memory would.
#include <torch/torch.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "cohort/base/error.h"
#include "cohort/job/elastic_job.h"
#include "cohort/train/loop/elastic_trainer.h"
#include "cohort/train/loop/trainer.h"
#include "cohort/train/settings.h"

namespace {

void flip(cohort::train::TrainLoop& loop) {
  const at::NoGradGuard no_grad;
  const at::Tensor bits = loop.model().named_parameters().front().second.detach().view(-1).view(at::kInt);
  bits[bits.numel() / 2].bitwise_xor_(1);  // the last digit of one number
  std::fprintf(stderr, "process %d flips a bit\n", getpid());
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 3) throw std::runtime_error("usage: train_flip RANK STEP key=value ..");
  std::signal(SIGTERM, SIG_IGN);  // the others have failed: what this one saves must get to the disk all the same
  const int rank = std::atoi(argv[1]), step = std::atoi(argv[2]);
  const cohort::TrainConfig config = cohort::train::read_settings({.file = {}, .sets = {argv + 3, argv + argc}});
  if (auto worker = cohort::job::ElasticJob::from_environment(cohort::group::read_environment())) {
    cohort::train::RankStatus status;
    cohort::train::ElasticSettings settings;
    settings.after_step = [&](cohort::train::TrainLoop& loop, cohort::Rank me) {
      if (me.value == rank && loop.step() == step) flip(loop);
    };
    cohort::train::ElasticTrainer(*std::move(worker), config, std::move(settings), status).run();
    return 0;
  }
  cohort::Job job = cohort::init();
  cohort::Trainer trainer(job, config);
  trainer.after_step([&](cohort::train::TrainLoop& loop) {
    if (job.rank().value == rank && loop.step() == step) flip(loop);
  });
  trainer.run();
  return 0;
} catch (const std::exception& failure) {
  std::fprintf(stderr, "%s\n", failure.what());
  return 1;
}
