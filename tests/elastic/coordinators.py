"""The processes around an elastic job's workers: the coordinator, the supervisor, and which of all of them still run."""
import os
import signal
import time

from jobs import Job, VectorJob, processes, wait_until


def descendants(of):
    """Everything that descends from this process and has not ended."""
    everything, found = processes(), []
    for pid, (parent, _, state) in everything.items():
        while parent in everything and parent != of:
            parent = everything[parent][0]
        if parent == of and state != "Z":
            found.append(pid)
    return found


def alive(pids):
    now = processes()
    return [pid for pid in pids if pid in now and now[pid][2] not in "ZX"]


class Supervised:
    """Part of a job that runs with --supervised."""

    def coordinator(self):
        now = processes()
        return next((pid for pid in descendants(self.process.pid) if now.get(pid, (0, "", ""))[1] == "coordinator"), None)

    def launcher(self):
        """The one process that the front process started: it starts the ranks, and with --supervised it is the supervisor."""
        now = processes()
        return next(pid for pid, (parent, _, _) in now.items() if parent == self.process.pid)

    def kill_coordinator(self, and_also=()):
        """kill -9, also of others at the same moment. Returns when, and when the next one ran."""
        old = self.coordinator()
        at = time.monotonic()
        os.kill(old, signal.SIGKILL)
        for pid in and_also:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:  # it ended with one of the others
                continue
        wait_until("a coordinator is started again", lambda: self.coordinator() not in (None, old))
        return at, time.monotonic()

    def await_next_step(self):
        """Waits until a step that begins from now on is committed; returns when."""
        step = self.step()
        wait_until("the next step", lambda: self.step() > step + 1)  # not the one that may be under way
        return time.monotonic()


class SupervisedJob(Supervised, Job):
    pass


class SupervisedVectorJob(Supervised, VectorJob):
    pass
