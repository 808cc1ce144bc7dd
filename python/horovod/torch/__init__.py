"""cohort.torch under Horovod's name."""
from horovod import _alias

_alias({f"{__name__}{part}": f"cohort.torch{part}" for part in
        ("", ".mpi_ops", ".functions", ".compression", ".optimizer", ".sync_batch_norm", ".elastic", ".elastic.state", ".elastic.sampler")})
