// What a worker carries from one epoch of an elastic job to the next.
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>

#include "cohort/train/loop/elastic_session.h"
#include "cohort/train/loop/state_io.h"

namespace cohort::train {
namespace {

// State beside what is cut over the ranks, and beside parameters that the model itself carries along.
void visit_whole(const engine::Engine& engine, const std::function<void(const std::string& key, const at::Tensor& values)>& call) {
  engine.visit([&](const StateItem& item) {
    if (item.share == Share::cut || (item.share == Share::identical && item.group == kModelGroup)) return;
    if (item.group == "residual") return;  // engine/residuals.h
    call(fmt::format("{}/{}@{}", item.group, item.key(), item.run.first), engine::borrowed(item.values));
  });
}

}  // namespace

ElasticTrainer::ElasticState ElasticTrainer::capture_state() const {
  TrainLoop& loop = *session_->loop;
  ElasticState state{.step = loop.step(),
                     .progress = {loop.position().epoch, loop.samples_taken()},
                     .evaluated = elastic_state_.evaluated,
                     .optimizer_start = loop.optimizer_start(),
                     .rounds = loop.engine().rounds(),
                     .scale = loop.scale().state(),
                     .whole = {},
                     .residuals = handed_over_ ? *handed_over_ : engine::capture_residuals(loop.engine(), session_->comm->size()),
                     .shards = {},
                     .common = {}};
  visit_whole(loop.engine(), [&](const std::string& key, const at::Tensor& values) { state.whole[key] = values.clone(); });
  if (sharded_) {
    state.shards = collect_shards(loop.engine());
    state.shards.insert(state.shards.end(), received_.begin(), received_.end());
    const auto trained = loop.engine().trained();
    for (const auto& [name, t] : model_tensors(loop.model()))
      if (std::ranges::find(trained, name) == trained.end()) state.common.emplace_back(name, t.detach().clone());
    return state;
  }
  return state;
}

// What this worker has all of: where replicas are identical any rank's does.
void ElasticTrainer::restore_state(const ElasticState& saved) {
  const at::NoGradGuard no_grad;
  visit_whole(session_->loop->engine(), [&](const std::string& key, const at::Tensor& values) {
    const auto found = saved.whole.find(key);
    if (found != saved.whole.end() && found->second.numel() == values.numel()) values.copy_(found->second);
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
