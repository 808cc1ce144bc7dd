#include "cohort/nn/sync_batch_norm.h"

#include <fmt/ranges.h>

#include "cohort/nn/tensor.h"

namespace cohort::nn {
namespace {

using at::indexing::Slice;
using collective::Communicator;

struct Statistics {
  at::Tensor mean, var;  // per channel, in double
  double count = 0;      // values per channel, over all ranks
};

// All dimensions but the channels.
std::vector<std::int64_t> reduced_dims(const at::Tensor& x) {
  std::vector<std::int64_t> dims{0};
  for (std::int64_t d = 2; d < x.dim(); ++d) dims.push_back(d);
  return dims;
}

// [c] -> [1, c, 1, ...], to stand beside x.
at::Tensor beside(const at::Tensor& channels, const at::Tensor& x) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(x.dim()), 1);
  sizes[1] = -1;
  return channels.to(x.scalar_type()).view(sizes);
}

// 16-bit inputs are added up in 32 bits, as torch does.
at::Tensor widened(const at::Tensor& x) { return x.scalar_type() == at::kHalf || x.scalar_type() == at::kBFloat16 ? x.to(at::kFloat) : x; }

// Each rank's count, mean and sum of squared deviations, merged in rank order: the same bits everywhere.
Statistics gather_statistics(const at::Tensor& x, Communicator& comm) {
  const std::int64_t channels = x.size(1);
  const std::int64_t count = x.numel() / std::max<std::int64_t>(channels, 1);
  const at::Tensor mine = at::zeros({2 * channels + 1}, at::kDouble);
  if (count > 0) {
    const auto [var, mean] = at::var_mean(widened(x), reduced_dims(x), /*correction=*/at::Scalar(0));
    mine.slice(0, 0, channels).copy_(mean);
    mine.slice(0, channels, 2 * channels).copy_(var).mul_(static_cast<double>(count));
    mine[2 * channels].fill_(static_cast<double>(count));
  }
  const at::Tensor all = all_gather(comm, mine, {.name = "sync_batch_norm.forward"});
  const at::Tensor counts = all.index({Slice(), Slice(2 * channels)});  // [ranks, 1]
  const at::Tensor means = all.index({Slice(), Slice(0, channels)});
  const at::Tensor squares = all.index({Slice(), Slice(channels, 2 * channels)});
  Statistics result;
  result.count = counts.sum().item<double>();
  const double divisor = std::max(result.count, 1.0);
  result.mean = (counts * means).sum(0) / divisor;
  result.var = (squares + counts * (means - result.mean).square()).sum(0) / divisor;
  return result;
}

struct Normalise : torch::autograd::Function<Normalise> {
  // NOLINTNEXTLINE(readability-identifier-naming): autograd's names
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                            const Statistics& all, double eps, Communicator* comm) {
    const at::Tensor wide = widened(x);
    const at::Tensor mean = all.mean.to(wide.scalar_type());
    const at::Tensor scale = (all.var + eps).rsqrt().to(wide.scalar_type());
    ctx->save_for_backward({x, weight, mean, scale});
    ctx->saved_data["count"] = all.count;
    ctx->saved_data["comm"] = reinterpret_cast<std::int64_t>(comm);  // the caller keeps it alive until backward is done
    at::Tensor y = (wide - beside(mean, wide)) * beside(scale * weight.to(scale.scalar_type()), wide);
    y += beside(bias, wide);
    return y.to(x.scalar_type());
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx, const torch::autograd::variable_list& grads) {
    if (at::GradMode::is_enabled())
      throw_failure(Kind::usage, "sync batch norm has no second derivative; call backward without create_graph");
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &mean = saved[2], &scale = saved[3];
    auto& comm = *reinterpret_cast<Communicator*>(ctx->saved_data["comm"].toInt());  // NOLINT(performance-no-int-to-ptr)
    const at::Tensor dy = widened(grads[0]);
    const at::Tensor xhat = (widened(x) - beside(mean, dy)) * beside(scale, dy);
    const at::Tensor dbias = dy.sum(reduced_dims(dy));
    const at::Tensor dweight = (dy * xhat).sum(reduced_dims(dy));

    const at::Tensor sums = at::stack({dbias, dweight}).to(at::kDouble);
    all_reduce(comm, sums, collective::Op::sum, {.name = "sync_batch_norm.backward"});
    sums.div_(std::max(ctx->saved_data["count"].toDouble(), 1.0));
    const at::Tensor gain = scale * weight.to(scale.scalar_type());
    const at::Tensor dx = (dy - beside(sums[0], dy) - xhat * beside(sums[1], dy)) * beside(gain, dy);
    const at::Tensor none;
    return {dx.to(x.scalar_type()), dweight.to(weight.scalar_type()), dbias.to(weight.scalar_type()), none, none, none};
  }
};

}  // namespace

