"""Cohort: adaptive distributed training.

    import cohort.torch as hvd          # Horovod's interface on Cohort
    import cohort                       # torch.distributed.init_process_group("cohort")
    cohort.Trainer(model, data).run()   # a whole training run

    ddp.register_comm_hook(cohort.hooks.State(ddp), cohort.hooks.int8)   # gradients in fewer bytes

The first is described by help(cohort.torch), the second by help(cohort.distributed), the third by help(cohort.trainer),
the fourth by help(cohort.hooks).
"""

import torch as _torch  # first: the extension needs its libraries

try:
    from cohort import _core
except ImportError as error:
    raise ImportError(
        f"cohort's extension module does not load with torch {_torch.__version__} ({error}); "
        "build it again for this Python and this torch: pip install --no-build-isolation --force-reinstall . (in Cohort's source folder)"
    ) from error

__version__ = _core.__version__


def _check_torch(built, found):
    """torch promises no binary compatibility between versions: an extension runs with the one it was built against."""
    if built != found:
        raise ImportError(
            f"cohort was built against torch {built}, but this Python has torch {found}; build it again: "
            "pip install --no-build-isolation --force-reinstall . (in Cohort's source folder)"
        )


_check_torch(_core.torch_version, _torch.__version__)

from cohort import distributed, hooks, run  # cohort.run(function, num_proc=2)
from cohort.trainer import NotSavedError, Trainer

distributed.register()
