"""DistributedOptimizer: the user's optimizer, whose gradients are reduced over the ranks before each step.

    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(...), named_parameters=model.named_parameters())

The result is of the user's own class (a subclass made on the spot), shares its parameter groups and state, and reduces each gradient as
soon as backward has finished it, while backward goes on. `step()` waits for the rest.
"""
import contextlib
import os
import warnings
import weakref
from collections.abc import Iterable
from typing import Optional

import torch

from cohort.torch.adasum_optimizer import AdasumOptimizer, check_passes, tell_scheduler
from cohort.torch.compression import CodecCompressor, Compression, Compressor
from cohort.torch.gradients import GradientReducer
from cohort.torch.mpi_ops import Adasum, Average, Max, Min, Product, Sum, size
from cohort.torch.process_sets import ProcessSet, global_process_set


_OPS = {Adasum: "Adasum", Min: "Min", Max: "Max", Product: "Product"}
_CODED_GROUP_BYTES = 4 << 20  # gradients that go by a codec as one, where the user names no groups: payloads are not fused


def _may_grow():
    """In an elastic job one rank may be several later."""
    return os.environ.get("HOROVOD_ELASTIC") == "1"


class _ReducingOptimizer:
    """What is mixed into the user's class: `_reducer` reduces gradients, the user's own step() uses them."""

    def _attach(self, names, parameters, options):
        self._parameter_names = names
        self._reducer = GradientReducer(names, parameters, rate_of=_rates(self), **options)
        self._reducer.check(self)
        self._synchronized = False
        self._should_synchronize = True
        if options["process_set"].included() and (size() > 1 or _may_grow() or self._reducer.keeps_momentum):
            self._reducer.listen()

    @property
    def backward_passes_per_step(self):
        """How many backward passes add up before gradients are reduced."""
        return self._reducer.passes

    def set_backward_passes_per_step(self, passes):
        """Changes how many backward passes make a step, from the next step on."""
        check_passes(passes)
        self._reducer.set_passes(passes)

    def synchronize(self):
        """Waits until every gradient is the reduced one: for clipping and the like. Follow it by step() inside skip_synchronize()."""
        self._reducer.finish()
        self._synchronized = True

    @contextlib.contextmanager
    def skip_synchronize(self):
        """A step() inside uses gradients as they are: synchronize() has been called before."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def step(self, closure=None):
        """Waits for the gradients, then makes the step of the user's optimizer. A closure's gradients are waited for too."""
        tell_scheduler(self)
        if closure is not None and self._should_synchronize:
            def agreed():
                loss = closure()
                self.synchronize()
                return loss
            result = super().step(agreed)
            self._reducer.settle()
            self._synchronized = False
            return result
        if self._should_synchronize:
            if self._synchronized:
                warnings.warn("optimizer.step() called without optimizer.skip_synchronize() context after optimizer.synchronize(): the "
                              "gradients are reduced a second time. Write `with optimizer.skip_synchronize(): optimizer.step()`", stacklevel=2)
            self.synchronize()
        self._synchronized = False
        result = super().step() if closure is None else super().step(closure)
        self._reducer.settle()
        return result

    step.hooked = True  # torch would wrap it once more and run step hooks twice; the user's own step() runs them

    def zero_grad(self, set_to_none=True):
        """Clears the gradients; `set_to_none=False` writes zeros instead of dropping them."""
        if self._reducer.busy():
            raise AssertionError("optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or "
                                 "optimizer.synchronize(): gradients are being reduced and would be lost")
        super().zero_grad(set_to_none=set_to_none)

    def set_loss_scale(self, scale):
        """What the loss is multiplied by from the next backward on (`scaler.get_scale()`): a codec keeps gradients in the measure of that."""
        if not scale > 0:
            raise ValueError(f"a loss scale is above 0, not {scale!r}")
        self._reducer.loss_scale = float(scale)

    def state_dict(self):
        """As the user's class has it; with a codec also "compression": what this rank has not sent yet. Each rank has its own."""
        state, kept = super().state_dict(), self._reducer.state_dict()
        return {**state, "compression": kept} if kept else state

    def load_state_dict(self, state_dict):
        """As the user's class has it; what was in flight is dropped. A codec takes back what this rank had not sent, not another rank's."""
        self._reducer.forget()
        if "compression" in state_dict:
            self._reducer.load_state_dict(state_dict["compression"])
        self._synchronized = False
        self._should_synchronize = True
        super().load_state_dict(state_dict)


def _named_parameters(optimizer, named_parameters):
    """{parameter: name} for everything the optimizer has."""
    owned = [p for group in optimizer.param_groups for p in group["params"]]
    if named_parameters is None:
        return {p: f"allreduce.noname.{g}.{i}" for g, group in enumerate(optimizer.param_groups) for i, p in enumerate(group["params"])}
    named = list(named_parameters)
    if any(not isinstance(pair, tuple) or len(pair) != 2 or not isinstance(pair[1], torch.Tensor) for pair in named):
        raise ValueError("named_parameters should be a sequence of tuples (name, parameter), usually produced by model.named_parameters()")
    names = [name for name, _ in named]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"names in named_parameters must be unique, found twice: {', '.join(map(str, twice))}")
    by_parameter = {p: name for name, p in named}
    unnamed = [p for p in owned if p not in by_parameter]
    if unnamed:
        shapes = ", ".join(str(tuple(p.shape)) for p in unnamed)
        raise ValueError(f"named_parameters was specified, but {len(unnamed)} of the optimizer's parameters were not named (shapes {shapes}); "
                         "pass the names of all of them, or none")
    return by_parameter


