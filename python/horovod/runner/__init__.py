"""Starting jobs: `horovod.runner.run(func, ...)`, and the command horovodrun as horovod.runner.launch."""
from cohort.run import run
from horovod import _alias

_alias({f"{__name__}.launch": "cohort.horovodrun"})
