"""Process sets: groups of ranks with operations of their own.

    even = hvd.ProcessSet([0, 2])
    hvd.init(process_sets=[even])                       # static: known from the start, alike on every rank
    if even.included():
        hvd.allreduce(tensor, process_set=even)

With hvd.init(process_sets="dynamic") or HOROVOD_DYNAMIC_PROCESS_SETS=1 sets come and go at run time by add_process_set and
remove_process_set, which every rank of the job calls alike. Operations of different sets never wait for each other.
"""
import warnings

from cohort import _core

_registered = {}  # id: ProcessSet, while _core has it
_given = []  # to init, some of them perhaps more than once
_added = []  # by add_process_set, in this order; also those with ranks that the job does not have now
_dynamic = False


class ProcessSet:
    """Some ranks of the job, given as a list of ranks (or an mpi4py communicator over the same processes).

    process_set_id is None until the set is registered by hvd.init or hvd.add_process_set, and again after shutdown.
    """

    def __init__(self, ranks_or_comm):
        self.process_set_id = None
        self.ranks = None if ranks_or_comm is None else sorted(_ranks_of(ranks_or_comm))

    def size(self):
        """How many ranks the set has; None while it is not registered."""
        ranks = self.ranks
        if ranks is None:
            _core.size()  # the global set before init or after shutdown: raises
        return None if self.process_set_id is None or ranks is None else len(ranks)

    def rank(self):
        """This process's number inside the set, as results are ordered; None outside the set or while it is not registered.

        root_rank of broadcast is the rank in the job, also inside a process set.
        """
        ranks = self.ranks
        return ranks.index(_core.rank()) if ranks is not None and self.included() else None

    def included(self):
        """Whether this process is a member; None while the set is not registered."""
        ranks = self.ranks  # another thread may shut down
        return None if self.process_set_id is None or ranks is None else _core.rank() in ranks

    def __str__(self):
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"

    __repr__ = __str__


global_process_set = ProcessSet(None)  # all ranks; usable as soon as hvd.init has returned
global_process_set.process_set_id = 0


def _ranks_of(ranks_or_comm):
    if hasattr(ranks_or_comm, "Get_group"):  # mpi4py
        comm = ranks_or_comm
        everyone = comm.allgather(_core.rank()) if _core.is_initialized() else comm.allgather(_world_rank())
        return everyone
    return [int(rank) for rank in ranks_or_comm]


def _world_rank():
    from mpi4py import MPI

    return MPI.COMM_WORLD.Get_rank()


def _settle(process_sets, dynamic):
    """After init: _core has given numbers to `process_sets`, in order."""
    global _dynamic
    _dynamic = dynamic
    _registered.clear()
    global_process_set.ranks = list(range(_core.size()))
    _registered[0] = global_process_set
    numbers = {tuple(ranks): number for number, ranks in _core.sets().items()}
    for process_set in process_sets:
        process_set.process_set_id = numbers.get(tuple(sorted(process_set.ranks)))
        _given.append(process_set)
        if dynamic and all(s.ranks != process_set.ranks for s in _added):
            _added.append(process_set)
        if process_set.process_set_id is None:  # of ranks that an elastic job does not have now
            _warn_of(process_set)
        else:
            _registered.setdefault(process_set.process_set_id, process_set)


def _kept():
    """The sets to have again after a reset, in an order that a new worker has too: that of its init()."""
    return list(_added if _dynamic else _given)


def _add_again(process_sets):
    """After a reset, on every rank alike. All of them are kept, whichever rank is lost meanwhile."""
    _added[:] = process_sets
    for process_set in process_sets:
        if process_set.ranks[-1] < _core.size():
            add_process_set(process_set)
        else:
            _warn_of(process_set)


def _warn_of(process_set):
    warnings.warn(f"process set {process_set.ranks} has a rank above the {_core.size()} there are; it is registered again when there are more")


def _forget():
    """After shutdown: no set has a number."""
    for process_set in [*_registered.values(), *_given]:
        if process_set is not global_process_set:
            process_set.process_set_id = None
    _registered.clear()
    _given.clear()
    _added.clear()
    global_process_set.ranks = None


def _need_dynamic(what):
    _core.rank()  # initialised?
    if not _dynamic:
        raise ValueError(f"{what} changes process sets at run time; allow that with hvd.init(process_sets='dynamic') or HOROVOD_DYNAMIC_PROCESS_SETS=1")


def add_process_set(process_set):
    """Registers a ProcessSet (or a list of ranks) while the job runs, and returns it. Every rank of the job calls it, alike.

    ValueError: sets are not dynamic (see above), a set of these ranks exists, or a rank is not of this job.
    """
    _need_dynamic("add_process_set")
    if not isinstance(process_set, ProcessSet):
        process_set = ProcessSet(process_set)
    if process_set.process_set_id is not None:
        raise ValueError(f"{process_set} is registered already")
    process_set.process_set_id = _core.add_set(process_set.ranks)
    _registered[process_set.process_set_id] = process_set
    if process_set not in _added:
        _added.append(process_set)
    return process_set


def remove_process_set(process_set):
    """Takes back what add_process_set did; every rank of the job calls it, alike. False when there is no such set, or it is the global one."""
    _need_dynamic("remove_process_set")
    if process_set in _added:
        _added.remove(process_set)
    if process_set is global_process_set or process_set.process_set_id is None:
        return False
    removed = _core.remove_set(process_set.process_set_id)
    _registered.pop(process_set.process_set_id, None)
    process_set.process_set_id = None
    return removed


def process_set_ids():
    """{id: ranks} of all registered sets."""
    return _core.sets()


def _id_of(process_set):
    """The number of a set, as operations take it."""
    if process_set.process_set_id is None:
        raise ValueError(f"{process_set} is not registered; pass it to hvd.init(process_sets=[...]) or hvd.add_process_set first")
    return process_set.process_set_id
