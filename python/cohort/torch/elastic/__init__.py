"""Elastic training with PyTorch: `run`, `TorchState`, `ElasticSampler`. See cohort.elastic for what is recovered from, and how."""
from cohort.elastic import HostUpdateResult, ObjectState as _ObjectState, State, run_fn
from cohort.torch.elastic.sampler import ElasticSampler
from cohort.torch.elastic.state import TorchState
from cohort.torch.functions import broadcast_object
from cohort.torch import process_sets as _sets
from cohort.torch.mpi_ops import init, rank, shutdown

__all__ = ["ElasticSampler", "HostUpdateResult", "ObjectState", "State", "TorchState", "run", "reset"]


class ObjectState(_ObjectState):
    """`ObjectState(epoch=0, batch=0)`: Python objects that survive, shared through this job's ranks."""

    def __init__(self, **kwargs):
        super().__init__(bcast_object=broadcast_object, get_rank=rank, **kwargs)


def reset():
    """The ranks disconnect and connect again, with the process sets they had."""
    kept, dynamic = _sets._kept(), _sets._dynamic
    shutdown()
    init(process_sets="dynamic" if dynamic else kept)
    if dynamic:
        _sets._add_again(kept)


def run(func):
    """Decorates `func(state, ...)`: it is run again from the last commit after a failure, and goes on after a change of hosts."""
    return run_fn(func, reset)
