#include "cohort/train/loop/keeper.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cohort/base/log.h"
#include "cohort/nn/tensor.h"
#include "cohort/train/loop/together.h"

namespace cohort {
namespace {

constexpr const char* kModelFile = "model.safetensors";
constexpr const char* kOptimizerFile = "optimizer.safetensors";
constexpr Seconds kLastSave{120};  // how long the end of a run waits for its last checkpoint

checkpoint::Dtype dtype_of(const at::Tensor& t) {
  switch (t.scalar_type()) {
    case at::kFloat: return checkpoint::Dtype::f32;
    case at::kDouble: return checkpoint::Dtype::f64;
    case at::kLong: return checkpoint::Dtype::i64;
    case at::kInt: return checkpoint::Dtype::i32;
    case at::kHalf: return checkpoint::Dtype::f16;
    case at::kBFloat16: return checkpoint::Dtype::bf16;
    case at::kBool: return checkpoint::Dtype::boolean;
    case at::kByte: return checkpoint::Dtype::u8;
    default: throw_failure(Kind::usage, "a tensor of type {} cannot be saved", c10::toString(t.scalar_type()));
  }
}

checkpoint::TensorView view(const std::string& name, const at::Tensor& t) {
  return {name, dtype_of(t), {t.sizes().begin(), t.sizes().end()}, {static_cast<const std::byte*>(t.data_ptr()), t.nbytes()}};
}

nn::NamedTensors model_tensors(const nn::Model& model) {
  auto all = model.named_parameters();
  for (auto& entry : model.named_buffers()) all.push_back(std::move(entry));
  return all;
}

void read_into(const checkpoint::SafetensorsFile& file, const std::string& name, const at::Tensor& t) {
  const auto& entry = file.at(name);
  if (!std::equal(entry.shape.begin(), entry.shape.end(), t.sizes().begin(), t.sizes().end()) || entry.dtype != dtype_of(t))
    throw_failure(Kind::usage, "the checkpoint's {} does not fit the model's: another model or another data type was trained", name);
  file.read(entry, {static_cast<std::byte*>(t.data_ptr()), t.nbytes()});
}

// A run that starts anew must not find, count or prune the checkpoints of the one before: they move to <folder>.old, one generation of
// them.
void set_aside(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::exists(folder, error) || fs::is_empty(folder, error)) return;
  fs::remove_all(folder + ".old", error);
  if (!error) fs::rename(folder, folder + ".old", error);
  if (error) throw_failure(Kind::system, "cannot move {} to {}.old: {}; say another `out`", folder, folder, error.message());
  log_info("starting anew: the checkpoints of the run before are in {}.old", folder);
}

}  // namespace

void load_model(const nn::Model& model, const checkpoint::Checkpoint& found) {
  const checkpoint::SafetensorsFile file(found.file(kModelFile));
  for (const auto& [name, t] : model_tensors(model)) read_into(file, name, t.detach());
}

Keeper::Keeper(collective::Communicator& comm, Learner& learner, const TrainConfig& config, std::string config_text)
    : comm_(comm), learner_(learner), config_(config), config_text_(std::move(config_text)), folder_(run_folder(config) + "/checkpoints") {
  together(comm, "folder of checkpoints", [&] {
    if (comm.rank().value != 0) return;
    if (config.checkpoint.resume == "never") set_aside(folder_);
    store_ = std::make_unique<checkpoint::Store>(folder_, checkpoint::StoreOptions{.keep = config.checkpoint.keep});
    writer_ = std::make_unique<checkpoint::Writer>(*store_);
  });
}

void Keeper::find(std::span<std::int64_t> where) {
  const auto newest = store_->newest();
  for (const auto& refused : newest.refused)
    log_error("checkpoint {} is damaged and was passed over: {}", refused.path, refused.error.what);
  if (!newest.checkpoint) {
    if (config_.checkpoint.resume == "must")
      throw_failure(Kind::usage, "checkpoint.resume is must, and {} holds no whole checkpoint", folder_);
    return;
  }
  const auto& m = newest.checkpoint->manifest;
  where[0] = m.step, where[1] = m.epoch, where[2] = m.position;
  if (m.world_size != comm_.size())
    log_warning("the checkpoint is of {} ranks, this run has {}: it goes on with other batches than it would have had", m.world_size,
                comm_.size());
  if (const auto scale = m.texts.find("loss_scale"), state = m.texts.find("loss_scale_state"); state != m.texts.end())
    learner_.scale().restore(optim::scale_state_of(state->second), scale == m.texts.end() ? "" : scale->second);
  load_model(learner_.model(), *newest.checkpoint);
  const auto rule = m.texts.find("optimizer");
  const std::string mine = learner_.engine().rule()->spec();
  const checkpoint::SafetensorsFile file(newest.checkpoint->file(kOptimizerFile));
  learner_.engine().each_state([&](const std::string& p, const std::string& state, const at::Tensor& t) {
    if (file.find(p + "/" + state) == nullptr)
      throw_failure(Kind::usage,
                    "checkpoint {} was trained with {} and has no {} of {}, which {} needs: take the same rule, "
                    "another `out`, or checkpoint.resume=never",
                    newest.checkpoint->path, rule == m.texts.end() ? "another rule" : rule->second, state, p, mine);
    read_into(file, p + "/" + state, t);
  });
}

