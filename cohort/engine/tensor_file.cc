#include "cohort/engine/tensor_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "cohort/base/error.h"
#include "cohort/base/text.h"
#include "cohort/engine/bucket.h"
#include "cohort/sync/elements.h"

namespace cohort::engine {
namespace {

checkpoint::Dtype stored_type_of(const at::Tensor& t) {
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

ConstBytes stored_bytes_of(const at::Tensor& t) { return {static_cast<const std::byte*>(t.data_ptr()), t.nbytes()}; }
checkpoint::Shape stored_shape(at::IntArrayRef sizes) { return {sizes.begin(), sizes.end()}; }

}  // namespace

checkpoint::TensorView whole_view(const std::string& name, const at::Tensor& t) {
  return {name, stored_type_of(t), stored_shape(t.sizes()), stored_bytes_of(t)};
}

checkpoint::TensorView run_view(const std::string& name, at::IntArrayRef sizes, std::int64_t first, std::int64_t count,
                                const at::Tensor& flat) {
  const checkpoint::PartOf of{name, stored_shape(sizes), static_cast<std::uint64_t>(first)};
  const bool all = count == c10::multiply_integers(sizes);
  return {checkpoint::piece_name(of, static_cast<std::uint64_t>(count)), stored_type_of(flat), all ? of.shape : checkpoint::Shape{count},
          stored_bytes_of(flat), of};
}

void check_run(const checkpoint::Contents& from, const char* group, const std::string& name, at::IntArrayRef sizes, const at::Tensor& t) {
  const auto& stored = from.at(group, name);
  if (!std::equal(stored.shape.begin(), stored.shape.end(), sizes.begin(), sizes.end()) || stored.dtype != stored_type_of(t))
    throw_failure(Kind::usage, "the checkpoint's {} does not fit the model's: another model or another data type was trained", name);
}

void read_run(const checkpoint::Contents& from, const char* group, const std::string& name, at::IntArrayRef sizes, std::int64_t first,
              const at::Tensor& t) {
  check_run(from, group, name, sizes, t);
  const at::Tensor here = t.cpu();
  from.read(from.at(group, name), static_cast<std::uint64_t>(first), static_cast<std::uint64_t>(here.numel()),
            {static_cast<std::byte*>(here.data_ptr()), here.nbytes()});
  if (!t.device().is_cpu()) t.copy_(here);
}

checkpoint::TensorView run_view(const StateItem& item) {
  const at::Tensor flat = borrowed(item.values);
  if (item.box == nullptr)
    return run_view(item.key(), item.shape, static_cast<std::int64_t>(item.run.first), static_cast<std::int64_t>(item.run.count), flat);
  const checkpoint::PartOf of{item.key(), item.shape, item.run.first, *item.box};
  const bool all = item.run.count == static_cast<std::size_t>(elements_of(*item.box));
  return {checkpoint::piece_name(of, item.run.count), stored_type_of(flat),
          all ? item.box->sizes : checkpoint::Shape{static_cast<std::int64_t>(item.run.count)}, stored_bytes_of(flat), of};
}

void check_run(const checkpoint::Contents& from, const StateItem& item) {
  check_run(from, std::string(item.group).c_str(), item.key(), item.shape, borrowed(item.values));
}

void read_run(const checkpoint::Contents& from, const StateItem& item) {
  if (item.box != nullptr) {
    check_run(from, item);
    return from.read(from.at(item.group, item.key()), *item.box, item.run.first, item.run.count,
                     {static_cast<std::byte*>(item.values.data), item.values.bytes()});
  }
  read_run(from, std::string(item.group).c_str(), item.key(), item.shape, static_cast<std::int64_t>(item.run.first), borrowed(item.values));
}

namespace {

std::string local_name(int rank, const StateItem& item) { return fmt::format("{}/{}/{}@{}", rank, item.group, item.key(), item.run.first); }

}  // namespace

checkpoint::TensorView local_view(int rank, const StateItem& item) { return whole_view(local_name(rank, item), borrowed(item.values)); }

bool has_local(const checkpoint::Contents& from, int rank, const StateItem& item) {
  const auto* stored = from.find(kLocalGroup, local_name(rank, item));
  return stored != nullptr && stored->elements() == item.run.count;
}

void read_local(const checkpoint::Contents& from, int rank, const StateItem& item) {
  const at::Tensor flat = borrowed(item.values);
  read_run(from, kLocalGroup, local_name(rank, item), flat.sizes(), 0, flat);
}

namespace {

// Calls with every run of these elements that a rank had of its own: where it is stored, its place there, and where it goes.
template <class Call>
void for_each_local(const checkpoint::Contents& from, const StateItem& item, const Call& call) {
  const std::string of = fmt::format("/{}/{}@", item.group, item.key());
  for (const auto& stored : from.tensors()) {
    const auto at = stored.name.find('/');
    if (stored.group != kLocalGroup || at == std::string::npos || stored.name.compare(at, of.size(), of) != 0) continue;
    const ElementRange run{static_cast<std::size_t>(parse_int(stored.name.substr(at + of.size()))), stored.elements()};
    const ElementRange both = run.overlap(item.run);
    if (both.count > 0) call(stored, both.first - run.first, item.values.part(both.first - item.run.first, both.count));
  }
}

}  // namespace

bool read_sum_of_locals(const checkpoint::Contents& from, int times, const StateItem& item) {
  std::size_t covered = 0;
  for_each_local(from, item, [&](const auto&, std::size_t, const Piece& part) { covered += part.count; });
  if (covered != static_cast<std::size_t>(times) * item.run.count) return false;
  sync::fill(item.values, 0);
  std::vector<std::byte> memory(item.values.bytes());
  for_each_local(from, item, [&](const auto& stored, std::size_t first, const Piece& part) {
    Piece one = part;
    one.data = memory.data();
    from.read(stored, first, part.count, {memory.data(), part.bytes()});
    sync::add(part, one);
  });
  return true;
}

bool read_mean_of_locals(const checkpoint::Contents& from, int ranks, const StateItem& item) {
  if (!read_sum_of_locals(from, ranks, item)) return false;
  sync::scale(item.values, 1.0 / ranks);
  return true;
}

}  // namespace cohort::engine
