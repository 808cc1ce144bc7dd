"""cohort.Trainer: a whole training run of a torch module on any number of ranks, from a Python program.

    import cohort
    trainer = cohort.Trainer(model, train_set, {"epochs": 3, "data": {"batch": 64}, "optimizer": "adamw(lr=1e-3)"}, test=test_set)
    summary = trainer.run()          # python train.py: one rank; cohort run -n 4 train.py: four
    summary.metrics["accuracy"], trainer.predict(x)

It is what `cohort train` does (the same checkpoints, metrics, report, strategies), with a model, data and a loss of one's own:
docs/python_trainer.md.
"""
import contextlib
import dataclasses
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any, Optional, Union

import torch

from cohort import _core


@dataclasses.dataclass
class Summary:
    """What a run came to. The same on every rank, but for checkpoint, which is rank 0's."""

    steps: int  # updates, those of earlier starts of the run included
    loss: float  # of training: the mean over the samples of the last step
    test_loss: Optional[float]  # None: there is no test set
    metrics: dict  # of the last evaluation, by name
    seconds: float
    samples_per_second: float
    skipped: int  # steps that were left out: a gradient was not finite
    folder: str  # of everything the run wrote
    checkpoint: Optional[str]  # the newest
    saved: bool  # the last update is on disk; else run() raises NotSavedError
    lost: str  # where it is not: which updates, and what is kept
    ended_early: bool  # a rank was asked to leave (SIGTERM, SIGUSR1, leave()): run it again to go on


class NotSavedError(RuntimeError):
    """The run ended, but its last checkpoint could not be written, although it was tried for checkpoint.last_try. Says what is lost; `summary`
    has what the run came to. The model has what it learned, but for ZeRO stage 3 in an elastic job."""

    def __init__(self, summary: Summary):
        super().__init__(summary.lost)
        self.summary = summary


@dataclasses.dataclass
class Step:
    """What a function given to after_step() is called with."""

    number: int  # updates so far
    epoch: int  # of the next step
    loss: float  # the mean over the samples of all ranks


class Trainer:
    """A training run. Every rank makes one alike, then calls run().

    model: a torch.nn.Module, one tensor in, one tensor out. Its first values are rank 0's.
    train, test: objects with len() and [index] -> (input, label): tensors, numpy arrays or numbers. The first sample says what all are.
    config: settings (docs/settings.md), as a dict (nested, or "data.batch": 64) or the path of a YAML file; more as keyword arguments.
    loss: a function (outputs, labels) -> the mean over the batch, or one value for each sample; the name of a loss ("mse"); or None: cross
        entropy for labels that are integers, mean squared error for floats.
    metrics: {"name": function}, functions as loss, evaluated on the test set.
    blocks: names of child modules that run one after the other ("layers" of a ModuleList: each of its modules). ZeRO stage 3 and recompute
        work block by block. Without it a Sequential has a block for each child with parameters, and any other model is one.
    """

    def __init__(self, model: torch.nn.Module, train: Any, config: Union[Mapping, str, os.PathLike, None] = None, *, test: Any = None,
                 loss: Union[Callable, str, None] = None, metrics: Optional[Mapping[str, Callable]] = None,
                 blocks: Optional[list] = None, **settings: Any):
        _check_model(model)
        for name, data in (("train", train), ("test", test)):
            _check_data(name, data)
        if isinstance(loss, str):
            settings["loss"], loss = loss, None
        if loss is not None and not callable(loss):
            raise TypeError(f"loss is a {type(loss).__name__}: give a function (outputs, labels), the name of a loss, or None")
        file = "" if config is None or isinstance(config, Mapping) else os.fspath(config)
        name = re.sub(r"\W", "_", type(model).__name__)
        given = _assignments(config if isinstance(config, Mapping) else {}) + _assignments(settings)
        self._settings = _core._Settings(file, given, name)
        self._model = model
        self._after_step: list[Callable[[Step], Any]] = []
        self._core = _core._Trainer(self._settings, name=name, model=model, blocks=_blocks(model, blocks), train=train,
                                    test=test, loss=loss, metrics=dict(metrics or {}))
        self._ran = False

    def run(self) -> Summary:
        """Trains to the end and returns what came of it. Collective: every rank calls it.

        An exception of the model, the loss or a data set ends the run on all ranks; it is raised here, and RuntimeErrors elsewhere name it.
        A lost rank ends the run on the others; started again it resumes from its newest checkpoint. In an elastic job (`cohort run
        --min-n`) the others go on instead. SIGTERM and SIGUSR1 end it after the step, with a checkpoint, where the program has no handler
        of its own. A last checkpoint that cannot be written is tried again for checkpoint.last_try; then NotSavedError is raised on every
        rank.
        """
        if self._ran:
            raise RuntimeError("this run is over: make another cohort.Trainer of the same model to train on")
        self._ran = True
        training = self._model.training
        sys.stdout.flush()
        try:
            with _signal_pipe() as (pipe, signals):
                result = self._core.run(pipe, signals, self._stepped)
        finally:
            self._model.train(training)
        if result is None:
            print(f"cohort: worker (process {os.getpid()}) leaves the job: it was asked to", file=sys.stderr, flush=True)
            raise SystemExit(0)
        summary = Summary(**result)
        if not summary.saved:
            raise NotSavedError(summary)
        return summary

    def after_step(self, callback: Callable[[Step], Any]) -> Callable:
        """callback(step) is called on every rank after each step; an exception of it ends the run. Usable as a decorator."""
        if not callable(callback):
            raise TypeError(f"after_step() takes a function, not a {type(callback).__name__}")
        self._after_step.append(callback)
        return callback

    def leave(self, why: str = "") -> None:
        """All ranks end after the same step, this one or the next, with a checkpoint. Any rank and thread may call it."""
        self._core.leave(why)

    def predict(self, inputs: torch.Tensor) -> torch.Tensor:
        """What the model gives for a batch, in evaluation mode and without gradients. After run() every rank has all parameters."""
        training = self._model.training
        self._model.eval()
        try:
            with torch.no_grad():
                return self._model(inputs)
        finally:
            self._model.train(training)

    @property
    def model(self) -> torch.nn.Module:
        """The module that was given; after run() with what it learned, whole on every rank."""
        return self._model

    @property
    def rank(self) -> int:
        """This process's number in the run; 0 before it."""
        return self._core.rank

    @property
    def size(self) -> int:
        """Ranks of the run; 1 before it."""
        return self._core.size

    @property
    def settings(self) -> str:
        """The settings in effect, as YAML."""
        return self._settings.yaml()

    def _stepped(self, number, epoch, loss):
        for callback in self._after_step:
            callback(Step(number, epoch, loss))