std::optional<std::int64_t> Keeper::restore() {
  if (config_.checkpoint.resume == "never") return std::nullopt;
  std::int64_t where[] = {-1, 0, 0};  // step, epoch, samples of the epoch
  together(comm_, "checkpoint to go on from", [&] {
    if (store_) find(where);
  });
  comm_.broadcast(collective::piece(std::span<std::int64_t>(where)), Rank{0}, {.name = "where to go on"});
  if (where[0] < 0) return std::nullopt;
  optim::ScaleState scale = learner_.scale().state();
  comm_.broadcast({&scale, sizeof scale / 8, collective::Dtype::i64, collective::Device::cpu}, Rank{0}, {.name = "loss scale"});
  learner_.scale().restore(scale, learner_.scale().spec());
  for (const auto& [name, t] : model_tensors(learner_.model())) nn::broadcast(comm_, t.detach(), Rank{0}, {.name = name});
  learner_.engine().each_state([&](const std::string& p, const std::string& state, const at::Tensor& t) {
    nn::broadcast(comm_, t, Rank{0}, {.name = p + "/" + state});
  });
  learner_.start_at(where[1], where[2], where[0]);
  last_saved_ = saved_step_ = where[0];
  return where[0];
}

void Keeper::save_if_due(bool epoch_ended) {
  const auto& c = config_.checkpoint;
  const bool by_step = c.every_steps > 0 && learner_.step() % c.every_steps == 0;
  const bool by_epoch = epoch_ended && c.every_epochs > 0 && learner_.position().epoch % c.every_epochs == 0;
  if (by_step || by_epoch) save();
  while (const auto outcome = writer_ ? writer_->poll() : std::nullopt) note(*outcome);
}

void Keeper::save() {
  learner_.agree_on_buffers();  // what is saved is also what goes on: a resumed run has the bits of one that never stopped
  if (!writer_ || last_saved_ == learner_.step()) return;
  if (writer_->busy()) return log_warning("no checkpoint at step {}: the one before is still being written", learner_.step());
  if (writer_->submit(snapshot())) last_saved_ = learner_.step();
}

checkpoint::Snapshot Keeper::snapshot() {
  auto made = writer_->begin();
  auto& m = made.manifest;
  m.step = learner_.step();
  m.epoch = learner_.position().epoch;
  m.position = learner_.samples_taken();
  m.world_size = comm_.size();
  m.cohort_version = COHORT_VERSION;
  m.torch_version = TORCH_VERSION;
  m.texts["config"] = config_text_;
  m.texts["model"] = config_.model;
  m.texts["optimizer"] = learner_.engine().rule()->spec();
  m.texts["loss_scale"] = learner_.scale().spec();
  m.texts["loss_scale_state"] = to_text(learner_.scale().state());
  m.texts["transforms"] = learner_.transforms().text();
  const auto& form = learner_.form();
  m.values["data"] =
      nlohmann::json{{"shape", form.shape}, {"classes", form.classes}, {"names", form.names}, {"tokens", form.vocabulary}}.dump();
  for (const auto& [name, t] : model_tensors(learner_.model())) made.add(kModelFile, view(name, t.detach()));
  made.set_metadata(kModelFile, {{"format", "pt"}, {"model", config_.model}});
  learner_.engine().each_state(
      [&](const std::string& p, const std::string& state, const at::Tensor& t) { made.add(kOptimizerFile, view(p + "/" + state, t)); });
  made.set_metadata(kOptimizerFile, {{"rule", m.texts["optimizer"]}});
  return made;
}

void Keeper::note(const checkpoint::Outcome& outcome) {
  if (!outcome.error) return void(saved_step_ = outcome.step);
  if (last_saved_ == outcome.step) last_saved_ = -1;
  log_error("the checkpoint of step {} was not written: {}; training goes on, the one before stays", outcome.step, outcome.error->what);
}

void Keeper::finish() {
  if (!writer_) return;
  const Deadline deadline = Deadline::in(kLastSave);
  try {
    while (const auto outcome = writer_->wait(deadline)) note(*outcome);
  } catch (const Failure& failure) {  // a disk that hangs
    log_error("{}", failure.what());
  }
}

}  // namespace cohort
