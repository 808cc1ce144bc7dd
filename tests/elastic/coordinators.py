"""The processes around an elastic job's workers: who coordinates, who supervises, and what is left of all of them."""
import os
import signal
import time

from jobs import Job, VectorJob, processes, wait_until


def family(of):
    """Everything that descends from this process and has not ended."""
    all_of_them, found = processes(), []
    for pid, (parent, _, state) in all_of_them.items():
        while parent in all_of_them and parent != of:
            parent = all_of_them[parent][0]
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
        return next((pid for pid in family(self.process.pid) if now.get(pid, (0, "", ""))[1] == "coordinator"), None)

    def launcher(self):
        """The one process that the front started: it holds the ranks, and with --supervised it is the supervisor."""
        now = processes()
        return next(pid for pid, (parent, _, _) in now.items() if parent == self.process.pid)

    def kill_coordinator(self, and_also=()):
        """kill -9, of others in the same moment, too. When, and when the next one was there."""
        old = self.coordinator()
        at = time.monotonic()
        os.kill(old, signal.SIGKILL)
        for pid in and_also:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:  # it went with one of the others
                continue
        wait_until("a coordinator is started again", lambda: self.coordinator() not in (None, old))
        return at, time.monotonic()

    def await_next_step(self):
        """A step that was begun from now on is committed; when."""
        step = self.step()
        wait_until("the next step", lambda: self.step() > step + 1)  # not the one that may have been under way
        return time.monotonic()


class SupervisedJob(Supervised, Job):
    pass


class SupervisedVectorJob(Supervised, VectorJob):
    pass
