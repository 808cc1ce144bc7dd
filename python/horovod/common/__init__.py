"""What Horovod keeps for all frameworks: exceptions, process sets, elastic state, small helpers."""
from horovod import _alias

_alias({f"{__name__}.exceptions": "cohort.exceptions", f"{__name__}.process_sets": "cohort.torch.process_sets",
        f"{__name__}.elastic": "cohort.elastic"})
