"""The operations between ranks.

Every operation has a name: ranks may submit operations in different orders, and those of one name belong together. Operations without
a name are matched by counting them, so all ranks must then submit them in the same order. A name is free again once its operation is
synchronized. Every operation has an asynchronous form: `*_async` returns a handle for poll() and synchronize(), which raise
HorovodInternalError when something went wrong: a rank was lost, or ranks disagree about type, shape, root or reduction (then the message
names both sides, and the job stays usable). A wrong argument on this rank alone is a ValueError, at once. `op` is Average (the
default), Sum, Adasum, Min, Max or Product.

Tensors are contiguous and on the CPU: float16, bfloat16, float32, float64, uint8, int8, int16, int32, int64, bool (but no Average of bool).
"""
import torch

from cohort import _core
from cohort.exceptions import HorovodInternalError  # noqa: F401: where scripts import it from
from cohort.torch import handles as _handles
from cohort.torch import process_sets as _sets
from cohort.torch.basics import (
    ccl_built, cross_rank, cross_size, cuda_built, ddl_built, gloo_built, gloo_enabled, init, is_homogeneous, is_initialized, local_rank,
    local_size, mpi_built, mpi_enabled, mpi_threads_supported, nccl_built, rank, rocm_built, shutdown, size, start_timeline,
    stop_timeline,
)
from cohort.torch.handles import poll, synchronize
from cohort.torch.process_sets import global_process_set
from cohort.torch.reductions import (
    Average, Sum, Adasum, Min, Max, Product, allreduce, allreduce_, allreduce_async, allreduce_async_, grouped_allreduce,
    grouped_allreduce_, grouped_allreduce_async, grouped_allreduce_async_, compressed, decompressed, needs_grad, submit_allreduce,
)

__all__ = [
    "Average", "Sum", "Adasum", "Min", "Max", "Product", "init", "shutdown", "is_initialized", "rank", "size", "local_rank",
    "local_size", "cross_size", "cross_rank", "is_homogeneous", "mpi_threads_supported", "mpi_enabled", "mpi_built", "gloo_enabled",
    "gloo_built", "nccl_built", "ddl_built", "ccl_built", "cuda_built", "rocm_built", "start_timeline", "stop_timeline", "poll",
    "synchronize", "allreduce", "allreduce_async", "allreduce_", "allreduce_async_", "grouped_allreduce", "grouped_allreduce_async",
    "grouped_allreduce_", "grouped_allreduce_async_", "sparse_allreduce_async", "allgather", "allgather_async", "grouped_allgather",
    "grouped_allgather_async", "broadcast", "broadcast_async", "broadcast_", "broadcast_async_", "alltoall", "alltoall_async",
    "reducescatter", "reducescatter_async", "grouped_reducescatter", "grouped_reducescatter_async", "join", "barrier",
]


def sparse_allreduce_async(tensor, name, op, process_set=global_process_set):
    """Begins the reduction (Sum or Average) of a sparse tensor and returns a function: call it for the sparse result.

    Indices and values of all ranks are gathered; duplicates are added when the result is coalesced.
    """
    if op not in (Average, Sum):
        raise ValueError("sparse_allreduce_async knows Average and Sum")
    mine = tensor.coalesce()
    indices = allgather_async(mine.indices().transpose(0, 1).contiguous(), name=name and f"{name}.indices", process_set=process_set)
    values = allgather_async(mine.values().contiguous(), name=name and f"{name}.values", process_set=process_set)

    def result():
        all_values, all_indices = _handles.finish(values), _handles.finish(indices)
        if op == Average:
            all_values = all_values / process_set.size()
        return torch.sparse_coo_tensor(all_indices.transpose(0, 1), all_values, mine.size())

    return result



def _submit_allgather(tensors, name, process_set):
    return _core.allgather(tensors, name or "", _sets._id_of(process_set))


class _Allgather(torch.autograd.Function):
    """Every rank's gradient, averaged; of it the rows that came from here."""

    @staticmethod
    def forward(ctx, name, process_set, *tensors):
        ctx.process_set = process_set
        outputs, rows = _handles.gathered(_submit_allgather(list(tensors), name, process_set))
        ctx.rows = rows
        return tuple(outputs)

    @staticmethod
    def backward(ctx, *grads):
        handle = submit_allreduce([grad.contiguous() for grad in grads], None, None, Average, 1.0, 1.0, ctx.process_set)
        me, mine = ctx.process_set.rank(), []
        for grad, rows in zip(_handles.group(handle), ctx.rows):
            mine.append(grad.narrow(0, sum(rows[:me]), rows[me]))
        return (None, None, *mine)


