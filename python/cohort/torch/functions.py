"""State that all ranks should hold alike: parameters, an optimizer's state, any Python object, brought from one rank to all."""
import ctypes
from collections.abc import Iterable, Mapping
from typing import Any, Optional

import torch

from cohort import pickling
from cohort.codecs import steps_alone
from cohort.torch.mpi_ops import allgather, broadcast_, broadcast_async_, rank, synchronize
from cohort.torch.process_sets import ProcessSet, global_process_set


def _named(params):
    """(name, tensor) of whatever users hand over; ranks match tensors by name."""
    if isinstance(params, Mapping):
        return sorted(params.items())
    if isinstance(params, torch.Tensor) or not isinstance(params, Iterable):
        raise ValueError(f"broadcast_parameters takes a state_dict, or a list of tensors or of (name, tensor), not {type(params).__name__}")
    return [(p[0] or str(i), p[1]) if isinstance(p, tuple) else (str(i), p) for i, p in enumerate(params)]


def _broadcast_all(named, root_rank, prefix, process_set=global_process_set):
    """All at once, so that they may be fused; tensors that are not contiguous go through a copy."""
    pending = []
    for name, tensor in named:
        flat = tensor.detach()
        carried = flat if flat.is_contiguous() else flat.contiguous()
        pending.append((flat, carried, broadcast_async_(carried, root_rank, name=f"{prefix}.{name}", process_set=process_set)))
    for flat, carried, handle in pending:
        synchronize(handle)
        if carried is not flat:
            flat.copy_(carried)


def broadcast_parameters(params: Mapping | Iterable, root_rank: int) -> None:
    """Gives every rank the values that `root_rank` has, in place.

    params: `model.state_dict()`, `model.named_parameters()`, or a list of tensors or of (name, tensor), alike on all ranks.
    """
    named = [(name, p) for name, p in _named(params) if p is not None]
    for name, p in named:
        if not isinstance(p, torch.Tensor):
            raise ValueError(f"broadcast_parameters: '{name}' is no tensor but {type(p).__name__}; broadcast_object() sends such values")
    _broadcast_all(named, root_rank, "broadcast_parameters")


def _as_bytes(obj):
    """The pickled object as a tensor, or the error instead: peers wait for a length, so -1 is sent before it is raised."""
    try:
        return torch.frombuffer(bytearray(pickling.dumps(obj)), dtype=torch.uint8), None
    except TypeError as error:
        return torch.empty(0, dtype=torch.uint8), error


def _as_object(data):
    return pickling.loads(ctypes.string_at(data.data_ptr(), data.numel()))


def _told(error, lengths, what):
    """Raises when a rank had nothing to send (its length is -1): there with the reason, elsewhere with that rank."""
    if error is not None:
        raise error
    silent = [str(i) for i, n in enumerate(lengths) if n < 0]
    if silent:
        whose = "the root" if len(lengths) == 1 else f"rank {', '.join(silent)}"
        raise TypeError(f"{what}: the object of {whose} could not be pickled; the error there has the reason")


def broadcast_object(obj: Any = None, root_rank: int = 0, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> Any:
    """Returns `root_rank`'s object on every rank. Other ranks may pass None. It is pickled (by cloudpickle where installed)."""
    name = name or "broadcast_object"
    mine = rank() == root_rank
    data, error = _as_bytes(obj) if mine else (None, None)
    length = torch.tensor([0 if not mine else -1 if error else data.numel()])
    broadcast_(length, root_rank, name=f"{name}.length", process_set=process_set)
    _told(error, length.tolist(), name)
    if not mine:
        data = torch.empty(int(length), dtype=torch.uint8)
    broadcast_(data, root_rank, name=f"{name}.bytes", process_set=process_set)
    return obj if mine else _as_object(data)


def allgather_object(obj: Any, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> list:
    """Returns the list of all ranks' objects, by rank. They are pickled (by cloudpickle where installed)."""
    name = name or "allgather_object"
    data, error = _as_bytes(obj)
    lengths = allgather(torch.tensor([-1 if error else data.numel()]), name=f"{name}.lengths", process_set=process_set).tolist()
    _told(error, lengths, name)
    everything = allgather(data, name=f"{name}.bytes", process_set=process_set)
    return [_as_object(part) for part in torch.split(everything, lengths)]


class _Slot:
    """Stands for a tensor in the pickled skeleton of a state; the tensor itself is sent separately."""

    def __init__(self, tensor):
        self.shape, self.dtype, self.device = tensor.shape, tensor.dtype, tensor.device.type

    def empty(self):
        return torch.empty(self.shape, dtype=self.dtype, device=self.device)


def _mapped(value, leaf):
    """The same nest of dicts, lists and tuples with leaf(x) for what is none of them; dicts keep their order."""
    if isinstance(value, dict):
        return {k: _mapped(v, leaf) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped(v, leaf) for v in value) if not hasattr(value, "_fields") else leaf(value)
    return leaf(value)


def _zero_missing_gradients(optimizer, model):
    parameters = model.parameters() if model is not None else (p for g in optimizer.param_groups for p in g["params"])
    for p in parameters:
        if p.requires_grad and p.grad is None:
            p.grad = torch.zeros_like(p)


def _common_state(optimizer):
    """The state without what only this rank has: what a codec did not send of its gradients."""
    state = optimizer.state_dict()
    return {**state, "compression": steps_alone(state["compression"])} if "compression" in state else state


def broadcast_optimizer_state(optimizer: torch.optim.Optimizer, root_rank: int, model: Optional[torch.nn.Module] = None) -> None:
    """Gives every rank the optimizer state and options that `root_rank` has: tensors are broadcast, everything else is pickled.

    Other ranks take the state as the root has it, whatever they had before; a root that has made no step gives an empty state. An optimizer
    without state has its missing gradients (those of `model`, where given) set to zero, so that all ranks start alike.
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("the state of torch.optim.LBFGS cannot be broadcast: it is a history of closures' results, not a state per parameter")
    if not optimizer.state and not isinstance(optimizer, torch.optim.SparseAdam):
        _zero_missing_gradients(optimizer, model)

    mine = rank() == root_rank
    tensors = []  # in the order the walk over the state visits them, alike on all ranks

    def take(value):
        if not isinstance(value, torch.Tensor):
            return value
        tensors.append(value)
        return _Slot(value)

    def give(value):
        if not isinstance(value, _Slot):
            return value
        tensors.append(value.empty())
        return tensors[-1]

    skeleton = broadcast_object(_mapped(_common_state(optimizer), take) if mine else None, root_rank, name="broadcast_optimizer_state")
    state = None if mine else _mapped(skeleton, give)
    _broadcast_all([(str(i), t) for i, t in enumerate(tensors)], root_rank, "broadcast_optimizer_state")
    if not mine:
        optimizer.load_state_dict(state)
