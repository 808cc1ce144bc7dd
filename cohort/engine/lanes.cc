#include "cohort/engine/lanes.h"

#include <fmt/format.h>

#include <utility>

namespace cohort::engine {

void Lanes::open(LaneChoice mine, bool forced) {
  std::int32_t fewest = comm_.size() == 1 && !forced ? 0 : mine.lanes;
  comm_.all_reduce(collective::piece(std::span(&fewest, 1)), collective::Op::min, {.name = "number of lanes"});
  choice_ = std::move(mine);
  if (fewest < choice_.lanes)
    choice_ = {fewest, comm_.size() == 1 ? "no lane: a single rank has nothing to reduce"
                                         : fmt::format("{} as on the rank with the fewest", fewest)};
  for (int i = 0; i < choice_.lanes; ++i) lanes_.push_back(std::make_unique<Lane>(i, SpanComms(comm_, spans_, true), context_));
}

void Lanes::expect(const ReductionPass& pass) {
  carried_.clear();
  for (std::size_t l = 0; l < lanes_.size(); ++l) {
    std::vector<Bucket*> mine;
    for (std::size_t b = l; b < buckets_.size(); b += lanes_.size()) mine.push_back(buckets_[b].get());
    lanes_[l]->expect(std::move(mine), pass);
  }
}

void Lanes::ready(std::size_t bucket, const ReductionPass& pass) {
  if (!lanes_.empty()) {
    lane_of(bucket).ready(buckets_[bucket].get());
  } else if (in_hooks_) {
    carry_ready(pass);
  }
}

void Lanes::wait_for_buffer(const sync::BufferPool& pool) {
  const auto buffer_free = [&] { return pool.in_use() <= lanes_.size(); };
  for (const auto& lane : lanes_) lane->await_buffer(buffer_free);
}

// In plan order, as far as they are complete: every rank carries the same bucket next.
void Lanes::carry_ready(const ReductionPass& pass) {
  while (carried_.size() < buckets_.size() && arrivals_.complete(carried_.size()))
    carried_.push_back(
        carry(*buckets_[carried_.size()], context_, {.comm = &comms_.of(*buckets_[carried_.size()]), .mean_of = context_.mean_of}, pass));
}

std::vector<BucketReport> Lanes::await_carried(const ReductionPass& pass) {
  if (lanes_.empty()) {
    arrivals_.complete_all();
    carry_ready(pass);
    return std::exchange(carried_, {});
  }
  std::vector<BucketReport> reports;
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    if (!arrivals_.complete(b)) lane_of(b).ready(buckets_[b].get());
  for (const auto& lane : lanes_)
    for (auto& report : lane->await()) reports.push_back(std::move(report));
  return reports;
}

}  // namespace cohort::engine
