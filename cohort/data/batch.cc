#include "cohort/data/batch.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "cohort/base/bytes.h"
#include "cohort/base/error.h"

namespace cohort::data {

BatchMemory::BatchMemory(std::size_t input_bytes, std::size_t labels)
    : labels_at_(round_up(input_bytes, kCacheLine)),
      block_(static_cast<std::byte*>(::operator new[](labels_at_ + labels * sizeof(std::int64_t), std::align_val_t{kCacheLine}))) {}

BatchPool::BatchPool(const Form& form, std::int64_t most_samples)
    : input_bytes_(static_cast<std::size_t>(most_samples * form.elements()) *
                   (form.input == Input::tokens ? sizeof(std::int64_t) : sizeof(float))),
      labels_(static_cast<std::size_t>(most_samples * form.labels())) {}

std::shared_ptr<BatchMemory> BatchPool::take() {
  std::unique_ptr<BatchMemory> memory;
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      memory = std::move(free_.back());
      free_.pop_back();
    } else {
      free_.reserve(++made_);  // so that giving back never allocates
    }
  }
  if (!memory) memory = std::make_unique<BatchMemory>(input_bytes_, labels_);
  return {memory.release(), [pool = shared_from_this()](BatchMemory* back) {
            const std::lock_guard lock(pool->mutex_);
            pool->free_.emplace_back(back);
          }};
}

std::size_t BatchPool::made() const {
  const std::lock_guard lock(mutex_);
  return made_;
}

ImageShape image_shape(const Form& form) { return {form.shape[0], form.shape[1], form.shape[2]}; }

namespace {

constexpr std::int64_t kSoon = 2;  // samples: shuffled ones are not in any cache, and the way to memory takes as long as one or two

Sample look_up(const Dataset& set, std::int64_t index, Scratch& scratch) {
  if (index < 0 || index >= set.size()) throw_failure(Kind::usage, "sample {} is not in a set of {}", index, set.size());
  try {
    return set.sample(index, scratch);
  } catch (const Failure& failure) {
    Error error = failure.error();
    const std::string where = set.where(index);
    const bool said = error.what.find(where) != std::string::npos;
    error.what = fmt::format("sample {}{}: {}", index, said ? "" : " (" + where + ")", error.what);
    throw Failure{error};
  }
}

void put_input(const CollateOptions& how, const Sample& sample, std::int64_t index, void* to, TransformScratch& transform_scratch) {
  const Form& form = how.set.form();
  switch (form.input) {
    case Input::pixels: {
      const Rng rng(how.seed, static_cast<std::uint64_t>(how.epoch), static_cast<std::uint64_t>(index));
      return how.transforms.make(sample.input, static_cast<float*>(to), image_shape(form), rng, transform_scratch);
    }
    case Input::floats: return how.transforms.make_floats(sample.input, static_cast<float*>(to), form.shape);
    case Input::tokens:
      if (form.wide) return void(std::memcpy(to, sample.input, static_cast<std::size_t>(form.bytes())));
      return widen(sample.input, static_cast<std::int64_t*>(to), form.elements());
  }
}

// The `i`th sample's.
void put_labels(const Form& form, const Sample& sample, std::int64_t i, void* labels) {
  if (form.targets > 0)
    std::copy_n(sample.values, form.targets, static_cast<float*>(labels) + i * form.targets);
  else if (form.ids > 0)
    std::copy_n(sample.ids, form.ids, static_cast<std::int64_t*>(labels) + i * form.ids);
  else if (form.next_tokens)
    widen(sample.targets, static_cast<std::int64_t*>(labels) + i * form.elements(), form.elements());
  else
    static_cast<std::int64_t*>(labels)[i] = sample.label;
}

}  // namespace

void collate(const CollateOptions& how, std::span<const std::int64_t> indices, const CollateOutput& to,
             TransformScratch& transform_scratch) {
  const Form& form = how.set.form();
  const std::int64_t each = form.elements() * static_cast<std::int64_t>(form.input == Input::tokens ? sizeof(std::int64_t) : sizeof(float));
  for (std::int64_t i = 0; i < std::ssize(indices); ++i) {
    const std::int64_t index = indices[static_cast<std::size_t>(i)];
    if (i + kSoon < std::ssize(indices)) how.set.prefetch(indices[static_cast<std::size_t>(i + kSoon)]);
    if (how.stop != nullptr && how.stop->load(std::memory_order_relaxed)) return;
    const Sample sample = look_up(how.set, index, transform_scratch.bytes);
    put_input(how, sample, index, static_cast<std::byte*>(to.inputs) + i * each, transform_scratch);
    put_labels(form, sample, i, to.labels);
  }
}

}  // namespace cohort::data
