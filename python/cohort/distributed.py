"""The backend "cohort" of torch.distributed.

    torch.distributed.init_process_group("cohort")

An installed package makes the name known to torch (cohort_autoload); else, and with TORCH_DEVICE_BACKEND_AUTOLOAD=0, `import cohort` does.
From then on everything built on torch.distributed runs on Cohort, unchanged: DistributedDataParallel,
ZeroRedundancyOptimizer, fully_shard (FSDP2), DTensor, torch.distributed.checkpoint, new_group, point to point. Scripts are started by
torchrun or by `cohort run`. With a second backend for GPU tensors: init_process_group("cpu:cohort,cuda:nccl").

Ranks on one host share memory. What torch asks the backend to allocate (DDP's buckets) lies in it and is reduced in place; other
tensors are staged. `shared_tensor()` gives such memory to anyone; `serve_large_tensors()` lets every large CPU tensor come from it.

Environment: COHORT_TRANSPORT, COHORT_ALGORITHM, COHORT_LOG ... as everywhere in Cohort; COHORT_ADDRESS is the address other hosts reach
this one at (needed only where it cannot be seen from the way to MASTER_ADDR); COHORT_SHARED_TENSORS=<bytes> calls serve_large_tensors()
at init_process_group.
"""
import atexit
import datetime
import ipaddress
import os
import socket

import torch
import torch.distributed as dist
from torch.distributed.constants import default_pg_timeout

from cohort import _core

__all__ = ["register", "serve_large_tensors", "shared_memory", "shared_tensor"]

_registered = False
_DISCARD_PORT = 9  # nothing is sent there: connecting a datagram socket only looks up the route


def _address():
    """Where other hosts reach this one: COHORT_ADDRESS, or the local address of a route to the master; "" when only this host is known."""
    address = os.environ.get("COHORT_ADDRESS")
    if address:
        return address
    master = os.environ.get("MASTER_ADDR")
    if not master:
        return ""
    try:
        family, kind, protocol, _, target = socket.getaddrinfo(master, _DISCARD_PORT, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(target)
            local = probe.getsockname()[0]
    except OSError:
        return ""
    return "" if ipaddress.ip_address(local).is_loopback else local


def _create(options, backend_options=None):
    if backend_options is not None:
        raise ValueError(
            f"backend 'cohort' takes no pg_options, not {type(backend_options).__name__}; "
            "its settings are COHORT_* variables, see help(cohort.distributed)"
        )
    if not dist.is_available():
        raise RuntimeError("this torch was built without torch.distributed")
    if os.environ.get("COHORT_ELASTIC"):
        raise RuntimeError("torch.distributed has a fixed number of ranks, and those of this elastic job change: start it without --min-n, or "
                           "train with cohort.torch and hvd.elastic.run")
    threshold = os.environ.get("COHORT_SHARED_TENSORS")
    if threshold:
        serve_large_tensors(int(threshold))
    timeout = options.timeout
    seconds = timeout.total_seconds() if isinstance(timeout, datetime.timedelta) else float(timeout)
    return _core._create_process_group(
        store=options.store,
        rank=options.group_rank,
        size=options.group_size,
        timeout=seconds,
        chosen=seconds != default_pg_timeout.total_seconds(),
        name=options.group_id,
        address=_address(),
        global_ranks=options.global_ranks_in_group,
    )


def register():
    """Makes the backend known to torch.distributed, if it is not (cohort_autoload). `import cohort` calls it."""
    global _registered
    if not dist.is_available() or _registered:
        return
    _registered = True
    if "COHORT" not in dist.Backend._plugins:
        dist.Backend.register_backend("cohort", _create, extended_api=True, devices=["cpu"])
    # DDP asks the backend for its buckets' memory when this is 0; torch's default is not to ask.
    os.environ.setdefault("DDP_DISABLE_COMM_MEM", "0")
    atexit.register(_core._shutdown_process_groups)


def shared_tensor(*sizes, dtype=None):
    """An uninitialised CPU tensor in memory that the ranks of this host read in place: collectives on it copy nothing.

    >>> buffer = cohort.distributed.shared_tensor(1024, 1024)
    """
    if len(sizes) == 1 and not isinstance(sizes[0], int):
        sizes = tuple(sizes[0])
    if any(size < 0 for size in sizes):
        raise ValueError(f"a tensor of sizes {list(sizes)} cannot be: sizes are not negative")
    return _core._shared_tensor(list(sizes), dtype or torch.get_default_dtype())


def serve_large_tensors(threshold=1 << 20):
    """From now on every CPU tensor of at least `threshold` bytes lies in shared memory; None: as torch does it.

    Then collectives on any large tensor work in place, at a price: such a tensor takes a file descriptor and up to an eighth more
    memory, freed memory is kept for the next tensor of its size, and a forked child (a DataLoader worker) shares these tensors with
    its parent instead of having a copy. docs/python.md has the figures.
    """
    if threshold is not None and threshold <= 0:
        raise ValueError(f"threshold is a number of bytes above 0, or None, not {threshold}")
    _core._serve_large_tensors(0 if threshold is None else int(threshold))


def shared_memory():
    """{"in_use", "cached", "peak"}: bytes of shared memory behind this process's tensors."""
    return _core._shared_pool_stats()
