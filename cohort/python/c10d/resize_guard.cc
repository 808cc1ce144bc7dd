#include "cohort/python/c10d/resize_guard.h"

#include <mutex>
#include <unordered_map>

namespace cohort::python {
namespace {

// How many operations use a storage that could be resized before the first of them. Operations may share storages (views, buckets).
std::mutex mutex;
std::unordered_map<c10::StorageImpl*, int>& users() {
  static auto* const table = new std::unordered_map<c10::StorageImpl*, int>;  // never destroyed: operations may complete during exit
  return *table;
}

}  // namespace

ResizeGuard::ResizeGuard(std::vector<at::Tensor> tensors) {
  const std::lock_guard lock(mutex);
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || tensor.layout() != at::kStrided || !tensor.has_storage()) continue;
    c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
    const auto known = users().find(storage);
    if (known == users().end() && !storage->resizable()) continue;
    storages_.push_back(tensor.storage());
    ++users()[storage];
    storage->set_resizable(false);
  }
}

void ResizeGuard::release() noexcept {
  std::vector<c10::Storage> gone;  // destroyed after the lock: the last reference may free memory
  {
    const std::lock_guard lock(mutex);
    for (const c10::Storage& storage : storages_) {
      const auto entry = users().find(storage.unsafeGetStorageImpl());
      if (--entry->second > 0) continue;
      storage.unsafeGetStorageImpl()->set_resizable(true);
      users().erase(entry);
    }
    gone.swap(storages_);
  }
}

}  // namespace cohort::python
