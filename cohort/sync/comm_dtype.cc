#include "cohort/sync/comm_dtype.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "cohort/collective/kernels/kernels.h"
#include "cohort/nn/tensor.h"

namespace cohort::sync {
namespace {

constexpr std::int64_t kSumBlock = 1 << 15;  // elements converted at a time: a few ranks' worth stay in L2

class CommDtypeAllReduce final : public Strategy {
 public:
  CommDtypeAllReduce(Precision dtype, bool averages, bool sum_in_fp32)
      : type_(dtype == Precision::bf16 ? at::kBFloat16 : at::kHalf), averages_(averages), sum_in_fp32_(sum_in_fp32) {}
  std::string_view name() const override { return "all_reduce"; }
  bool averages() const override { return averages_; }
  void reduce_gradients(Bucket& bucket, const CommContext& context) override {
    if (bucket.type() != at::kFloat)
      throw_failure(Kind::usage, "{}: engine.comm_dtype is for fp32 gradients, these are {}", bucket.name(), c10::toString(bucket.type()));
    const at::NoGradGuard no_grad;  // a lane's thread starts with gradients on
    const collective::Piece all = bucket.gradients();
    const at::Tensor gradients = at::from_blob(all.data, {static_cast<std::int64_t>(all.count)}, at::kFloat);
    const Scratch scratch = scratch_for(bucket, *context.comm);
    const at::Tensor sent = scratch.first.narrow(0, 0, gradients.numel());
    sent.copy_(gradients);
    const collective::Call call{.name = bucket.name(), .deadline = context.deadline};
    if (sum_in_fp32_) {
      gradients.copy_(reduce_in_fp32(scratch, *context.comm, call).narrow(0, 0, gradients.numel()));
    } else {
      nn::all_reduce(*context.comm, sent, averages_ ? collective::Op::average : collective::Op::sum, call);
      gradients.copy_(sent);
    }
  }
  void publish_parameters(Bucket&, const CommContext&) override {}  // every rank made the same update

 private:
  struct Scratch {
    at::Tensor first, second;  // 16 bits, an equal part for every rank; second: only for sums in fp32
  };

  // Memory that peers read in place, kept from step to step.
  Scratch scratch_for(const Bucket& bucket, collective::Communicator& comm) {
    const auto ranks = static_cast<std::size_t>(comm.size());
    const std::size_t count = (bucket.gradients().count + ranks - 1) / ranks * ranks;
    const std::lock_guard lock(mutex_);
    Scratch& scratch = scratch_[bucket.index()];
    if (scratch.first.defined() && scratch.first.numel() == static_cast<std::int64_t>(count)) return scratch;
    const auto make = [&] { return nn::tensor(comm.allocate(count * 2), {static_cast<std::int64_t>(count)}, type_); };  // zeroed
    scratch = {make(), sum_in_fp32_ ? make() : at::Tensor()};
    return scratch;
  }

  at::Tensor reduce_in_fp32(const Scratch& scratch, collective::Communicator& comm, const collective::Call& call) const {
    const std::int64_t ranks = comm.size(), each = scratch.first.numel() / ranks;
    comm.all_to_all(nn::piece(scratch.first), nn::piece(scratch.second), call);
    const at::Tensor parts = scratch.second.view({ranks, each}), mine = scratch.first.narrow(0, 0, each);
    const at::Tensor fp32 = at::empty({ranks, std::min(kSumBlock, each)}, at::kFloat);
    for (std::int64_t at = 0; at < each; at += kSumBlock) {
      const std::int64_t count = std::min(kSumBlock, each - at);
      std::vector<const void*> sources;
      for (std::int64_t r = 0; r < ranks; ++r) {
        fp32[r].narrow(0, 0, count).copy_(parts[r].narrow(0, at, count));
        sources.push_back(fp32[r].data_ptr());
      }
      void* const target = fp32.data_ptr();
      collective::kernels().reduce({.dtype = collective::Dtype::f32, .post = averages_ ? 1.0 / static_cast<double>(ranks) : 1.0}, sources,
                                   std::span(&target, 1), static_cast<std::size_t>(count));
      mine.narrow(0, at, count).copy_(fp32[0].narrow(0, 0, count));
    }
    comm.all_gather(nn::piece(mine), nn::piece(scratch.second), call);
    return scratch.second;
  }

  const at::ScalarType type_;
  const bool averages_, sum_in_fp32_;
  std::mutex mutex_;
  std::map<int, Scratch> scratch_;  // guarded by mutex_; by bucket
};

}  // namespace

std::unique_ptr<Strategy> with_comm_dtype(std::unique_ptr<Strategy> strategy, Precision dtype, bool sum_in_fp32) {
  if (dtype == Precision::fp32) return strategy;
  if (strategy->name() != "all_reduce")
    throw_failure(Kind::usage, "engine.comm_dtype={} goes with sync=all_reduce: {} sends gradients in fp32", name_of(dtype),
                  strategy->name());
  return std::make_unique<CommDtypeAllReduce>(dtype, strategy->averages(), sum_in_fp32);
}

}  // namespace cohort::sync
