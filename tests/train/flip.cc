// train_flip RANK STEP key=value ..: one rank of a training run with these settings, fixed or elastic as the launcher says. After that step
// rank RANK flips one bit of its first parameter, as a broken memory would.
#include <torch/torch.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "cohort/base/error.h"
#include "cohort/train/elastic_job.h"
#include "cohort/train/loop/elastic_trainer.h"
#include "cohort/train/loop/trainer.h"
#include "cohort/train/settings.h"

namespace {

void flip(cohort::Learner& learner) {
  const at::NoGradGuard no_grad;
  const at::Tensor bits = learner.model().named_parameters().front().second.detach().view(-1).view(at::kInt);
  bits[bits.numel() / 2].bitwise_xor_(1);  // the last digit of one number
  std::fprintf(stderr, "process %d flips a bit\n", getpid());
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 3) throw std::runtime_error("usage: train_flip RANK STEP key=value ..");
  std::signal(SIGTERM, SIG_IGN);  // the others have failed: what this one saves must get to the disk all the same
  const int rank = std::atoi(argv[1]), step = std::atoi(argv[2]);
  const cohort::TrainConfig config = cohort::read_settings({.file = {}, .sets = {argv + 3, argv + argc}});
  if (auto seat = cohort::ElasticJob::from_environment(cohort::group::read_environment())) {
    cohort::Whereabouts where;
    cohort::ElasticSettings settings;
    settings.after_step = [&](cohort::Learner& learner, cohort::Rank me) {
      if (me.value == rank && learner.step() == step) flip(learner);
    };
    cohort::ElasticTrainer(*std::move(seat), config, std::move(settings), where).run();
    return 0;
  }
  cohort::Job job = cohort::init();
  cohort::Trainer trainer(job, config);
  trainer.after_step([&](cohort::Learner& learner) {
    if (job.rank().value == rank && learner.step() == step) flip(learner);
  });
  trainer.run();
  return 0;
} catch (const std::exception& failure) {
  std::fprintf(stderr, "%s\n", failure.what());
  return 1;
}