def _check_model(model):
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model is a {type(model).__name__}, not a torch.nn.Module")
    if isinstance(model, (torch.jit.ScriptModule, torch.nn.parallel.DistributedDataParallel, torch.nn.DataParallel)):
        raise TypeError(f"model is a {type(model).__name__}: give the plain torch.nn.Module")


def _check_data(name, data):
    if data is None and name == "test":
        return
    missing = [method for method in ("__len__", "__getitem__") if not hasattr(type(data), method)]
    if missing:
        raise TypeError(f"{name} is a {type(data).__name__} without {' and '.join(missing)}: give an object with len() and [index] -> "
                        "(input, label), not a loader or an iterable")


# ---- settings

def _text(key, value):
    """As `--set key=value` takes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ",".join(_text(key, each) for each in value)
    if isinstance(value, (str, int, float, os.PathLike)):
        return str(value)
    raise TypeError(f"setting {key} is a {type(value).__name__}: give text, a number, true or false, or a list of them")


def _assignments(settings, prefix=""):
    """{"data": {"batch": 8}, "optim.schedule": "constant"} as [("data.batch", "8"), ..]."""
    found = []
    for key, value in settings.items():
        if not isinstance(key, str):
            raise TypeError(f"a setting's name is {key!r}: give text")
        if isinstance(value, Mapping):
            found += _assignments(value, f"{prefix}{key}.")
        else:
            found.append((prefix + key, _text(prefix + key, value)))
    return found


# ---- blocks

class _Chain:
    """Modules one after the other."""

    def __init__(self, modules):
        self.modules = modules

    def __call__(self, x):
        for module in self.modules:
            x = module(x)
        return x


def _blocks(model, names):
    """[(name, modules, function)]: run one after the other they are the model's forward."""
    if names is not None:
        return _named_blocks(model, list(names))
    hooks = model._forward_hooks or model._forward_pre_hooks
    if not isinstance(model, torch.nn.Sequential) or type(model).forward is not torch.nn.Sequential.forward or hooks or not len(model):
        return [("model", [model], model)]
    groups = []  # a child without parameters goes with the one before: it may work in place
    for name, child in model.named_children():
        known = [c for _, modules in groups for c in modules]
        if groups and (not _has_parameters(groups[-1][1]) or not _has_parameters([child])):
            groups[-1][1].append(child)
        elif not any(child is c for c in known):
            groups.append((name, [child]))
        else:
            return [("model", [model], model)]  # a module that runs twice
    if sum(len(modules) for _, modules in groups) != len(model):
        return [("model", [model], model)]
    return [(name, modules, _Chain(modules)) for name, modules in groups]


def _has_parameters(modules):
    return any(True for module in modules for _ in module.parameters())


def _named_blocks(model, names):
    named = dict(model.named_modules(remove_duplicate=False))
    blocks = []
    for name in names:
        if name not in named or not name:
            known = ", ".join(n for n in named if n) or "none"
            raise ValueError(f"blocks: the model has no child module '{name}'; it has {known}")
        module = named[name]
        if isinstance(module, torch.nn.ModuleList):
            blocks += [(f"{name}.{child}", [m], m) for child, m in module.named_children()]
        else:
            blocks.append((name, [module], module))
    used = {id(p) for _, modules, _ in blocks for module in modules for p in module.parameters()}
    for name, parameter in model.named_parameters():
        if id(parameter) not in used:
            raise ValueError(f"blocks: parameter {name} is in none of {', '.join(names)}, which run one after the other in place of the "
                             "model's forward; name its module too, or leave blocks out")
    return blocks


# ---- signals

@contextlib.contextmanager
def _signal_pipe():
    """The end of a pipe where signals arrive while the run is in C++, and those that are the run's: the program has no handler for them."""
    if threading.current_thread() is not threading.main_thread():
        yield -1, []
        return
    read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    mine = [n for n in (signal.SIGTERM, signal.SIGUSR1, signal.SIGQUIT) if signal.getsignal(n) == signal.SIG_DFL]
    before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    process = os.getpid()

    def noted(number, _):  # the pipe has told the run
        if os.getpid() != process:  # a forked child, which has the handler and no part in the run
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    try:
        for number in mine:
            signal.signal(number, noted)
        yield read, mine + ([signal.SIGINT] if signal.getsignal(signal.SIGINT) is signal.default_int_handler else [])
    finally:
        for number in mine:
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(before)
        os.close(read)
        os.close(write)
