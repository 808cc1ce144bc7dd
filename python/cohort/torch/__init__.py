"""Horovod's interface for PyTorch on Cohort.

    import torch
    import cohort.torch as hvd

    hvd.init()                                                        # started by: cohort run -n 2 train.py (or horovodrun, torchrun, mpirun)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

Operations, handles and names: help(cohort.torch.mpi_ops). Groups of ranks: help(cohort.torch.process_sets).
"""
from cohort.exceptions import HorovodInternalError
from cohort.torch import elastic
from cohort.torch.compression import Compression
from cohort.torch.functions import allgather_object, broadcast_object, broadcast_optimizer_state, broadcast_parameters
from cohort.torch.mpi_ops import (
    Adasum, Average, Max, Min, Product, Sum,
    allgather, allgather_async, allreduce, allreduce_, allreduce_async, allreduce_async_, alltoall, alltoall_async, barrier, broadcast,
    broadcast_, broadcast_async, broadcast_async_, ccl_built, cross_rank, cross_size, cuda_built, ddl_built, gloo_built, gloo_enabled,
    grouped_allgather, grouped_allgather_async, grouped_allreduce, grouped_allreduce_, grouped_allreduce_async, grouped_allreduce_async_,
    grouped_reducescatter, grouped_reducescatter_async, init, is_initialized, join, local_rank, local_size, mpi_built, mpi_enabled,
    mpi_threads_supported, nccl_built, poll, rank, reducescatter, reducescatter_async, rocm_built, shutdown, size, sparse_allreduce_async,
    start_timeline, stop_timeline, synchronize,
)
from cohort.torch.optimizer import DistributedOptimizer
from cohort.torch.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from cohort.torch.sync_batch_norm import SyncBatchNorm
