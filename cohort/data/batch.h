// A batch is samples made ready for the model: images as float32 (count x channels x height x width), float values as float32, tokens and
// labels as int64, targets of a regression as float32 (count x targets).
// Its memory comes from a pool and goes back when the last copy of the Batch is dropped, so a training run allocates nothing large after
// its first steps. nn/batch.h views it as tensors.
// Owner: whoever holds a copy; it may outlive loader and pool. Threads: one at a time for each memory; the pool takes any.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "cohort/data/dataset.h"
#include "cohort/data/transform.h"

namespace cohort::data {

// Memory for one batch, both parts on 64-byte boundaries: the bits of a matrix product may depend on alignment.
class BatchMemory {
 public:
  BatchMemory(std::size_t input_bytes, std::size_t labels);  // labels of 8 bytes: int64, or float32 in half of the room
  std::byte* inputs() const { return block_.get(); }
  std::int64_t* labels() const { return reinterpret_cast<std::int64_t*>(block_.get() + labels_at_); }
  float* targets() const { return reinterpret_cast<float*>(block_.get() + labels_at_); }

 private:
  struct Free {
    void operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t{64}); }
  };
  std::size_t labels_at_;
  std::unique_ptr<std::byte[], Free> block_;
};

class BatchPool : public std::enable_shared_from_this<BatchPool> {
 public:
  BatchPool(const Form& form, std::int64_t most_samples);
  std::shared_ptr<BatchMemory> take();
  std::size_t made() const;  // blocks of memory ever allocated

 private:
  std::size_t input_bytes_, labels_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<BatchMemory>> free_;  // guarded by mutex_
  std::size_t made_ = 0;                            // guarded by mutex_
};

struct Batch {
  std::shared_ptr<const Form> form;
  std::int64_t count = 0;         // samples here; may be 0 in the last step of an epoch
  std::int64_t global_count = 0;  // samples of this step over all ranks: what a mean over the step divides by
  std::int64_t epoch = 0;
  std::int64_t step = 0;
  std::shared_ptr<BatchMemory> memory;

  float* pixels() const { return reinterpret_cast<float*>(memory->inputs()); }                // of Input::pixels
  float* floats() const { return pixels(); }                                                  // of Input::floats
  std::int64_t* tokens() const { return reinterpret_cast<std::int64_t*>(memory->inputs()); }  // of Input::tokens
  std::int64_t* labels() const { return memory->labels(); }                                   // unless Form::targets
  float* targets() const { return memory->targets(); }                                        // if Form::targets
};

struct CollateOptions {
  const Dataset& set;
  const Transforms& transforms;
  std::uint64_t seed = 0;  // with the epoch and a sample's index: what its random transforms draw from
  std::int64_t epoch = 0;
  const std::atomic<bool>* stop = nullptr;  // looked at between samples; the batch is then left unfinished
};

// Where to, sample after sample, with room for all of them: float32 pixels and values or int64 tokens; int64 labels or float32 targets.
struct CollateOutput {
  void* inputs;
  void* labels;
};

// The samples of these indices, in their order. Kind::usage for an index that is not in the set; failures of the set come out with the
// sample's index and place.
void collate(const CollateOptions& how, std::span<const std::int64_t> indices, const CollateOutput& to,
             TransformScratch& transform_scratch);

ImageShape image_shape(const Form& form);  // of Input::pixels

}  // namespace cohort::data
