"""Codecs (docs/codecs.md) as communication hooks of torch's DistributedDataParallel, on backend "cohort".

    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.register_comm_hook(cohort.hooks.State(model, optimizer), cohort.hooks.topk(ratio=0.01))

`cohort.hooks.<name>` is the codec of that name, a hook; called with parameters it is the codec with them. `cohort.hooks.codec("...")` takes any
spec. What a codec does not send is kept in the State by parameter, so that DDP may put its buckets together anew, and is sent later.
"""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from cohort import _core, codecs


class State:
    """What a hook keeps between steps, and what it must know: one for each model.

    model: the DistributedDataParallel, or its module.
    optimizer: a step counts as made when its step() runs, so one that a GradScaler leaves out costs nothing; what is kept follows its learning
        rate. Without it a step counts as made when all of its gradients came out finite, and the rate is taken as constant.
    process_group: the ranks, where `model` does not say.
    seed: of codecs that draw random numbers; the same on all ranks.
    """

    def __init__(self, model, optimizer=None, process_group=None, seed=0):
        wrapped = isinstance(model, DistributedDataParallel)
        self._group = process_group or (model.process_group if wrapped else dist.group.WORLD)
        self._names = {p: name for name, p in (model.module if wrapped else model).named_parameters()}
        self._optimizer = optimizer
        self._groups = {p: i for i, group in enumerate(optimizer.param_groups) for p in group["params"]} if optimizer else {}
        self._by_values = optimizer is None
        self._seed = seed
        self._gradients = None
        self._kept = None  # of load_state_dict(), until a hook says which codec
        self.loss_scale = 1.0
        if optimizer is not None:
            optimizer.register_step_post_hook(lambda *_: self._gradients and self._gradients.settle(True))

    def set_loss_scale(self, scale):
        """What the loss is multiplied by from the next backward on: `scaler.get_scale()`."""
        if not scale > 0:
            raise ValueError(f"a loss scale is above 0, not {scale!r}")
        self.loss_scale = float(scale)

    def state_dict(self):
        """What this rank has not sent yet. Each rank saves its own."""
        return self._gradients.state_dict(dist.get_rank(self._group)) if self._gradients else dict(self._kept or {})

    def load_state_dict(self, state):
        """Takes back what this rank had kept; of another rank's state nothing but the number of steps."""
        self._kept = dict(state)
        if self._gradients and state:
            self._gradients.load_state_dict(state, dist.get_rank(self._group))

    def _codec(self, spec):
        if self._gradients is None:
            self._gradients = codecs.CodedGradients(spec, self._seed, self._by_values)
            if self._optimizer is not None:
                codecs.check_momentum(self._gradients.core, self._optimizer)
            if self._kept:
                self._gradients.load_state_dict(self._kept, dist.get_rank(self._group))
        if self._gradients.spec != spec:
            raise ValueError(f"this State keeps what codec {self._gradients.spec} did not send; make another one for {spec}")
        return self._gradients.core

    def _weight(self, parameters):
        """By the learning rate of the bucket: the largest of its parameters'. Schedules change those in proportion, and only that counts."""
        groups = [self._optimizer.param_groups[self._groups[p]] for p in parameters if p in self._groups]
        return max((float(group.get("lr", 1.0)) for group in groups), default=1.0) / self.loss_scale

    def _reduce(self, spec, bucket):
        parameters, gradients = bucket.parameters(), bucket.buffer()
        core = self._codec(spec)
        if gradients.is_sparse:
            raise ValueError(f"the gradient of {self._names[parameters[0]]} is sparse, and codec {spec} is for dense ones")
        if dist.get_world_size(self._group) == 1 and not core.momentum:
            done = torch.futures.Future()
            done.set_result(gradients)
            return done
        work = _core._reduce_bucket(self._group, core, [self._names[p] for p in parameters], [list(p.shape) for p in parameters], gradients,
                                    self._weight(parameters), 1 / self.loss_scale)
        return work.get_future().then(lambda future: future.value()[0])


class CodecHook:
    """A codec as a hook: `register_comm_hook(State(model), hook)`. Called without a bucket it gives the codec with other parameters."""

    def __init__(self, spec):
        self.spec = _core._codec_spec(spec)
        self.__name__ = self.__qualname__ = f"cohort.hooks.{self.spec}"

    def __call__(self, state=None, bucket=None, **parameters):
        if bucket is None:
            return CodecHook(codecs.spec_of(self.spec.partition("(")[0], () if state is None else (state,), parameters))
        if not isinstance(state, State):
            raise ValueError(f"the state of hook {self.__name__} is a {type(state).__name__}: what the codec does not send is kept in a "
                             "cohort.hooks.State(model, optimizer)")
        return state._reduce(self.spec, bucket)


def codec(spec: str) -> CodecHook:
    """Any codec by its spec: `codec("topk(ratio=0.01)")`."""
    return CodecHook(spec)


def __getattr__(name):
    if name in _core._codecs():
        return CodecHook(name)
    raise AttributeError(f"there is no cohort.hooks.{name}; there are codec(\"...\") and {', '.join(_core._codecs())}")
