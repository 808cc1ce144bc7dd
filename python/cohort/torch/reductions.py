"""hvd.allreduce and its variants."""
import warnings

import torch

from cohort import _core
from cohort.torch import handles as _handles
from cohort.torch import process_sets as _sets
from cohort.torch.process_sets import global_process_set

Average = 0
Sum = 1
Adasum = 2
Min = 3
Max = 4
Product = 5


def _op(average, op):
    if average is None:
        return Average if op is None else op
    if op is not None:
        raise ValueError("The op parameter supersedes average. Please provide only one of them.")
    warnings.warn("Parameter `average` has been replaced with `op`: average=True is op=hvd.Average, average=False is op=hvd.Sum",
                  DeprecationWarning, stacklevel=3)
    return Average if average else Sum


def compressed(compression, tensors):
    if compression is None:
        return tensors, None
    pairs = [compression.compress(tensor) for tensor in tensors]
    return [tensor for tensor, _ in pairs], [context for _, context in pairs]


def decompressed(compression, contexts, tensors):
    if compression is None:
        return tensors
    return [compression.decompress(tensor, context) for tensor, context in zip(tensors, contexts)]


def needs_grad(tensors):
    for tensor in tensors:
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"operations between ranks take tensors, not {type(tensor).__name__}")
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def submit_allreduce(tensors, outputs, name, op, prescale, postscale, process_set):
    return _core.allreduce(tensors, outputs, name or "", op, prescale, postscale, _sets._id_of(process_set))


class _Allreduce(torch.autograd.Function):
    """The gradient of a reduction is the same reduction of the gradients."""

    @staticmethod
    def forward(ctx, name, op, prescale, postscale, process_set, *tensors):
        ctx.how = (op, prescale, postscale, process_set)
        return _handles.group(submit_allreduce(list(tensors), None, name, op, prescale, postscale, process_set))

    @staticmethod
    def backward(ctx, *grads):
        handle = submit_allreduce([grad.contiguous() for grad in grads], None, None, *ctx.how)
        return (None, None, None, None, None, *_handles.group(handle))


def _allreduced(tensors, name, op, prescale, postscale, process_set):
    if needs_grad(tensors):
        return list(_Allreduce.apply(name, op, prescale, postscale, process_set, *tensors))
    return list(_handles.group(submit_allreduce(tensors, None, name, op, prescale, postscale, process_set)))


def allreduce(tensor, average=None, name=None, compression=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
              process_set=global_process_set):
    """The reduction of `tensor` over all ranks of the set, as a new tensor. Differentiable.

    compression: hvd.Compression.fp16 sends 16-bit numbers. prescale_factor multiplies before, postscale_factor after the reduction, each
    product rounded to the tensor's type: float32 by the factor in float32, 16-bit ones in float32, integers in double, truncated.
    """
    op = _op(average, op)
    tensors, contexts = compressed(compression, [tensor])
    return decompressed(compression, contexts, _allreduced(tensors, name, op, prescale_factor, postscale_factor, process_set))[0]


def allreduce_async(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0, process_set=global_process_set):
    """Begins allreduce() and returns a handle."""
    return _handles.single(submit_allreduce([tensor], None, name, _op(average, op), prescale_factor, postscale_factor, process_set))


def allreduce_(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0, process_set=global_process_set):
    """Like allreduce, in place; returns the tensor."""
    handle = submit_allreduce([tensor], [tensor], name, _op(average, op), prescale_factor, postscale_factor, process_set)
    return _handles.alone(handle)


def allreduce_async_(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0, process_set=global_process_set):
    """Begins allreduce_() and returns a handle. The tensor must not be touched until it is synchronized."""
    return _handles.single(submit_allreduce([tensor], [tensor], name, _op(average, op), prescale_factor, postscale_factor, process_set))


def grouped_allreduce(tensors, average=None, name=None, compression=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
                      process_set=global_process_set):
    """allreduce of a list of tensors as one unit; returns a list."""
    op = _op(average, op)
    tensors, contexts = compressed(compression, list(tensors))
    return decompressed(compression, contexts, _allreduced(tensors, name, op, prescale_factor, postscale_factor, process_set))


def grouped_allreduce_async(tensors, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
                            process_set=global_process_set):
    """Begins grouped_allreduce() and returns one handle, which resolves to a tuple."""
    return submit_allreduce(list(tensors), None, name, _op(average, op), prescale_factor, postscale_factor, process_set)


def grouped_allreduce_(tensors, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
                       process_set=global_process_set):
    """Like grouped_allreduce, in place; returns the tensors."""
    tensors = list(tensors)
    handle = submit_allreduce(tensors, tensors, name, _op(average, op), prescale_factor, postscale_factor, process_set)
    return list(_handles.group(handle))


def grouped_allreduce_async_(tensors, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
                             process_set=global_process_set):
    """Begins grouped_allreduce_() and returns one handle, which resolves to a tuple."""
    tensors = list(tensors)
    return submit_allreduce(tensors, tensors, name, _op(average, op), prescale_factor, postscale_factor, process_set)
