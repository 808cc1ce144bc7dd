"""Training that survives: state kept in memory, brought back after a failure, and shared when the set of ranks changes.

    @hvd.elastic.run
    def train(state):
        for state.epoch in range(state.epoch, epochs):
            ...
            state.commit()

A commit is the point that a failure goes back to. The ranks of a job are those it was started with: a HorovodInternalError that leaves all
of them alive (a stall, an operation that the ranks disagree about) is recovered from in memory, by `run`; a lost rank is not, since workers
that join and leave a running job need a launcher that starts them, and `cohort run` ends the job then.
"""
import copy
import functools
import queue

from cohort.exceptions import HorovodInternalError, HostsUpdatedInterrupt


class HostUpdateResult:
    """What happened to the hosts, as bits."""

    no_update = 0
    removed = 1
    added = 2
    mixed = removed | added


class State:
    """What survives. A subclass says how: save(), restore(), sync(), and reset() where a change of ranks needs work."""

    def __init__(self, bcast_object, get_rank):
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._host_messages = queue.Queue()
        self._last_updated_timestamp = 0
        self._reset_callbacks = []

    def register_reset_callbacks(self, callbacks):
        """Functions without arguments to call after the ranks have met again: scale the learning rate, rebuild a loader."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self):
        """The ranks have met again."""
        self._host_messages = queue.Queue()
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp, update_res=HostUpdateResult.added):
        """Somebody (from any thread) says that the hosts have changed; the next commit or check raises HostsUpdatedInterrupt on all ranks."""
        self._host_messages.put((timestamp, update_res))

    def commit(self):
        """Saves, then asks whether hosts have changed."""
        self.save()
        self.check_host_updates()

    def check_host_updates(self):
        """Raises HostsUpdatedInterrupt on every rank when rank 0 has heard of a change. A collective: all ranks call it."""
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
        """Takes over what rank 0 has."""
        raise NotImplementedError

    def reset(self):
        """The ranks have met again; for subclasses."""


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
    """`func(state, ...)`, run again from the last commit after each failure and each change of hosts; reset() makes the ranks meet again."""

    @functools.wraps(func)
    def wrapper(state, *args, **kwargs):
        skip_sync = False
        while True:
            if not skip_sync:
                state.sync()
            try:
                return func(state, *args, **kwargs)
            except HorovodInternalError:
                state.restore()
                skip_sync = False
            except HostsUpdatedInterrupt as change:
                skip_sync = change.skip_sync
            _meet_again(reset)
            state.on_reset()

    return wrapper


def _meet_again(reset):
    """Only the ranks that the job was started with can meet again."""
    try:
        reset()
    except HorovodInternalError as error:
        raise HorovodInternalError(f"the ranks could not meet again: {error}. Going on with other ranks needs workers that join and leave a "
                                   "running job, which does not exist here yet; start the job again from its last checkpoint") from error
