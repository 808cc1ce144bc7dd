"""Horovod's names for Cohort: `import horovod.torch as hvd` runs scripts written for Horovod on Cohort, unchanged.

Every module here is the one of `cohort` itself under a second name, so that exceptions and process sets are the same objects either way.
"""
import importlib as _importlib
import sys as _sys


def _alias(pairs):
    """{"horovod.torch.mpi_ops": "cohort.torch.mpi_ops"}: the second module is found under the first name too."""
    for alias, real in pairs.items():
        module = _sys.modules[alias] = _importlib.import_module(real)
        parent, _, name = alias.rpartition(".")
        if parent in _sys.modules:
            setattr(_sys.modules[parent], name, module)


from horovod.version import __version__  # noqa: E402
from cohort.run import run  # noqa: E402
