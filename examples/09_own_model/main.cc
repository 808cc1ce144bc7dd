// A model, data and a loss of one's own, trained from a program of one's own (plugin.cc: from `cohort train`).
//   cohort run -n 2 09_own_model        (also alone)
#include <cohort/cohort.h>
#include <cohort/train/loop/trainer.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "mine.h"

double correct(const at::Tensor& outputs, const at::Tensor& labels) { return outputs.argmax(1).eq(labels).sum().item<double>(); }

int main() try {
  cohort::Job job = cohort::init();
  cohort::TrainConfig config;
  config.out = std::filesystem::temp_directory_path() / ("cohort-own-model-" + std::to_string(getppid()));
  config.epochs = 4;
  config.threads = 1;
  config.data.batch = 20;
  config.observe.tensorboard = config.observe.report = false;

  cohort::Trainer trainer(job, config,
                          {.model = stripes_net(2),
                           .train = stripes({.samples = 400}),
                           .test = stripes({.samples = 100, .seed = 2}),
                           .objective = {.loss = hinge, .metrics = {{"accuracy", correct, true}}}});
  const cohort::RunSummary summary = trainer.run();

  if (job.rank().value == 0) std::printf("%s", cohort::train::summary_text(summary).c_str());
  if (job.rank().value == 0) std::filesystem::remove_all(config.out);
  if (!summary.saved && job.rank().value == 0) std::fprintf(stderr, "%s\n", cohort::train::not_saved_text(summary).c_str());
  if (const double accuracy = summary.test.metric("accuracy"); !(accuracy > 0.9))
    throw std::runtime_error("the stripes were not learned: accuracy " + std::to_string(accuracy));
  return summary.saved ? 0 : 1;
} catch (const std::exception& failure) {
  std::fprintf(stderr, "%s\n", failure.what());
  return 1;
}
