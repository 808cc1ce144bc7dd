"""Training that survives: state kept in memory, brought back after a failure, and shared when the set of ranks changes.

    @hvd.elastic.run
    def train(state):
        for state.epoch in range(state.epoch, epochs):
            ...
            state.commit()

A commit is the point that a failure goes back to. In an elastic job (`cohort run --min-n`, `horovodrun --min-np`) workers come and go: when one
is lost the others go on from the last commit, new workers receive rank 0's state, and planned changes happen at a commit. In a
job with a fixed number of ranks a HorovodInternalError that leaves all of them alive (a stall, an operation that the ranks disagree about) is
recovered from; a lost rank ends the job.
"""
import copy
import functools
import queue

from cohort import membership
from cohort.exceptions import HorovodInternalError, HostsUpdatedInterrupt


class HostUpdateResult:
    """What happened to the hosts, as bits."""

    no_update = 0
    removed = 1
    added = 2
    mixed = removed | added


class State:
    """What survives. A subclass defines how: save(), restore(), sync(), and reset() where a change of ranks needs work."""

    def __init__(self, bcast_object, get_rank):
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._host_messages = queue.Queue()
        self._last_updated_timestamp = 0
        self._reset_callbacks = []

    def register_reset_callbacks(self, callbacks):
        """Functions without arguments to call after the ranks have connected again: scale the learning rate, rebuild a loader."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self):
        """The ranks have connected again."""
        self._host_messages = queue.Queue()
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp, update_res=HostUpdateResult.added):
        """To be called (from any thread) when the hosts have changed; the next commit or check raises HostsUpdatedInterrupt on all ranks."""
        self._host_messages.put((timestamp, update_res))

    def commit(self):
        """Saves, and raises HostsUpdatedInterrupt on every rank when ranks are to change. All ranks call it.

        In an elastic job a commit counts everywhere or nowhere. Until it does, what was saved before is kept; the state itself is what is voted upon, and must not change meanwhile.
        """
        membership.need_epoch("commit()")
        if not membership.elastic():
            self.save()
            return self.check_host_updates()
        try:
            change = membership.vote(self._host_change_pending(), "commit")
        except HorovodInternalError:
            try:
                membership.leave_epoch()
            except SystemExit:  # it may leave the job, with its last commit: perhaps this one
                self.save() if membership.commit_counts() else self.restore()
                raise
            if membership.commit_counts():
                self.save()
            raise
        self.save()
        if change:
            raise HostsUpdatedInterrupt()

    def _host_change_pending(self):
        return not self._host_messages.empty()

    def check_host_updates(self):
        """Raises HostsUpdatedInterrupt on every rank when rank 0 knows of a change. A collective: all ranks call it."""
        membership.need_epoch("check_host_updates()")
        if membership.elastic():
            if membership.vote(self._host_change_pending(), "check"):
                raise HostsUpdatedInterrupt()
            return
        newest, result = self._last_updated_timestamp, HostUpdateResult.no_update
        while not self._host_messages.empty():
            timestamp, update = self._host_messages.get()
            if timestamp > newest:
                newest, result = timestamp, result | update
        before, newest, result = self._bcast_object((self._last_updated_timestamp, newest, result))
        self._last_updated_timestamp = newest
        if newest > before:
            raise HostsUpdatedInterrupt(result == HostUpdateResult.removed)

    def save(self):
        """Keeps the state as it is now."""
        raise NotImplementedError

    def restore(self):
        """Goes back to what was saved."""
        raise NotImplementedError

    def sync(self):
        """Replaces the state by rank 0's."""
        raise NotImplementedError

    def reset(self):
        """The ranks have connected again; for subclasses."""


class ObjectState(State):
    """Python objects by name: `ObjectState(..., epoch=0, batch=0)`; they are attributes, and whatever pickles may be one."""

    def __init__(self, bcast_object, get_rank, **kwargs):
        self._saved_state = {}
        super().__init__(bcast_object, get_rank)
        for name, value in kwargs.items():
            setattr(self, name, value)
        self._saved_state = dict(kwargs)
        self.save()

    def save(self):
        self._saved_state = {name: copy.deepcopy(getattr(self, name)) for name in self._saved_state}

    def restore(self):
        for name, value in self._saved_state.items():
            setattr(self, name, copy.deepcopy(value))

    def sync(self):
        if self._saved_state:
            values = self._bcast_object({name: getattr(self, name) for name in self._saved_state})
            for name, value in values.items():
                setattr(self, name, value)
            ObjectState.save(self)


def run_fn(func, reset):
    """`func(state, ...)`, run again from the last commit after each failure and each change of hosts; reset() connects the ranks again."""

    @functools.wraps(func)
    def wrapper(state, *args, **kwargs):
        with membership.elastic_run():
            return _train(func, reset, state, args, kwargs)

    return wrapper


def _train(func, reset, state, args, kwargs):
    reconnected = skip_sync = False
    while True:
        results = []
        try:
            if reconnected:
                state.on_reset()
            if not skip_sync:
                state.sync()
                membership.state_synced()
            results.append(func(state, *args, **kwargs))
            membership.end()
            return results[0]
        except HorovodInternalError:
            try:
                membership.leave_epoch()
            except membership.JobOver:
                if not results:
                    raise
                return results[0]  # the others know that all are done, and this rank is
            except SystemExit:
                state.restore()  # for code that saves it now
                raise
            state.restore()
            skip_sync = False
        except HostsUpdatedInterrupt as change:
            membership.leave_epoch()
            skip_sync = change.skip_sync
        _reconnect(reset)
        reconnected = True


def _reconnect(reset):
    while True:
        try:
            return reset()
        except HorovodInternalError as error:
            if membership.elastic():  # a rank was lost while they connected
                membership.leave_epoch()
                continue
            if membership.is_elastic_job():
                raise
            raise HorovodInternalError(f"the ranks could not connect again: {error}. In a job with a fixed number of ranks only those it was "
                                       "started with can; `cohort run --min-n` goes on with others. Start the job again from its last "
                                       "checkpoint") from error
