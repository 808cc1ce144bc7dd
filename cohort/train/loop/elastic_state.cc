// What a worker carries from one epoch of an elastic job to the next.
#include <torch/torch.h>

#include <algorithm>

#include "cohort/train/loop/elastic_session.h"
#include "cohort/train/loop/state_io.h"

namespace cohort::train {

ElasticTrainer::ElasticState ElasticTrainer::capture_state() const {
  TrainLoop& loop = *session_->loop;
  ElasticState state{.step = loop.step(),
                     .progress = {loop.position().epoch, loop.samples_taken()},
                     .evaluated = elastic_state_.evaluated,
                     .optimizer_start = loop.optimizer_start(),
                     .scale = loop.scale().state(),
                     .optimizer = {},
                     .shards = {},
                     .common = {}};
  if (sharded_) {
    state.shards = collect_shards(loop.engine());
    state.shards.insert(state.shards.end(), received_.begin(), received_.end());
    const auto trained = loop.engine().trained();
    for (const auto& [name, t] : model_tensors(loop.model()))
      if (std::ranges::find(trained, name) == trained.end()) state.common.emplace_back(name, t.detach().clone());
    return state;
  }
  loop.engine().each_state([&](const std::string& parameter, const std::string& name, const at::Tensor& values) {
    state.optimizer[parameter + "/" + name] = values.detach().clone();
  });
  return state;
}

void ElasticTrainer::restore_state(const ElasticState& saved) {
  const at::NoGradGuard no_grad;
  session_->loop->engine().each_state([&](const std::string& parameter, const std::string& state, const at::Tensor& values) {
    values.copy_(saved.optimizer.at(parameter + "/" + state));
  });
}

// Parameters lie in memory of the epoch that is over, or are sharded (stage 3). What is replicated stays; the rest comes with the shards.
void ElasticTrainer::make_model_again() {
  const nn::Input input = model_and_data_.model.input();
  model_and_data_.model = model_and_data_.make_model();
  model_and_data_.model.set_input(input);
}

void ElasticTrainer::rebuild_model() {
  make_model_again();
  const at::NoGradGuard no_grad;
  std::map<std::string, at::Tensor> common(elastic_state_.common.begin(), elastic_state_.common.end());
  for (const auto& [name, t] : model_tensors(model_and_data_.model))
    if (const auto at = common.find(name); at != common.end()) t.detach().copy_(at->second);
  received_.clear();
}

void ElasticTrainer::snapshot_buffers() {
  buffers_.clear();
  for (const auto& [name, buffer] : model_and_data_.model.named_buffers()) buffers_.push_back(buffer.detach().clone());
}

void ElasticTrainer::restore_buffers() {
  const at::NoGradGuard no_grad;
  const auto named = model_and_data_.model.named_buffers();
  for (std::size_t i = 0; i < buffers_.size(); ++i) named[i].second.copy_(buffers_[i]);
  buffers_.clear();
}

// A run that started over (resume=never) has checkpoints of its own from its second epoch on.
TrainConfig ElasticTrainer::resuming_config() const {
  TrainConfig config = config_;
  config.checkpoint.resume = "auto";
  config.checkpoint.takeover = false;  // the folder was this job's: who has it now is not to lose it again
  return config;
}

}  // namespace cohort::train