def _allgathered(tensors, name, process_set):
    if needs_grad(tensors):
        return list(_Allgather.apply(name, process_set, *tensors))
    return list(_handles.group(_submit_allgather(tensors, name, process_set)))


def allgather(tensor, name=None, process_set=global_process_set):
    """The tensors of all ranks, joined along the first dimension, which may differ between ranks. Differentiable."""
    return _allgathered([tensor], name, process_set)[0]


def allgather_async(tensor, name=None, process_set=global_process_set):
    """Begins allgather() and returns a handle."""
    return _handles.single(_submit_allgather([tensor], name, process_set))


def grouped_allgather(tensors, name=None, process_set=global_process_set):
    """allgather of a list of tensors as one unit; returns a list."""
    return _allgathered(list(tensors), name, process_set)


def grouped_allgather_async(tensors, name=None, process_set=global_process_set):
    """Begins grouped_allgather() and returns one handle, which resolves to a tuple."""
    return _submit_allgather(list(tensors), name, process_set)


def _submit_broadcast(tensor, output, root_rank, name, process_set):
    return _handles.single(_core.broadcast(tensor, output, root_rank, name or "", _sets._id_of(process_set)))


class _Broadcast(torch.autograd.Function):
    """The gradients, averaged, belong to the root; the others' inputs had no part in the result."""

    @staticmethod
    def forward(ctx, tensor, root_rank, name, process_set):
        ctx.root_rank, ctx.process_set = root_rank, process_set
        return _handles.finish(_submit_broadcast(tensor, None, root_rank, name, process_set))

    @staticmethod
    def backward(ctx, grad):
        averaged = allreduce(grad.contiguous(), op=Average, process_set=ctx.process_set)
        return averaged if rank() == ctx.root_rank else averaged * 0, None, None, None


def broadcast(tensor, root_rank, name=None, process_set=global_process_set):
    """The tensor of `root_rank` (a rank of the job, also inside a process set), as a new tensor. Differentiable."""
    if needs_grad([tensor]):
        return _Broadcast.apply(tensor, root_rank, name, process_set)
    return _handles.finish(_submit_broadcast(tensor, None, root_rank, name, process_set))


def broadcast_async(tensor, root_rank, name=None, process_set=global_process_set):
    """Begins broadcast() and returns a handle."""
    return _submit_broadcast(tensor, None, root_rank, name, process_set)


def broadcast_(tensor, root_rank, name=None, process_set=global_process_set):
    """Like broadcast, in place; returns the tensor."""
    return _handles.finish(_submit_broadcast(tensor, tensor, root_rank, name, process_set))


def broadcast_async_(tensor, root_rank, name=None, process_set=global_process_set):
    """Begins broadcast_() and returns a handle. The tensor must not be touched until it is synchronized."""
    return _submit_broadcast(tensor, tensor, root_rank, name, process_set)


def _split_list(splits):
    if splits is None:
        return None
    if isinstance(splits, torch.Tensor):
        if splits.dtype not in (torch.int32, torch.int64) or splits.dim() > 1:
            raise ValueError(f"alltoall expects splits as a list or one dimension of int32, not {splits.dim()} dimensions of {splits.dtype}")
        splits = splits.tolist()
    return [int(rows) for rows in splits]


def _submit_alltoall(tensor, splits, name, process_set):
    handle = _core.alltoall(tensor, _split_list(splits), name or "", _sets._id_of(process_set))
    return _handles.pair(handle)


class _Alltoall(torch.autograd.Function):
    """The gradients are sent back to the ranks that the rows came from."""

    @staticmethod
    def forward(ctx, tensor, splits, name, process_set):
        output, received = _handles.finish(_submit_alltoall(tensor, splits, name, process_set))
        ctx.received, ctx.process_set = received, process_set
        ctx.mark_non_differentiable(received)
        return output, received

    @staticmethod
    def backward(ctx, grad, _):
        return alltoall(grad.contiguous(), splits=ctx.received, process_set=ctx.process_set)[0], None, None, None


