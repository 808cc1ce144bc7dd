#include "cohort/nn/unshard/unit.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "cohort/base/error.h"

namespace cohort::nn {
namespace {

std::string unloaded_text(const Unit& unit) {
  std::vector<std::string_view> names;
  for (const auto& m : unit.members) names.emplace_back(m.name);
  return fmt::format(
      "parameter {} is read while it is sharded (it is gathered only while its block runs): read it inside the block (Model::wrap_blocks "
      "or "
      "Unsharder::run), or keep it unsharded with Unsharder::hold()",
      fmt::join(names, " or "));
}

void check(const Unit& unit) {
  for (const auto& [name, parameter, offset] : unit.members) {
    if (!parameter.is_contiguous() || !(parameter.is_cpu() || parameter.is_cuda()) || !parameter.is_leaf())
      throw_failure(Kind::usage, "parameter {} cannot be sharded: it must be a contiguous leaf on the CPU or a CUDA GPU", name);
    if (parameter.device() != unit.members[0].parameter.device())
      throw_failure(Kind::usage, "parameters {} and {} of one block are on {} and {}: move the block to one device", unit.members[0].name,
                    name, unit.members[0].parameter.device().str(), parameter.device().str());
    if (offset % parameter.itemsize() != 0 || offset + parameter.nbytes() > unit.bytes)
      throw_failure(Kind::bug, "parameter {} ({} bytes at {}) does not fit unit '{}' of {} bytes", name, parameter.nbytes(), offset,
                    unit.name, unit.bytes);
  }
}

// Before torch 2.13 the error text of a storage cannot be cleared again: there reading unloaded memory throws torch's own text, without a
// name, or crashes where an operator does not check.
template <class Storage>
concept CanClearErrorText = requires(Storage& storage) {
  storage.clear_data_ptr_access_error_msg_();
};

template <class Storage>
void set_error_text(Storage& storage, const std::string& text) {
  if constexpr (CanClearErrorText<Storage>) storage.release_data_and_set_meta_custom_data_ptr_error_msg_(text);
}

template <class Storage>
void clear_error_text(Storage& storage) {
  if constexpr (CanClearErrorText<Storage>) storage.clear_data_ptr_access_error_msg_();
}

void unload_storage(c10::StorageImpl& storage, const std::string& text) {
  storage.set_data_ptr_noswap(c10::DataPtr(nullptr, storage.device()));
  set_error_text(storage, text);
}

void load_storage(c10::StorageImpl& storage, void* data) {
  clear_error_text(storage);
  storage.set_data_ptr_noswap(c10::DataPtr(data, storage.device()));
}

}  // namespace

bool Units::reads_can_throw() { return CanClearErrorText<c10::StorageImpl>; }

Units::Units(UnitLoader& loader, std::vector<Unit> units) : loader_(loader) {
  for (std::size_t u = 0; u < units.size(); ++u) {  // all are checked before any is changed
    check(units[u]);
    for (const auto& m : units[u].members)
      if (!unit_of_.emplace(m.parameter.unsafeGetTensorImpl(), u).second)
        throw_failure(Kind::usage, "parameter {} is in two units: its memory can be in one place only", m.name);
  }
  for (Unit& unit : units) add(std::move(unit));
}

void Units::add(Unit unit) {
  const at::NoGradGuard no_grad;
  const c10::Device device = unit.members[0].parameter.device();
  c10::Storage storage(c10::Storage::use_byte_size_t{}, static_cast<std::int64_t>(unit.bytes), c10::DataPtr(nullptr, device), nullptr,
                       false);
  for (const auto& m : unit.members) {
    const auto first = static_cast<std::int64_t>(m.offset / m.parameter.itemsize());
    const auto options = m.parameter.options().requires_grad(false);
    m.parameter.set_data(at::empty({0}, options).set_(storage, first, m.parameter.sizes(), m.parameter.strides()));
  }
  std::string unloaded_error = unloaded_text(unit);
  unload_storage(*storage.unsafeGetStorageImpl(), unloaded_error);
  slots_.push_back({.unit = std::move(unit), .storage = std::move(storage), .unloaded_error = std::move(unloaded_error)});
}

void* Units::load(std::size_t unit) {
  void* const data = loader_.load(unit);
  Slot& slot = slots_[unit];
  if (!slot.unit.on_device) return data;
  const at::NoGradGuard no_grad;
  const auto bytes = static_cast<std::int64_t>(slot.unit.bytes);
  slot.copy = at::empty({bytes}, at::TensorOptions().dtype(at::kByte).device(slot.storage.device()));
  slot.copy.copy_(at::from_blob(data, {bytes}, at::kByte));  // complete when it returns: the loader's memory is not needed any more
  loader_.unload(unit);
  return slot.copy.mutable_data_ptr();
}

void Units::acquire(const std::vector<std::size_t>& units) {
  for (std::size_t i = 0; i < units.size(); ++i) {
    Slot& slot = slots_[units[i]];
    if (slot.uses++ > 0) continue;
    try {
      load_storage(*slot.storage.unsafeGetStorageImpl(), load(units[i]));
    } catch (...) {
      --slot.uses;
      release({units.begin(), units.begin() + static_cast<std::ptrdiff_t>(i)});
      throw;
    }
    slot.prefetched = false;
    most_ = std::max(most_, ++resident_);
  }
}

void Units::release(const std::vector<std::size_t>& units) noexcept {
  for (const std::size_t u : units) {
    if (--slots_[u].uses > 0) continue;
    unload_storage(*slots_[u].storage.unsafeGetStorageImpl(), slots_[u].unloaded_error);
    --resident_;
    if (!slots_[u].unit.on_device) loader_.unload(u);
    slots_[u].copy.reset();
  }
}

void Units::prefetch(std::size_t unit) {
  if (slots_[unit].uses > 0 || std::exchange(slots_[unit].prefetched, true)) return;
  loader_.prefetch(unit);
}

void Units::forget_prefetched() noexcept {
  for (std::size_t u = 0; u < slots_.size(); ++u)
    if (std::exchange(slots_[u].prefetched, false)) loader_.unload(u);
}

std::vector<std::size_t> Units::of(const std::vector<at::Tensor>& parameters) const {
  std::vector<std::size_t> units;
  for (const auto& parameter : parameters) {
    const auto found = unit_of_.find(parameter.unsafeGetTensorImpl());
    if (found != unit_of_.end() && std::find(units.begin(), units.end(), found->second) == units.end()) units.push_back(found->second);
  }
  return units;
}

}  // namespace cohort::nn
