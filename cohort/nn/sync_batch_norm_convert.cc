// Finds the batch norms of a module and gives them their communicator.
#include "cohort/nn/sync_batch_norm.h"

namespace cohort::nn {
namespace {

struct Place {
  torch::nn::Module* parent;
  std::string name;  // of the child
  std::string path;  // for people
};

template <class Holder>
std::shared_ptr<SyncBatchNormImpl> made_from(const torch::nn::Module& module) {
  const auto* old = module.as<Holder>();
  if (old == nullptr) return nullptr;
  const auto& o = old->options;
  auto made = std::make_shared<SyncBatchNormImpl>(
      BatchNormOptions{o.num_features(), o.eps(), o.momentum(), o.affine(), o.track_running_stats()},
      BatchNormTensors{old->weight, old->bias, old->running_mean, old->running_var, old->num_batches_tracked});
  made->train(old->is_training());
  return made;
}

std::shared_ptr<SyncBatchNormImpl> replacement(const torch::nn::Module& module) {
  if (auto made = made_from<torch::nn::BatchNorm2d>(module)) return made;
  if (auto made = made_from<torch::nn::BatchNorm1d>(module)) return made;
  return made_from<torch::nn::BatchNorm3d>(module);
}

bool is_torch_batch_norm(const torch::nn::Module& module) {
  return module.as<torch::nn::BatchNorm2d>() != nullptr || module.as<torch::nn::BatchNorm1d>() != nullptr ||
         module.as<torch::nn::BatchNorm3d>() != nullptr;
}

// Fills `ours` with the modules that only need the communicator and `foreign` with the places of those to replace.
void collect(torch::nn::Module& parent, const std::string& path, std::vector<SyncBatchNormImpl*>& ours, std::vector<Place>& foreign) {
  if (auto* mine = parent.as<SyncBatchNorm>()) ours.push_back(mine);
  for (const auto& child : parent.named_children()) {
    const std::string below = path.empty() ? child.key() : path + "." + child.key();
    if (is_torch_batch_norm(*child.value())) {
      foreign.push_back({&parent, child.key(), below});
    } else {
      collect(*child.value(), below, ours, foreign);
    }
  }
}

// Who may hold the child: its parent's list of children, a Sequential's own list, and the copy of the list made here.
void check_reachable(const Place& place) {
  const auto children = place.parent->named_children();
  const auto& child = children[place.name];
  const long expected = place.parent->as<torch::nn::Sequential>() != nullptr ? 3 : 2;
  if (child.use_count() == expected) return;
  throw_failure(Kind::usage,
                "batch norm '{}' is held by a C++ member or variable, which would go on calling it without the other ranks; declare it as "
                "cohort::nn::SyncBatchNorm (it is torch's batch norm until it has a communicator)",
                place.path);
}

void replace(const Place& place, collective::Communicator& comm) {
  const auto children = place.parent->named_children();
  auto made = replacement(*children[place.name]);
  made->use(&comm);
  place.parent->replace_module(place.name, made);
  auto* sequential = place.parent->as<torch::nn::Sequential>();
  if (sequential == nullptr) return;
  std::ptrdiff_t index = 0;
  while (children[static_cast<std::size_t>(index)].key() != place.name) ++index;
  *(sequential->begin() + index) = torch::nn::AnyModule(made);
}

}  // namespace

int convert_sync_batchnorm(torch::nn::Module& root, collective::Communicator& comm) {
  if (is_torch_batch_norm(root)) {
    throw_failure(Kind::usage,
                  "a batch norm without a parent cannot be replaced; make a cohort::nn::SyncBatchNorm and give it the communicator");
  }
  std::vector<SyncBatchNormImpl*> ours;
  std::vector<Place> foreign;
  collect(root, "", ours, foreign);
  for (const Place& place : foreign) check_reachable(place);
  for (SyncBatchNormImpl* norm : ours) norm->use(&comm);
  for (const Place& place : foreign) replace(place, comm);
  return static_cast<int>(ours.size() + foreign.size());
}

}  // namespace cohort::nn
