// What a worker carries from one epoch of an elastic job to the next.
#include <torch/torch.h>

#include <algorithm>

#include "cohort/nn/zoo.h"
#include "cohort/train/loop/elastic_session.h"
#include "cohort/train/loop/stowage.h"

namespace cohort {

ElasticTrainer::Carried ElasticTrainer::carry() const {
  Learner& learner = *session_->learner;
  Carried c{.step = learner.step(),
            .progress = {learner.position().epoch, learner.samples_taken()},
            .evaluated = carried_.evaluated,
            .scale = learner.scale().state(),
            .optimizer = {},
            .shards = {},
            .alike = {}};
  if (sharded_) {
    c.shards = take_shards(learner.engine());
    c.shards.insert(c.shards.end(), received_.begin(), received_.end());
    const auto trained = learner.engine().trained();
    for (const auto& [name, t] : model_tensors(learner.model()))
      if (std::ranges::find(trained, name) == trained.end()) c.alike.emplace_back(name, t.detach().clone());
    return c;
  }
  learner.engine().each_state([&](const std::string& parameter, const std::string& state, const at::Tensor& values) {
    c.optimizer[parameter + "/" + state] = values.detach().clone();
  });
  return c;
}

void ElasticTrainer::adopt(const Carried& carried) {
  const at::NoGradGuard no_grad;
  session_->learner->engine().each_state([&](const std::string& parameter, const std::string& state, const at::Tensor& values) {
    values.copy_(carried.optimizer.at(parameter + "/" + state));
  });
}

// Parameters lie in memory of the epoch that is over, or are away (stage 3). What all ranks have alike stays; the rest comes with the
// shards.
void ElasticTrainer::renew_model() {
  materials_.model = nn::make_model(config_.model, static_cast<std::uint64_t>(config_.seed));
  const at::NoGradGuard no_grad;
  std::map<std::string, at::Tensor> alike(carried_.alike.begin(), carried_.alike.end());
  for (const auto& [name, t] : model_tensors(materials_.model))
    if (const auto at = alike.find(name); at != alike.end()) t.detach().copy_(at->second);
  received_.clear();
}

void ElasticTrainer::keep_buffers() {
  buffers_.clear();
  for (const auto& [name, buffer] : materials_.model.named_buffers()) buffers_.push_back(buffer.detach().clone());
}

void ElasticTrainer::put_buffers_back() {
  const at::NoGradGuard no_grad;
  const auto named = materials_.model.named_buffers();
  for (std::size_t i = 0; i < buffers_.size(); ++i) named[i].second.copy_(buffers_[i]);
  buffers_.clear();
}

// A run that began anew has checkpoints of its own from its second epoch on.
TrainConfig ElasticTrainer::resuming() const {
  TrainConfig config = config_;
  config.checkpoint.resume = "auto";
  return config;
}

}  // namespace cohort
