"""TorchState: a model, an optimizer, a sampler and any Python objects, kept in memory and shared together.

What an attribute is decides its handler: modules and optimizers are saved by their state_dict and broadcast tensor by tensor, samplers by
their count of samples. `set_handler_registry()` adds kinds of your own.
"""
import copy

import torch

from cohort.elastic import ObjectState
from cohort.exceptions import HorovodInternalError
from cohort.torch.elastic.sampler import ElasticSampler
from cohort.torch.functions import broadcast_object, broadcast_optimizer_state, broadcast_parameters
from cohort.torch.mpi_ops import rank


class StateHandler:
    """Saves, restores and shares one value. To add a kind: a subclass, and a row in the registry."""

    def __init__(self, value):
        self.value = value

    def save(self):
        """Keeps the value as it is now."""
        raise NotImplementedError

    def restore(self):
        """Goes back to what was kept."""
        raise NotImplementedError

    def sync(self):
        """Receives rank 0's value, and keeps it."""
        raise NotImplementedError

    def set_value(self, value):
        """The user has put another object in its place."""
        self.value = value
        self.save()


class _StateDictHandler(StateHandler):
    def __init__(self, value):
        super().__init__(value)
        self.save()

    def save(self):
        self._kept = copy.deepcopy(self.value.state_dict())

    def restore(self):
        self.value.load_state_dict(copy.deepcopy(self._kept))


class ModelStateHandler(_StateDictHandler):
    """Parameters and buffers."""

    def sync(self):
        broadcast_parameters(self.value.state_dict(), root_rank=0)
        self.save()


class OptimizerStateHandler(_StateDictHandler):
    """State and options."""

    def sync(self):
        broadcast_optimizer_state(self.value, root_rank=0)
        self.save()


class SamplerStateHandler(_StateDictHandler):
    """How many samples of the epoch have been seen by all ranks together."""

    def sync(self):
        self.value.load_state_dict(broadcast_object(self.value.state_dict(), name="elastic_sampler"))
        self.save()


_registry = [(ElasticSampler, SamplerStateHandler), (torch.nn.Module, ModelStateHandler), (torch.optim.Optimizer, OptimizerStateHandler)]


def get_handler_registry():
    """Rows (type, handler class); the first row whose type fits a value counts."""
    return _registry


def set_handler_registry(registry):
    """Replaces the rows: `set_handler_registry([(EMA, EMAHandler)] + get_handler_registry())`."""
    global _registry
    _registry = registry


def _handler_for(value):
    return next((handler(value) for kind, handler in _registry if isinstance(value, kind)), None)


class TorchState(ObjectState):
    """`TorchState(model=model, optimizer=optimizer, sampler=sampler, epoch=0, batch=0)`: all of them are attributes."""

    def __init__(self, model=None, optimizer=None, **kwargs):
        values = dict(model=model, optimizer=optimizer, **kwargs)
        handlers = {name: handler for name, value in values.items() if (handler := _handler_for(value)) is not None}
        object.__setattr__(self, "_handlers", handlers)
        for name in ("model", "optimizer"):
            if name not in handlers:
                values.pop(name)
                object.__setattr__(self, name, None)
        super().__init__(bcast_object=broadcast_object, get_rank=rank, **{n: v for n, v in values.items() if n not in handlers})

    def __getattr__(self, name):
        handlers = self.__dict__.get("_handlers", {})
        if name in handlers:
            return handlers[name].value
        raise AttributeError(f"this state has no '{name}'; name it when making the state: {type(self).__name__}({name}=...)")

    def __setattr__(self, name, value):
        if name in self._handlers:
            self._handlers[name].set_value(value)
        else:
            super().__setattr__(name, value)

    def save(self):
        for handler in self._handlers.values():
            handler.save()
        super().save()

    def restore(self):
        for handler in self._handlers.values():
            handler.restore()
        super().restore()

    def sync(self):
        """Half a sync would leave values of two different moments behind: after a failure all that was saved before counts."""
        before = [(handler, dict(vars(handler))) for handler in self._handlers.values()]
        try:
            for handler in self._handlers.values():
                handler.sync()
            super().sync()
        except HorovodInternalError:
            for handler, kept in before:
                vars(handler).update(kept)
            raise

    def reset(self):
        """Samplers divide what is left of the epoch among the ranks there are now."""
        for handler in self._handlers.values():
            if isinstance(handler.value, ElasticSampler):
                handler.value.reset()
