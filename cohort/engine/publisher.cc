#include "cohort/engine/publisher.h"

#include <utility>

#include "cohort/base/trace.h"

namespace cohort::engine {

Publisher::Publisher(SpanComms comms, sync::Strategy& strategy, Rank me)
    : comms_(std::move(comms)), strategy_(strategy), thread_("publisher", [this, me] {
        comms_.abort({Kind::aborted, "the engine was destroyed while parameters were being published", me});
      }) {}

void Publisher::start(sync::Bucket& bucket, sync::Wire wire) {
  wire.comm = &comms_.of(bucket);
  under_way_[&bucket] = thread_.give([this, &bucket, wire] {
    const Span span{"publish", bucket.name(), bucket.bytes()};
    strategy_.publish(bucket, wire);
  });
}

void Publisher::await(const sync::Bucket& bucket) {
  const auto found = under_way_.find(&bucket);
  if (found == under_way_.end()) return;
  thread_.await(found->second);
  under_way_.erase(found);
}

void Publisher::await_all() {
  if (under_way_.empty()) return;
  thread_.await_all();
  under_way_.clear();
}

void Publisher::settle() noexcept {
  try {
    await_all();
  } catch (...) {  // the next await() throws it again
  }
}

nn::BlockWrapper Publisher::block_wrapper(nn::BlockWrapper inner, BucketsOf buckets_of) {
  return [this, inner = std::move(inner), buckets_of = std::move(buckets_of)](const nn::Block& block, const at::Tensor& x) {
    if (!under_way_.empty())
      for (const sync::Bucket* bucket : buckets_of(block)) await(*bucket);
    return inner ? inner(block, x) : block.forward(x);
  };
}

}  // namespace cohort::engine
