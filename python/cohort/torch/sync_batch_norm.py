"""Batch normalisation over the batch of all ranks: forward and backward equal those of one process that has the whole batch.

    forward   mean, var over all N values of a channel:  each rank gives (n_i, mean_i, M2_i), gathered and combined (Chan et al. 1979), which
              does not lose digits where E[x^2] - E[x]^2 would;  y = (x - mean) * rstd * w + b
    backward  dx = w * rstd * (dy - sum(dy)/N - xhat * sum(dy * xhat)/N), both sums over all ranks;  dw, db are this rank's share
"""
from typing import Optional

import torch
import torch.nn.functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from cohort.torch.mpi_ops import Sum, allgather, allreduce, size


class SyncBatchNorm(_BatchNorm):
    """`torch.nn.BatchNorm*d` whose statistics in training are those of all ranks' batches together, on CPU and GPU.

    Batches may differ in size. Input is (N, C, ...). In eval mode it is plain batch normalisation. Every rank has to run forward, and
    backward where one rank does.
    """

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: Optional[float] = 0.1, affine: bool = True,
                 track_running_stats: bool = True):
        super().__init__(num_features, eps, momentum, affine, track_running_stats)

    def _check_input_dim(self, input):
        if input.dim() < 2:
            raise ValueError(f"SyncBatchNorm expects (N, C, ...), at least 2 dimensions, got {input.dim()}")
        if input.size(1) != self.num_features:
            raise ValueError(f"SyncBatchNorm was made for {self.num_features} channels, got an input of {input.size(1)}")

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        self._check_input_dim(input)
        if not input.is_floating_point():
            raise ValueError(f"SyncBatchNorm normalises real numbers, not {input.dtype}; pass input.float()")
        if not self.training or size() == 1:
            return self._alone(input)
        y, mean, variance, count = _SyncBatchNorm.apply(input, self.weight, self.bias, self.eps)
        if self.track_running_stats and self.running_mean is not None:
            self._remember(mean, variance, count)
        return y

    def _momentum(self):
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        return 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum

    @torch.no_grad()
    def _remember(self, mean, variance, count):
        """The running variance is the unbiased one, as torch keeps it."""
        factor = self._momentum()
        unbiased = variance * (count / (count - 1))
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), factor)
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), factor)

    def _alone(self, input):
        tracked = self.training and self.track_running_stats
        factor = self._momentum() if tracked else 0.0 if self.momentum is None else self.momentum
        use_batch = self.training or self.running_mean is None
        keep = not self.training or self.track_running_stats
        return F.batch_norm(input, self.running_mean if keep else None, self.running_var if keep else None, self.weight, self.bias,
                            use_batch, factor, self.eps)


def _per_channel(values, like):
    return values.view(1, -1, *[1] * (like.dim() - 2))


class _SyncBatchNorm(torch.autograd.Function):
    """Names of the two operations are fixed: forward and backward wait for them, so there is never a second one in flight."""

    @staticmethod
    def forward(ctx, input, weight, bias, eps):
        x = input if input.dtype == torch.float64 else input.float()
        others = [d for d in range(x.dim()) if d != 1]
        count, channels = x.numel() // x.size(1), x.size(1)
        mean = x.sum(others) / max(count, 1)
        spread = (x - _per_channel(mean, x)).square().sum(others)
        mine = torch.cat([x.new_full((1,), count), mean, spread])
        theirs = allgather(mine.unsqueeze(0).double(), name="sync_batch_norm.forward")  # double: counts above 2^24 stay whole
        counts, means, spreads = theirs[:, :1], theirs[:, 1:1 + channels], theirs[:, 1 + channels:]
        total = float(counts.sum())
        if total <= 1:
            raise ValueError(f"SyncBatchNorm needs more than one value per channel in training, all ranks together have {int(total)}")
        mean = (counts * means).sum(0) / total
        variance = (spreads + counts * (means - mean).square()).sum(0) / total
        rstd = torch.rsqrt(variance + eps).to(x.dtype)
        xhat = (x - _per_channel(mean.to(x.dtype), x)) * _per_channel(rstd, x)
        y = xhat if weight is None else xhat * _per_channel(weight.to(x.dtype), x) + _per_channel(bias.to(x.dtype), x)
        ctx.save_for_backward(xhat, weight, rstd)
        ctx.total = total
        ctx.input_dtype = input.dtype
        total_count = torch.tensor(total, dtype=torch.float64)
        ctx.mark_non_differentiable(mean, variance, total_count)
        return y.to(input.dtype), mean, variance, total_count

    @staticmethod
    def backward(ctx, dy, *_):
        xhat, weight, rstd = ctx.saved_tensors
        others = [d for d in range(xhat.dim()) if d != 1]
        dy = dy.to(xhat.dtype)
        sum_dy, sum_dy_xhat = dy.sum(others), (dy * xhat).sum(others)
        dx = None
        if ctx.needs_input_grad[0]:
            both = allreduce(torch.stack([sum_dy, sum_dy_xhat]), op=Sum, name="sync_batch_norm.backward") / ctx.total
            scale = rstd if weight is None else rstd * weight.to(rstd.dtype)
            dx = _per_channel(scale, dy) * (dy - _per_channel(both[0], dy) - xhat * _per_channel(both[1], dy))
            dx = dx.to(ctx.input_dtype)
        dw = sum_dy_xhat.to(weight.dtype) if weight is not None and ctx.needs_input_grad[1] else None
        db = sum_dy.to(weight.dtype) if weight is not None and ctx.needs_input_grad[2] else None
        return dx, dw, db, None
