"""The operations between ranks.

Every operation has a name: ranks may submit operations in different orders, and those of one name belong together. Operations without
a name are matched by counting them, so all ranks must then submit them in the same order. A name is free again once its operation is
synchronized. Operations are asynchronous underneath: `*_async` returns a handle for poll() and synchronize(), which raise
HorovodInternalError when something went wrong: a rank was lost, or ranks disagree about type, shape, root or reduction (then the message
names both sides, and the engine stays usable). What is wrong here alone is a ValueError, at once. `op` is Average (the default), Sum,
Adasum, Min, Max or Product.

Tensors are contiguous and on the CPU: float16, bfloat16, float32, float64, uint8, int8, int16, int32, int64, bool (but no Average of bool).
"""
import atexit
import os
import warnings

import torch

from cohort import _core, membership
from cohort.exceptions import HorovodInternalError
from cohort.torch import process_sets as _sets
from cohort.torch.process_sets import ProcessSet, global_process_set

Average = 0
Sum = 1
Adasum = 2
Min = 3
Max = 4
Product = 5


# ---- the job


def init(comm=None, process_sets=None):
    """Meets the other ranks of the job. Does nothing when this process is a rank already. In an elastic job it waits until it is let in.

    comm: a list of ranks of the job (or an mpi4py communicator) that are the world of this init; default: all.
    process_sets: a list of ProcessSet, alike on every rank; or "dynamic", see add_process_set.
    """
    if _core.is_initialized():
        return
    dynamic = _flag("HOROVOD_DYNAMIC_PROCESS_SETS")
    if process_sets == "dynamic":
        dynamic, process_sets = True, []
    elif isinstance(process_sets, str):
        raise ValueError(f"process_sets={process_sets!r}: give a list of ProcessSet, or 'dynamic'")
    process_sets = [s if isinstance(s, ProcessSet) else ProcessSet(s) for s in process_sets or []]
    ranks = [] if comm is None else _sets._ranks_of(comm)
    membership.meet(lambda: _core.init(ranks, [s.ranks for s in process_sets], **_settings()))
    _sets._settle(process_sets, dynamic)
    atexit.register(shutdown)
    if os.environ.get("HOROVOD_TIMELINE", "DYNAMIC") not in ("", "DYNAMIC"):  # DYNAMIC: the script calls start_timeline itself
        start_timeline(os.environ["HOROVOD_TIMELINE"], _flag("HOROVOD_TIMELINE_MARK_CYCLES"))


def shutdown():
    """Leaves the job; init() may be called again. Operations under way are given up, their handles stand for nothing from here on."""
    _core.shutdown()
    _sets._forget()
    _shapes.clear()
    atexit.unregister(shutdown)


def _flag(name):
    return os.environ.get(name, "0").strip().lower() not in ("", "0", "false", "no", "off")


def _number(name, kind):
    text = os.environ.get(name, "").strip()
    if not text:
        return None
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"{name}={text}: not a number") from None


def _settings():
    """What Horovod's variables say about the queue. HOROVOD_CYCLE_TIME has no counterpart: nothing here waits for a cycle."""
    wanted = {
        "fusion_bytes": _number("HOROVOD_FUSION_THRESHOLD", int),
        "cache_names": _number("HOROVOD_CACHE_CAPACITY", int),
        "warn_after": 0.0 if _flag("HOROVOD_STALL_CHECK_DISABLE") else _number("HOROVOD_STALL_CHECK_TIME_SECONDS", float),
        "shutdown_after": _number("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", float),
    }
    return {name: value for name, value in wanted.items() if value is not None}


def is_initialized():
    """Whether this process is a rank."""
    return _core.is_initialized()


def rank():
    """This process's number in the job, from 0."""
    return _core.rank()


def size():
    """How many ranks the job has."""
    return _core.size()


def local_rank():
    """This process's number among the ranks on its host."""
    return _core.local_rank()


def local_size():
    """How many ranks are on this host."""
    return _core.local_size()


def _same_seat():
    """The hosts that have a rank at this process's local rank, in order of appearance."""
    mine, seen, with_seat = _core.local_rank(), {}, []
    for host in _core.hosts():
        if seen.setdefault(host, 0) == mine:
            with_seat.append(host)
        seen[host] += 1
    return with_seat


def cross_size():
    """How many hosts have a rank of this local rank."""
    return len(_same_seat())


def cross_rank():
    """The number of this host among those that have a rank of this local rank."""
    hosts = _core.hosts()
    return _same_seat().index(hosts[_core.rank()])


def is_homogeneous():
    """Whether every host has the same number of ranks."""
    hosts = _core.hosts()
    return len({hosts.count(host) for host in hosts}) == 1