def alltoall(tensor, splits=None, name=None, process_set=global_process_set):
    """Sends splits[r] rows of the tensor to each rank r of the set, and joins what comes from each. Differentiable.

    Without splits the rows are divided evenly and the result is one tensor; with them (a list or an int32 tensor) it is a pair: the
    tensor, and how many rows came from each rank.
    """
    if needs_grad([tensor]):
        pair = _Alltoall.apply(tensor, splits, name, process_set)
    else:
        pair = _handles.finish(_submit_alltoall(tensor, splits, name, process_set))
    return pair[0] if splits is None else tuple(pair)


def alltoall_async(tensor, splits=None, name=None, process_set=global_process_set):
    """Begins alltoall() and returns a handle, which always resolves to the pair."""
    return _submit_alltoall(tensor, splits, name, process_set)


def _submit_reducescatter(tensors, name, op, prescale, postscale, process_set):
    if op == Adasum:  # a RuntimeError, as scripts expect
        raise NotImplementedError("reducescatter does not know Adasum; use Average, Sum, Min, Max or Product")
    return _core.reducescatter(tensors, name or "", op, prescale, postscale, _sets._id_of(process_set))


class _Reducescatter(torch.autograd.Function):
    """The gradients, gathered; of a sum every input counts once per rank."""

    @staticmethod
    def forward(ctx, name, op, prescale, postscale, process_set, *tensors):
        ctx.process_set = process_set
        ctx.factor = prescale * postscale * (process_set.size() if op == Sum else 1)
        return _handles.group(_submit_reducescatter(list(tensors), name, op, prescale, postscale, process_set))

    @staticmethod
    def backward(ctx, *grads):
        grads = [(grad * ctx.factor if ctx.factor != 1 else grad).contiguous() for grad in grads]
        return (None, None, None, None, None, *_handles.group(_submit_allgather(grads, None, ctx.process_set)))


def _reducescattered(tensors, name, op, prescale, postscale, process_set):
    if needs_grad(tensors):
        return list(_Reducescatter.apply(name, op, prescale, postscale, process_set, *tensors))
    return list(_handles.group(_submit_reducescatter(tensors, name, op, prescale, postscale, process_set)))


def reducescatter(tensor, name=None, compression=None, op=Average, process_set=global_process_set, prescale_factor=1.0,
                  postscale_factor=1.0):
    """This rank's rows of the reduction: the first dimension is divided, the first ranks get one row more where it is uneven. Differentiable."""
    tensors, contexts = compressed(compression, [tensor])
    return decompressed(compression, contexts, _reducescattered(tensors, name, op, prescale_factor, postscale_factor, process_set))[0]


def reducescatter_async(tensor, name=None, op=Average, process_set=global_process_set, prescale_factor=1.0, postscale_factor=1.0):
    """Begins reducescatter() and returns a handle."""
    return _handles.single(_submit_reducescatter([tensor], name, op, prescale_factor, postscale_factor, process_set))


def grouped_reducescatter(tensors, name=None, compression=None, op=Average, process_set=global_process_set, prescale_factor=1.0,
                          postscale_factor=1.0):
    """reducescatter of a list of tensors as one unit; returns a list."""
    tensors, contexts = compressed(compression, list(tensors))
    return decompressed(compression, contexts, _reducescattered(tensors, name, op, prescale_factor, postscale_factor, process_set))


def grouped_reducescatter_async(tensors, name=None, op=Average, process_set=global_process_set, prescale_factor=1.0, postscale_factor=1.0):
    """Begins grouped_reducescatter() and returns one handle, which resolves to a tuple."""
    return _submit_reducescatter(list(tensors), name, op, prescale_factor, postscale_factor, process_set)


def join(device=-1):
    """This rank has no more data: until all ranks have joined, it contributes zeros to the allreduces (Sum, Average) of the others.

    Returns the rank that joined last. Averages stay averages over all ranks. `device` is accepted for compatibility.
    """
    return _handles.outcome(_core.join())[2]


def barrier(process_set=global_process_set):
    """Returns when every rank of the set has come here, whatever other operations are in flight."""
    _handles.outcome(_core.barrier(_sets._id_of(process_set)))
