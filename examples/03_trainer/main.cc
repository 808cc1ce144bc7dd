// A whole training run from a program of one's own: the configuration is a struct, every rank calls run(), and rank 0 has the summary.
//   cohort run -n 2 03_trainer        (also alone)
// It learns a small made-up set of pictures, so that it needs no data on disk, and leaves its checkpoints in a folder under /tmp.
#include <cohort/cohort.h>
#include <cohort/train/loop/trainer.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <stdexcept>
#include <string>

int main(int argc, char** argv) try {
  cohort::Job job = cohort::init();

  cohort::TrainConfig config;
  config.name = "example";
  // All ranks name the same folder. Started again with it, the run goes on from its newest checkpoint.
  config.out = argc > 1 ? argv[1] : std::filesystem::temp_directory_path() / ("cohort-example-" + std::to_string(getppid()));
  config.model = "cnn(size=12)";
  config.epochs = 3;
  config.threads = 1;  // a model this small keeps no second one busy
  config.data.train = "synthetic(shape=1x12x12, samples=2000)";
  config.data.test = "synthetic(shape=1x12x12, samples=500, split=test)";
  config.data.batch = 50;
  config.optimizer = "sgd(lr=0.05, momentum=0.9)";
  config.optim.schedule = "cosine(warmup=0.1)";
  config.observe.tensorboard = config.observe.report = false;

  cohort::Trainer trainer(job, config);  // wrong settings end here, before anything is written
  const cohort::RunSummary summary = trainer.run();

  if (job.rank().value == 0) std::printf("%s", cohort::train::summary_text(summary).c_str());
  if (argc == 1 && job.rank().value == 0) std::filesystem::remove_all(config.out);  // nobody asked to keep it
  if (!summary.saved && job.rank().value == 0) std::fprintf(stderr, "%s\n", cohort::train::not_saved_text(summary).c_str());
  if (const double accuracy = summary.test.metric("accuracy"); !(accuracy > 0.9))
    throw std::runtime_error("too little was learned: accuracy " + std::to_string(accuracy));
  return summary.saved ? 0 : 1;
} catch (const std::exception& failure) {
  std::fprintf(stderr, "%s\n", failure.what());
  return 1;
}
