"""horovodrun as a module: cohort.horovodrun, and `python -m horovod.runner.launch`."""
import sys

import cohort.horovodrun

if __name__ == "__main__":
    sys.exit(cohort.horovodrun.main())
sys.modules[__name__] = cohort.horovodrun
