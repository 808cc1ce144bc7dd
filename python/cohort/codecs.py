"""Codecs by name (docs/codecs.md), and gradients sent by them: what `hvd.Compression` and `cohort.hooks` have in common."""
import torch

from cohort import _core


def text(value):
    """A parameter's value as a spec string has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def spec_of(name, positional=(), named=None):
    """("topk", (0.01,)) is "topk(ratio=0.01, feedback=true)": every parameter spelled out. ValueError for what there is not."""
    known = _core._codec_parameters(name)
    if len(positional) > len(known):
        raise ValueError(f"codec {name} has {len(known)} parameters ({', '.join(known) or 'none'}), not {len(positional)}")
    given = dict(zip(known, positional))
    for key, value in (named or {}).items():
        if key in given:
            raise ValueError(f"codec {name} is given {key} twice")
        given[key] = value
    return _core._codec_spec(f"{name}({', '.join(f'{key}={text(value)}' for key, value in given.items())})" if given else name)


def check_momentum(core, optimizer):
    """ValueError where both would keep momentum, or the optimizer divides by the size of what is sent late."""
    if not core.momentum:
        return
    if not isinstance(optimizer, torch.optim.SGD) or any(group["momentum"] != 0 for group in optimizer.param_groups):
        raise ValueError(f"codec {core.spec} keeps the momentum itself, on every rank's own gradients: it is for torch.optim.SGD(momentum=0), "
                         f"not for {type(optimizer).__name__}" + (" with momentum" if isinstance(optimizer, torch.optim.SGD) else ""))


class CodedGradients:
    """A codec, and what it did not send of each parameter's gradient on this rank.

    by_values: a step counts as made when its gradients came out finite; else settle() says so.
    """

    def __init__(self, spec, seed=0, by_values=False):
        self.core = _core._GradientCodec(spec, seed, by_values)

    @property
    def spec(self):
        return self.core.spec

    def settle(self, made):
        """The step was made, or called off: what was not sent of it is kept, or what was kept before stays."""
        self.core.settle(made)

    def state_dict(self, rank):
        """What this rank keeps; each rank has its own."""
        return {"codec": self.spec, "rank": rank, "residuals": self.core.residuals()}

    def load_state_dict(self, state, rank):
        """Takes back what this rank had kept. Of another rank's state only the number of steps counts: its residuals are not ours."""
        nothing = {} if state["rank"] == rank else dict(sent=torch.zeros(0), owned=torch.zeros(0), first=0, share=1.0, weight=0.0)
        self.core.restore({name: {**r, **nothing} for name, r in state["residuals"].items()})


def steps_alone(state):
    """A state_dict() for other ranks: without residuals."""
    return {**state, "rank": None, "residuals": {name: {"step": r["step"]} for name, r in state["residuals"].items()}}
