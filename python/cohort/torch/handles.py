"""Handles of operations in flight, and their results."""
import torch

from cohort import _core

_shapes = {}  # handle: "single" or "pair" where its result is not a tuple of tensors


def single(handle):
    _shapes[handle] = "single"
    return handle


def pair(handle):
    _shapes[handle] = "pair"
    return handle


def forget_all():
    """After shutdown(): no handle is valid."""
    _shapes.clear()


def gathered(handle):
    outputs, rows, _ = _core.wait(handle)
    return outputs, rows


def group(handle):
    return tuple(_core.wait(handle)[0])


def poll(handle):
    """Whether synchronize(handle) would return at once."""
    return _core.poll(handle)


def synchronize(handle):
    """Waits for an operation and returns its result; None for an unknown handle, or one that was synchronized already.

    HorovodInternalError: the operation failed; the message has the cause and the rank concerned.
    """
    outcome = _core.wait(handle)  # may be interrupted, and called again
    shape = _shapes.pop(handle, None)
    if outcome is None:
        return None
    tensors, rows, _ = outcome
    if shape == "single":
        return tensors[0]
    if shape == "pair":
        return tensors[0], torch.tensor(rows[0], dtype=torch.int32)
    return tuple(tensors)