def mpi_threads_supported():
    """False: there is no MPI here, and none is needed."""
    _core.rank()
    return False


def mpi_enabled():
    """False: ranks talk over Cohort's own links."""
    return False


def mpi_built():
    """False: ranks talk over Cohort's own links."""
    return False


def gloo_enabled():
    """True: ranks on CPUs talk without MPI. Cohort's own engine stands where Horovod has Gloo."""
    return True


def gloo_built():
    """True: ranks on CPUs talk without MPI. Cohort's own engine stands where Horovod has Gloo."""
    return True


def nccl_built():
    """The version of NCCL in this build: 0, there is none."""
    return 0


def ddl_built():
    """False."""
    return False


def ccl_built():
    """False."""
    return False


def cuda_built():
    """False: tensors on GPUs are refused."""
    return False


def rocm_built():
    """False: tensors on GPUs are refused."""
    return False


# ---- all-reduce


def _op(average, op):
    if average is None:
        return Average if op is None else op
    if op is not None:
        raise ValueError("The op parameter supersedes average. Please provide only one of them.")
    warnings.warn("Parameter `average` has been replaced with `op`: average=True is op=hvd.Average, average=False is op=hvd.Sum",
                  DeprecationWarning, stacklevel=3)
    return Average if average else Sum


def _compressed(compression, tensors):
    if compression is None:
        return tensors, None
    pairs = [compression.compress(tensor) for tensor in tensors]
    return [tensor for tensor, _ in pairs], [context for _, context in pairs]


def _decompressed(compression, contexts, tensors):
    if compression is None:
        return tensors
    return [compression.decompress(tensor, context) for tensor, context in zip(tensors, contexts)]


def _needs_grad(tensors):
    for tensor in tensors:
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"operations between ranks take tensors, not {type(tensor).__name__}")
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def _submit_allreduce(tensors, outputs, name, op, prescale, postscale, process_set):
    return _core.allreduce(tensors, outputs, name or "", op, prescale, postscale, _sets._id_of(process_set))


class _Allreduce(torch.autograd.Function):
    """The gradient of a reduction is the same reduction of the gradients."""

    @staticmethod
    def forward(ctx, name, op, prescale, postscale, process_set, *tensors):
        ctx.how = (op, prescale, postscale, process_set)
        return _group(_submit_allreduce(list(tensors), None, name, op, prescale, postscale, process_set))

    @staticmethod
    def backward(ctx, *grads):
        handle = _submit_allreduce([grad.contiguous() for grad in grads], None, None, *ctx.how)
        return (None, None, None, None, None, *_group(handle))


def _allreduced(tensors, name, op, prescale, postscale, process_set):
    if _needs_grad(tensors):
        return list(_Allreduce.apply(name, op, prescale, postscale, process_set, *tensors))
    return list(_group(_submit_allreduce(tensors, None, name, op, prescale, postscale, process_set)))


def allreduce(tensor, average=None, name=None, compression=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
              process_set=global_process_set):
    """The reduction of `tensor` over all ranks of the set, as a new tensor. Differentiable.

    compression: hvd.Compression.fp16 sends 16-bit numbers. prescale_factor multiplies before, postscale_factor after the reduction
    (integers in double, truncated).
    """
    op = _op(average, op)
    tensors, contexts = _compressed(compression, [tensor])
    return _decompressed(compression, contexts, _allreduced(tensors, name, op, prescale_factor, postscale_factor, process_set))[0]


def allreduce_async(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0, process_set=global_process_set):
    """Begins allreduce() and returns a handle."""
    return _single(_submit_allreduce([tensor], None, name, _op(average, op), prescale_factor, postscale_factor, process_set))


def allreduce_(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0, process_set=global_process_set):
    """Like allreduce, in place; returns the tensor."""
    handle = _submit_allreduce([tensor], [tensor], name, _op(average, op), prescale_factor, postscale_factor, process_set)
    return synchronize(_single(handle))


def allreduce_async_(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0, process_set=global_process_set):
    """Begins allreduce_() and returns a handle. The tensor must not be touched until it is synchronized."""
    return _single(_submit_allreduce([tensor], [tensor], name, _op(average, op), prescale_factor, postscale_factor, process_set))


def grouped_allreduce(tensors, average=None, name=None, compression=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
                      process_set=global_process_set):
    """allreduce of a list of tensors as one unit; returns a list."""
    op = _op(average, op)
    tensors, contexts = _compressed(compression, list(tensors))
    return _decompressed(compression, contexts, _allreduced(tensors, name, op, prescale_factor, postscale_factor, process_set))