def _rates(optimizer):
    """parameter -> (its group, the learning rate there now); 1 where a group has none."""
    me = weakref.ref(optimizer)
    group_of = {p: i for i, group in enumerate(optimizer.param_groups) for p in group["params"]}
    return lambda p: (group_of[p], float(me().param_groups[group_of[p]].get("lr", 1.0)))


def _coded_groups(optimizer, parameters):
    """Parameters that go by a codec as one: neighbours of a parameter group, from the last, whose gradient comes first."""
    group_of = {p: i for i, group in enumerate(optimizer.param_groups) for p in group["params"]}
    groups, size = [], 0
    for p in reversed(parameters):
        size += p.numel() * p.element_size()
        if not groups or size > _CODED_GROUP_BYTES or group_of[groups[-1][0]] != group_of[p]:
            groups.append([])
            size = p.numel() * p.element_size()
        groups[-1].append(p)
    return groups


def _check_codec(compression, op, predivide, names, parameters):
    if op not in (Average, Sum):
        raise ValueError(f"codec {compression.spec} is for op=Average and op=Sum: it sends gradients, from which no {_OPS.get(op, op)} follows")
    if predivide != 1.0:
        raise ValueError(f"gradient_predivide_factor is not for codec {compression.spec}, which rounds relative to the values: leave it at 1")
    for p in parameters:
        if p.dtype != torch.float32 or p.device.type != "cpu":
            raise ValueError(f"codec {compression.spec} is for float32 gradients on the CPU, and {names[p]} is {p.dtype} on {p.device}; "
                             "take Compression.none, .fp16 or .bf16")


def _groups_of(groups, num_groups, parameters):
    """Lists of parameters that are reduced as one unit each; parameters in none of them go alone."""
    if groups is not None and not isinstance(groups, (list, tuple)):
        if isinstance(groups, bool) or not isinstance(groups, int):
            raise ValueError("groups should be a list of lists of parameters (or a number of groups, for which num_groups is the better word)")
        warnings.warn("groups=<number> is an old spelling; use num_groups", DeprecationWarning, stacklevel=3)
        groups, num_groups = None, groups
    if isinstance(num_groups, bool) or not isinstance(num_groups, int) or num_groups < 0:
        raise ValueError(f"num_groups should be a whole number, 0 or more, not {num_groups!r}")
    if groups is None:
        count = min(num_groups, len(parameters))
        cuts = [len(parameters) * i // count for i in range(count + 1)] if count else []
        return [parameters[a:b] for a, b in zip(cuts, cuts[1:])]
    seen, known = set(), set(parameters)
    for group in groups:
        if not isinstance(group, (list, tuple)) or any(not isinstance(p, torch.Tensor) for p in group):
            raise ValueError("groups should be a list of lists of parameters")
        for p in group:
            if p in seen:
                raise ValueError(f"a parameter of shape {tuple(p.shape)} appears more than once in groups")
            seen.add(p)
    return [kept for group in groups if (kept := [p for p in group if p in known])]  # frozen parameters have no gradient to reduce


def DistributedOptimizer(optimizer: torch.optim.Optimizer, named_parameters: Optional[Iterable] = None,
                         compression: type[Compressor] = Compression.none, backward_passes_per_step: int = 1, op: int = Average,
                         gradient_predivide_factor: float = 1.0, num_groups: int = 0, groups: Optional[list] = None,
                         sparse_as_dense: bool = False, process_set: ProcessSet = global_process_set) -> torch.optim.Optimizer:
    """Wraps an optimizer so that each step uses gradients reduced over all ranks.

    named_parameters: `model.named_parameters()`; without it names come from the place in the parameter groups.
    compression: `Compression.none`, `.fp16`, `.bf16`, a codec (`.int8`, `.topk(ratio=0.01)`, `.codec("...")`), or a Compressor of your own.
    backward_passes_per_step: so many backward passes add up locally before gradients are reduced.
    op: Average, Sum, or Adasum, which combines what the ranks' own steps would change.
    gradient_predivide_factor: with Average, divide by it before summing and by size/factor afterwards.
    num_groups, groups: reduce parameters in so many groups, or in the groups listed, each as one unit.
    sparse_as_dense: turn sparse gradients into dense ones before they are reduced.
    process_set: the ranks that agree with each other.
    """
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor not supported with op != Average: there is no division by the number of ranks to split")
    if gradient_predivide_factor <= 0:
        raise ValueError(f"gradient_predivide_factor must be above 0, not {gradient_predivide_factor}")
    check_passes(backward_passes_per_step)
    names = _named_parameters(optimizer, named_parameters)
    parameters = list(dict.fromkeys(p for group in optimizer.param_groups for p in group["params"] if p.requires_grad))
    units = _groups_of(groups, num_groups, parameters)
    if isinstance(compression, CodecCompressor):
        _check_codec(compression, op, gradient_predivide_factor, names, parameters)
        units = units if groups or num_groups else _coded_groups(optimizer, parameters)
    options = dict(compression=compression, passes=backward_passes_per_step, op=op, predivide=gradient_predivide_factor, groups=units,
                   sparse_as_dense=sparse_as_dense, process_set=process_set)
    mixin = AdasumOptimizer if op == Adasum and (size() > 1 or _may_grow()) else _ReducingOptimizer
    base = type(optimizer)
    wrapped = object.__new__(type(base.__name__, (mixin, base), {"__doc__": base.__doc__, "__module__": base.__module__}))
    wrapped.__dict__.update(optimizer.__dict__)  # the same groups, state and hooks
    if wrapped.__dict__.pop("step", None) is not None:  # a scheduler's own wrapper, bound to the optimizer that was given
        wrapped._given = optimizer
    wrapped._attach(names, parameters, options)
    return wrapped