void SyncBatchNormImpl::enter(const BatchNormTensors& tensors) {
  static_cast<BatchNormTensors&>(*this) = tensors;
  register_parameter("weight", weight, weight.defined() && weight.requires_grad());
  register_parameter("bias", bias, bias.defined() && bias.requires_grad());
  register_buffer("running_mean", running_mean);
  register_buffer("running_var", running_var);
  register_buffer("num_batches_tracked", num_batches_tracked);
}

void SyncBatchNormImpl::reset() {
  BatchNormTensors fresh;
  if (options.affine) {
    fresh.weight = torch::ones({options.features}).requires_grad_(true);
    fresh.bias = torch::zeros({options.features}).requires_grad_(true);
  }
  if (options.track_running_stats) {
    fresh.running_mean = torch::zeros({options.features});
    fresh.running_var = torch::ones({options.features});
    fresh.num_batches_tracked = torch::zeros({}, torch::kLong);
  }
  enter(fresh);
}

double SyncBatchNormImpl::count_batch() {
  if (!is_training() || !running_mean.defined()) return 0;
  num_batches_tracked += 1;
  return options.momentum ? *options.momentum : 1 / num_batches_tracked.item<double>();
}

at::Tensor SyncBatchNormImpl::forward(const at::Tensor& x) {
  if (x.dim() < 2 || x.size(1) != options.features) {
    throw_failure(Kind::usage, "batch norm over {} features wants [n, {}, ...], not [{}]", options.features, options.features,
                  fmt::join(x.sizes(), ", "));
  }
  const bool of_batch = is_training() || !running_mean.defined();
  if (of_batch && comm_ != nullptr) return forward_synchronised(x);
  return torch::batch_norm(x, weight, bias, running_mean, running_var, of_batch, count_batch(), options.eps, /*cudnn_enabled=*/true);
}

at::Tensor SyncBatchNormImpl::forward_synchronised(const at::Tensor& x) {
  Statistics all;
  {
    const at::NoGradGuard no_grad;
    all = gather_statistics(x.detach(), *comm_);
    // Every rank has the same count, so all of them stop here together and the communicator stays usable.
    if (all.count == 1)
      throw_failure(Kind::usage, "batch norm: one value per channel over all {} ranks; train with larger batches", comm_->size());
    const double momentum = all.count > 0 ? count_batch() : 0;
    if (momentum > 0) {
      running_mean.lerp_(all.mean.to(running_mean.scalar_type()), momentum);
      running_var.lerp_((all.var * (all.count / (all.count - 1))).to(running_var.scalar_type()), momentum);
    }
  }
  if (weight.defined()) return Normalise::apply(x, weight, bias, all, options.eps, comm_);
  const at::Tensor ones = at::ones({options.features}, x.options());  // autograd functions want every tensor defined
  return Normalise::apply(x, ones, at::zeros_like(ones), all, options.eps, comm_);
}

}  // namespace cohort::nn
