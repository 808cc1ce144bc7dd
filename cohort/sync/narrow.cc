#include "cohort/sync/narrow.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "cohort/collective/kernels.h"
#include "cohort/nn/tensor.h"

namespace cohort::sync {
namespace {

constexpr std::int64_t kSumBlock = 1 << 15;  // elements widened at a time: a few ranks' worth stay in L2

class NarrowAllReduce final : public Strategy {
 public:
  NarrowAllReduce(Precision wire, bool averages, bool sum_in_fp32)
      : type_(wire == Precision::bf16 ? at::kBFloat16 : at::kHalf), averages_(averages), sum_in_fp32_(sum_in_fp32) {}
  std::string_view name() const override { return "all_reduce"; }
  bool averages() const override { return averages_; }
  void agree(Bucket& bucket, const Wire& wire) override {
    if (bucket.type() != at::kFloat)
      throw_failure(Kind::usage, "{}: engine.wire narrows fp32 gradients, these are {}", bucket.name(), c10::toString(bucket.type()));
    const at::NoGradGuard no_grad;  // a lane's thread starts with gradients on
    const collective::Piece all = bucket.gradients();
    const at::Tensor gradients = at::from_blob(all.data, {static_cast<std::int64_t>(all.count)}, at::kFloat);
    const Room room = room_for(bucket, *wire.comm);
    const at::Tensor sent = room.first.narrow(0, 0, gradients.numel());
    sent.copy_(gradients);
    const collective::Call call{.name = bucket.name(), .deadline = wire.deadline};
    if (sum_in_fp32_) {
      gradients.copy_(summed_wide(room, *wire.comm, call).narrow(0, 0, gradients.numel()));
    } else {
      nn::all_reduce(*wire.comm, sent, averages_ ? collective::Op::average : collective::Op::sum, call);
      gradients.copy_(sent);
    }
  }
  void publish(Bucket&, const Wire&) override {}  // everybody made the same update

 private:
  struct Room {
    at::Tensor first, second;  // 16 bits, an equal part for every rank; second: only for sums in fp32
  };

  // Memory that peers read in place, kept from step to step.
  Room room_for(const Bucket& bucket, collective::Communicator& comm) {
    const auto ranks = static_cast<std::size_t>(comm.size());
    const std::size_t count = (bucket.gradients().count + ranks - 1) / ranks * ranks;
    const std::lock_guard lock(mutex_);
    Room& room = rooms_[bucket.index()];
    if (room.first.defined() && room.first.numel() == static_cast<std::int64_t>(count)) return room;
    const auto make = [&] { return nn::tensor(comm.allocate(count * 2), {static_cast<std::int64_t>(count)}, type_); };  // zeroed
    room = {make(), sum_in_fp32_ ? make() : at::Tensor()};
    return room;
  }

  at::Tensor summed_wide(const Room& room, collective::Communicator& comm, const collective::Call& call) const {
    const std::int64_t ranks = comm.size(), each = room.first.numel() / ranks;
    comm.all_to_all(nn::piece(room.first), nn::piece(room.second), call);
    const at::Tensor parts = room.second.view({ranks, each}), mine = room.first.narrow(0, 0, each);
    const at::Tensor wide = at::empty({ranks, std::min(kSumBlock, each)}, at::kFloat);
    for (std::int64_t at = 0; at < each; at += kSumBlock) {
      const std::int64_t count = std::min(kSumBlock, each - at);
      std::vector<const void*> sources;
      for (std::int64_t r = 0; r < ranks; ++r) {
        wide[r].narrow(0, 0, count).copy_(parts[r].narrow(0, at, count));
        sources.push_back(wide[r].data_ptr());
      }
      void* const target = wide.data_ptr();
      collective::kernels().reduce({.dtype = collective::Dtype::f32, .post = averages_ ? 1.0 / static_cast<double>(ranks) : 1.0}, sources,
                                   std::span(&target, 1), static_cast<std::size_t>(count));
      mine.narrow(0, at, count).copy_(wide[0].narrow(0, 0, count));
    }
    comm.all_gather(nn::piece(mine), nn::piece(room.second), call);
    return room.second;
  }

  const at::ScalarType type_;
  const bool averages_, sum_in_fp32_;
  std::mutex mutex_;
  std::map<int, Room> rooms_;  // guarded by mutex_; by bucket
};

}  // namespace

std::unique_ptr<Strategy> narrowed(std::unique_ptr<Strategy> strategy, Precision wire, bool sum_in_fp32) {
  if (wire == Precision::fp32) return strategy;
  if (strategy->name() != "all_reduce")
    throw_failure(Kind::usage, "engine.wire={} goes with all_reduce: strategy {} sends gradients in fp32", name_of(wire), strategy->name());
  return std::make_unique<NarrowAllReduce>(wire, strategy->averages(), sum_in_fp32);
}

}  // namespace cohort::sync