def grouped_allreduce_async(tensors, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
                            process_set=global_process_set):
    """Begins grouped_allreduce() and returns one handle, which resolves to a tuple."""
    return _submit_allreduce(list(tensors), None, name, _op(average, op), prescale_factor, postscale_factor, process_set)


def grouped_allreduce_(tensors, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
                       process_set=global_process_set):
    """Like grouped_allreduce, in place; returns the tensors."""
    tensors = list(tensors)
    handle = _submit_allreduce(tensors, tensors, name, _op(average, op), prescale_factor, postscale_factor, process_set)
    return list(synchronize(handle))


def grouped_allreduce_async_(tensors, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
                             process_set=global_process_set):
    """Begins grouped_allreduce_() and returns one handle, which resolves to a tuple."""
    tensors = list(tensors)
    return _submit_allreduce(tensors, tensors, name, _op(average, op), prescale_factor, postscale_factor, process_set)


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
        all_values, all_indices = synchronize(values), synchronize(indices)
        if op == Average:
            all_values = all_values / process_set.size()
        return torch.sparse_coo_tensor(all_indices.transpose(0, 1), all_values, mine.size())

    return result


# ---- gather, broadcast, alltoall, reducescatter


def _submit_allgather(tensors, name, process_set):
    return _core.allgather(tensors, name or "", _sets._id_of(process_set))


class _Allgather(torch.autograd.Function):
    """Every rank's gradient, averaged; of it the rows that came from here."""

    @staticmethod
    def forward(ctx, name, process_set, *tensors):
        ctx.process_set = process_set
        outputs, rows = _gathered(_submit_allgather(list(tensors), name, process_set))
        ctx.rows = rows
        return tuple(outputs)

    @staticmethod
    def backward(ctx, *grads):
        handle = _submit_allreduce([grad.contiguous() for grad in grads], None, None, Average, 1.0, 1.0, ctx.process_set)
        me, mine = ctx.process_set.rank(), []
        for grad, rows in zip(_group(handle), ctx.rows):
            mine.append(grad.narrow(0, sum(rows[:me]), rows[me]))
        return (None, None, *mine)


def _allgathered(tensors, name, process_set):
    if _needs_grad(tensors):
        return list(_Allgather.apply(name, process_set, *tensors))
    return list(_group(_submit_allgather(tensors, name, process_set)))


def allgather(tensor, name=None, process_set=global_process_set):
    """The tensors of all ranks, joined along the first dimension, which may differ between ranks. Differentiable."""
    return _allgathered([tensor], name, process_set)[0]


def allgather_async(tensor, name=None, process_set=global_process_set):
    """Begins allgather() and returns a handle."""
    return _single(_submit_allgather([tensor], name, process_set))


def grouped_allgather(tensors, name=None, process_set=global_process_set):
    """allgather of a list of tensors as one unit; returns a list."""
    return _allgathered(list(tensors), name, process_set)


def grouped_allgather_async(tensors, name=None, process_set=global_process_set):
    """Begins grouped_allgather() and returns one handle, which resolves to a tuple."""
    return _submit_allgather(list(tensors), name, process_set)


def _submit_broadcast(tensor, output, root_rank, name, process_set):
    return _single(_core.broadcast(tensor, output, root_rank, name or "", _sets._id_of(process_set)))


class _Broadcast(torch.autograd.Function):
    """The gradients, averaged, belong to the root; the others' inputs had no part in the result."""

    @staticmethod
    def forward(ctx, tensor, root_rank, name, process_set):
        ctx.root_rank, ctx.process_set = root_rank, process_set
        return synchronize(_submit_broadcast(tensor, None, root_rank, name, process_set))

    @staticmethod
    def backward(ctx, grad):
        averaged = allreduce(grad.contiguous(), op=Average, process_set=ctx.process_set)
        return averaged if rank() == ctx.root_rank else averaged * 0, None, None, None


def broadcast(tensor, root_rank, name=None, process_set=global_process_set):
    """The tensor of `root_rank` (a rank of the job, also inside a process set), as a new tensor. Differentiable."""
    if _needs_grad([tensor]):
        return _Broadcast.apply(tensor, root_rank, name, process_set)
    return synchronize(_submit_broadcast(tensor, None, root_rank, name, process_set))


def broadcast_async(tensor, root_rank, name=None, process_set=global_process_set):
    """Begins broadcast() and returns a handle."""
    return _submit_broadcast(tensor, None, root_rank, name, process_set)


