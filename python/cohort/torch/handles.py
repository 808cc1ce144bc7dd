"""Handles of operations in flight, and their results."""
import torch

from cohort import _core
from cohort.exceptions import HorovodInternalError

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


def _need(found):
    if found is None:
        raise HorovodInternalError("hvd.shutdown() was called on this rank, by another thread, while this operation was under way; "
                                   "let all threads end their operations first")
    return found


def outcome(handle):
    """The (tensors, rows, last_joined) of an operation that this thread began and nobody else waits for."""
    return _need(_core.wait(handle))


def finish(handle):
    """synchronize() for such an operation."""
    return _need(synchronize(handle))


def gathered(handle):
    outputs, rows, _ = outcome(handle)
    return outputs, rows


def group(handle):
    return tuple(outcome(handle)[0])


def alone(handle):
    return outcome(handle)[0][0]


def poll(handle):
    """Whether synchronize(handle) would return at once."""
    return _core.poll(handle)


def synchronize(handle):
    """Waits for an operation and returns its result; None for an unknown handle, or one that was synchronized already.

    HorovodInternalError: the operation failed, or hvd.shutdown() was called meanwhile; the message has the cause and the rank concerned.
    """
    found = _core.wait(handle)  # may be interrupted, and called again
    shape = _shapes.pop(handle, None)
    if found is None:
        return None
    tensors, rows, _ = found
    if shape == "single":
        return tensors[0]
    if shape == "pair":
        return tensors[0], torch.tensor(rows[0], dtype=torch.int32)
    return tuple(tensors)
