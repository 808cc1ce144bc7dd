"""cohort.data under Horovod's name."""
from cohort.data import AsyncDataLoaderMixin, BaseDataLoader
from horovod import _alias

_alias({f"{__name__}.data_loader_base": "cohort.data"})
