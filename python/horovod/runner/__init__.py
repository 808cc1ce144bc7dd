"""Starting jobs: `horovod.runner.run(func, ...)`, and the command horovodrun as horovod.runner.launch."""
import importlib

from cohort.run import run


def __getattr__(name):  # not before it is asked for: `python -m horovod.runner.launch` runs it as a program
    if name == "launch":
        return importlib.import_module("horovod.runner.launch")
    raise AttributeError(name)
