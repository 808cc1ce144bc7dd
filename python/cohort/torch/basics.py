"""The job of this process: init() and shutdown(), ranks and sizes, what this build has, the timeline."""
import atexit
import os

from cohort import _core, membership
from cohort.torch import handles as _handles
from cohort.torch import process_sets as _sets
from cohort.torch.process_sets import ProcessSet


def init(comm=None, process_sets=None):
    """Connects to the other ranks of the job. Does nothing when this process is a rank already. In an elastic job it waits to be admitted.

    comm: a list of ranks of the job (or an mpi4py communicator) that are the world of this init; default: all.
    process_sets: a list of ProcessSet, alike on every rank; or "dynamic", see add_process_set.
    """
    if _core.is_initialized():
        return
    dynamic = _flag("HOROVOD_DYNAMIC_PROCESS_SETS")
    if process_sets == "dynamic":
        dynamic, process_sets = True, []
    elif isinstance(process_sets, str):
        raise ValueError(f"process_sets={process_sets!r}: give a list of ProcessSet, or 'dynamic'")
    process_sets = [s if isinstance(s, ProcessSet) else ProcessSet(s) for s in process_sets or []]
    ranks = [] if comm is None else _sets._ranks_of(comm)
    membership.connect(lambda: _core.init(ranks, [s.ranks for s in process_sets], **_settings()))
    _sets._settle(process_sets, dynamic)
    atexit.register(shutdown)
    if os.environ.get("HOROVOD_TIMELINE", "DYNAMIC") not in ("", "DYNAMIC"):  # DYNAMIC: the script calls start_timeline itself
        start_timeline(os.environ["HOROVOD_TIMELINE"], _flag("HOROVOD_TIMELINE_MARK_CYCLES"))


def shutdown():
    """Leaves the job; init() may be called again. Operations in flight are abandoned, their handles are invalid from here on."""
    _core.shutdown()
    _sets._forget()
    _handles.forget_all()
    atexit.unregister(shutdown)


def _flag(name):
    return os.environ.get(name, "0").strip().lower() not in ("", "0", "false", "no", "off")


def _number(name, kind):
    text = os.environ.get(name, "").strip()
    if not text:
        return None
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"{name}={text}: {'seconds, from 0 to 1e9, are expected' if kind is _seconds else 'not a number'}") from None


def _seconds(text):
    seconds = float(text)
    if not 0 <= seconds <= 1e9:
        raise ValueError(text)
    return seconds


def _settings():
    """The settings of the queue in Horovod's variables, which win over COHORT_WARN_AFTER and COHORT_TIMEOUT.

    HOROVOD_CYCLE_TIME has no counterpart: nothing here waits for a cycle.
    """
    wanted = {
        "fusion_bytes": _number("HOROVOD_FUSION_THRESHOLD", int),
        "cache_names": _number("HOROVOD_CACHE_CAPACITY", int),
    }
    if _flag("HOROVOD_STALL_CHECK_DISABLE"):
        wanted["warn_after"] = 0.0
    else:
        wanted["warn_after"] = _number("HOROVOD_STALL_CHECK_TIME_SECONDS", _seconds)
        wanted["shutdown_after"] = _number("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", _seconds)
    return {name: value for name, value in wanted.items() if value is not None}


def is_initialized():
    """Whether this process is a rank."""
    return _core.is_initialized()


def rank():
    """This process's number in the job, from 0."""
    return _core.rank()


def size():
    """How many ranks the job has."""
    return _core.size()


def local_rank():
    """This process's number among the ranks on its host."""
    return _core.local_rank()


def local_size():
    """How many ranks are on this host."""
    return _core.local_size()


def _hosts_of_local_rank():
    """The hosts that have a rank at this process's local rank, in order of appearance."""
    mine, seen, found = _core.local_rank(), {}, []
    for host in _core.hosts():
        if seen.setdefault(host, 0) == mine:
            found.append(host)
        seen[host] += 1
    return found


def cross_size():
    """How many hosts have a rank of this local rank."""
    return len(_hosts_of_local_rank())


def cross_rank():
    """The number of this host among those that have a rank of this local rank."""
    hosts = _core.hosts()
    return _hosts_of_local_rank().index(hosts[_core.rank()])


def is_homogeneous():
    """Whether every host has the same number of ranks."""
    hosts = _core.hosts()
    return len({hosts.count(host) for host in hosts}) == 1


def mpi_threads_supported():
    """False: there is no MPI here, and none is needed."""
    _core.rank()
    return False


def mpi_enabled():
    """False: ranks communicate over Cohort's own transports."""
    return False


def mpi_built():
    """False: ranks communicate over Cohort's own transports."""
    return False


def gloo_enabled():
    """True: ranks on CPUs communicate without MPI. Cohort's native backend takes the place of Horovod's Gloo."""
    return True


def gloo_built():
    """True: ranks on CPUs communicate without MPI. Cohort's native backend takes the place of Horovod's Gloo."""
    return True


def nccl_built():
    """The version of NCCL in this build: 0, there is none."""
    return 0


def ddl_built():
    """False."""
    return False


def ccl_built():
    """False."""
    return False


def cuda_built():
    """False: tensors on GPUs are refused."""
    return False


def rocm_built():
    """False: tensors on GPUs are refused."""
    return False


def start_timeline(file_path, mark_cycles=False):
    """Rank 0 writes the phases of every operation to this file from now on, as a Chrome trace (chrome://tracing, ui.perfetto.dev).

    A file that was being written is ended first."""
    _core.start_timeline(str(file_path), bool(mark_cycles))


def stop_timeline():
    """Ends the file of start_timeline()."""
    _core.stop_timeline()
