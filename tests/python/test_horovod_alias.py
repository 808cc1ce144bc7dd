"""`import horovod.torch` is `import cohort.torch`: one set of modules under two names."""
import importlib
import subprocess
import sys

import pytest

import cohort
import cohort.torch
import horovod
import horovod.torch as hvd
from launch import environment, stretched

PAIRS = {
    "horovod.torch": "cohort.torch", "horovod.torch.mpi_ops": "cohort.torch.mpi_ops", "horovod.torch.functions": "cohort.torch.functions",
    "horovod.torch.compression": "cohort.torch.compression", "horovod.torch.optimizer": "cohort.torch.optimizer",
    "horovod.torch.sync_batch_norm": "cohort.torch.sync_batch_norm", "horovod.torch.elastic": "cohort.torch.elastic",
    "horovod.torch.elastic.state": "cohort.torch.elastic.state", "horovod.torch.elastic.sampler": "cohort.torch.elastic.sampler",
    "horovod.common.exceptions": "cohort.exceptions", "horovod.common.process_sets": "cohort.torch.process_sets",
    "horovod.common.elastic": "cohort.elastic", "horovod.data.data_loader_base": "cohort.data", "horovod.runner.launch": "cohort.horovodrun"}

NAMES = """elastic Compression allgather_object broadcast_object broadcast_optimizer_state broadcast_parameters
allreduce allreduce_ allreduce_async allreduce_async_ grouped_allreduce grouped_allreduce_ grouped_allreduce_async grouped_allreduce_async_
sparse_allreduce_async allgather allgather_async grouped_allgather grouped_allgather_async broadcast broadcast_ broadcast_async broadcast_async_
alltoall alltoall_async reducescatter reducescatter_async grouped_reducescatter grouped_reducescatter_async join barrier
poll synchronize init shutdown is_initialized start_timeline stop_timeline size local_size cross_size rank local_rank cross_rank
mpi_threads_supported mpi_enabled mpi_built gloo_enabled gloo_built nccl_built ddl_built ccl_built cuda_built rocm_built
ProcessSet global_process_set add_process_set remove_process_set Average Sum Adasum Min Max Product HorovodInternalError
DistributedOptimizer SyncBatchNorm""".split()


@pytest.mark.parametrize("alias, real", PAIRS.items())
def test_modules_are_the_same_objects(alias, real):
    assert importlib.import_module(alias) is importlib.import_module(real)


def test_the_whole_surface_is_there():
    assert not [name for name in NAMES if not hasattr(hvd, name)]
    assert hvd is cohort.torch


def test_what_the_package_itself_offers():
    from horovod.common.util import num_rank_is_power_2, split_list
    from horovod.data import AsyncDataLoaderMixin
    from horovod.runner import run
    import cohort.data
    assert horovod.run is run and AsyncDataLoaderMixin is cohort.data.AsyncDataLoaderMixin
    assert [n for n in range(9) if num_rank_is_power_2(n)] == [1, 2, 4, 8]
    assert split_list([1, 2, 3, 4, 5], 2) == [[1, 2, 3], [4, 5]] and split_list([], 2) == []
    assert tuple(map(int, horovod.__version__.split("."))) >= (0, 28)


def test_the_launcher_is_a_module_that_can_be_run():
    done = subprocess.run([sys.executable, "-m", "horovod.runner.launch", "--version"], env=environment(), capture_output=True, text=True, timeout=stretched(60))
    assert done.returncode == 0 and done.stdout.strip() == cohort.__version__, done.stdout + done.stderr


def test_other_frameworks_are_not_there():
    for name in ("horovod.tensorflow", "horovod.keras", "horovod.mxnet"):
        with pytest.raises(ImportError):
            importlib.import_module(name)