def broadcast_(tensor, root_rank, name=None, process_set=global_process_set):
    """Like broadcast, in place; returns the tensor."""
    return synchronize(_submit_broadcast(tensor, tensor, root_rank, name, process_set))


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
    _shapes[handle] = "pair"
    return handle


class _Alltoall(torch.autograd.Function):
    """The gradients go back the way the rows came."""

    @staticmethod
    def forward(ctx, tensor, splits, name, process_set):
        output, received = synchronize(_submit_alltoall(tensor, splits, name, process_set))
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
    if _needs_grad([tensor]):
        pair = _Alltoall.apply(tensor, splits, name, process_set)
    else:
        pair = synchronize(_submit_alltoall(tensor, splits, name, process_set))
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
        return _group(_submit_reducescatter(list(tensors), name, op, prescale, postscale, process_set))

    @staticmethod
    def backward(ctx, *grads):
        grads = [(grad * ctx.factor if ctx.factor != 1 else grad).contiguous() for grad in grads]
        return (None, None, None, None, None, *_group(_submit_allgather(grads, None, ctx.process_set)))


def _reducescattered(tensors, name, op, prescale, postscale, process_set):
    if _needs_grad(tensors):
        return list(_Reducescatter.apply(name, op, prescale, postscale, process_set, *tensors))
    return list(_group(_submit_reducescatter(tensors, name, op, prescale, postscale, process_set)))


def reducescatter(tensor, name=None, compression=None, op=Average, process_set=global_process_set, prescale_factor=1.0,
                  postscale_factor=1.0):
    """This rank's rows of the reduction: the first dimension is divided, the first ranks get one row more where it is uneven. Differentiable."""
    tensors, contexts = _compressed(compression, [tensor])
    return _decompressed(compression, contexts, _reducescattered(tensors, name, op, prescale_factor, postscale_factor, process_set))[0]


def reducescatter_async(tensor, name=None, op=Average, process_set=global_process_set, prescale_factor=1.0, postscale_factor=1.0):
    """Begins reducescatter() and returns a handle."""
    return _single(_submit_reducescatter([tensor], name, op, prescale_factor, postscale_factor, process_set))


def grouped_reducescatter(tensors, name=None, compression=None, op=Average, process_set=global_process_set, prescale_factor=1.0,
                          postscale_factor=1.0):
    """reducescatter of a list of tensors as one unit; returns a list."""
    tensors, contexts = _compressed(compression, list(tensors))
    return _decompressed(compression, contexts, _reducescattered(tensors, name, op, prescale_factor, postscale_factor, process_set))


def grouped_reducescatter_async(tensors, name=None, op=Average, process_set=global_process_set, prescale_factor=1.0, postscale_factor=1.0):
    """Begins grouped_reducescatter() and returns one handle, which resolves to a tuple."""
    return _submit_reducescatter(list(tensors), name, op, prescale_factor, postscale_factor, process_set)


# ---- waiting


_shapes = {}  # handle: how its outcome is given to the caller, where that is not a tuple of tensors


def _single(handle):
    _shapes[handle] = "single"
    return handle


def _gathered(handle):
    outputs, rows, _ = _core.wait(handle)
    return outputs, rows


def _group(handle):
    return tuple(_core.wait(handle)[0])


def poll(handle):
    """Whether synchronize(handle) would return at once."""
    return _core.poll(handle)


def synchronize(handle):
    """Waits for an operation and returns its result; None for a handle that stands for nothing (any more).

    HorovodInternalError: the operation failed; the message says why, and which rank it is about.
    """
    outcome = _core.wait(handle)  # may be interrupted, and asked again
    shape = _shapes.pop(handle, None)
    if outcome is None:
        return None
    tensors, rows, _ = outcome
    if shape == "single":
        return tensors[0]
    if shape == "pair":
        return tensors[0], torch.tensor(rows[0], dtype=torch.int32)
    return tuple(tensors)


def join(device=-1):
    """This rank has no more data: until all ranks have joined, it gives zeros to the allreduces (Sum, Average) of the others.

    Returns the rank that joined last. Averages stay averages over all ranks. `device` is accepted for compatibility.
    """
    return _core.wait(_core.join())[2]


def barrier(process_set=global_process_set):
    """Returns when every rank of the set has come here, whatever other operations are under way."""
    _core.wait(_core.barrier(_sets._id_of(process_set)))


def start_timeline(file_path, mark_cycles=False):
    """Rank 0 writes what happens to every operation to this file from now on, as a Chrome trace (chrome://tracing, ui.perfetto.dev).

    A file that was being written is ended first."""
    _core.start_timeline(str(file_path), bool(mark_cycles))


def stop_timeline():
    """Ends the file of start_timeline()."""
    _core.stop_timeline()
