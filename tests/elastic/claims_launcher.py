"""Elastic jobs whose launcher has no descriptors left, or no disk."""
import itertools
import os
import re
import resource
import shutil
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "chaos"))
from coordinators import SupervisedVectorJob  # noqa: E402
from isolated import SmallDisk, private_mounts  # noqa: E402
from jobs import FOR_EVER, VectorJob, wait_until  # noqa: E402


class NoDescriptors:
    """While it is entered a process gets no descriptor beyond those that it has, but for the numbers of those that it closes."""

    def __init__(self, pid):
        self.pid = pid

    def __enter__(self):
        taken = {int(fd) for fd in os.listdir(f"/proc/{self.pid}/fd")}
        lowest = next(fd for fd in itertools.count() if fd not in taken)
        self.before = resource.prlimit(self.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(self.pid, resource.RLIMIT_NOFILE, (lowest, self.before[1]))

    def __exit__(self, *_):
        resource.prlimit(self.pid, resource.RLIMIT_NOFILE, self.before)


def no_descriptors(programs, scratch):
    """The launcher is out of descriptors when a worker is lost, and when its coordinator is: it says so once, tries again, and no respawn is used up for a
    worker that was not started. The others train on meanwhile; with descriptors the worker joins, and the coordinator is started again."""
    def times(job, what):
        return len(re.findall(what + r" cannot be started[a-z ]*: .*Too many open files .*; it is tried again", job.log()))

    def fails_again(job, what):
        wait_until(f"{what} cannot be started, several times", lambda: times(job, what) >= 3 or job.process.poll() is not None)
        assert job.process.poll() is None, job.log()

    for name, supervised in (("launcher", []), ("supervisor", ["--supervised"])):
        with SupervisedVectorJob(programs, scratch, name, n=3, least=1, flags=["-v", "--respawns", "3", *supervised], steps=FOR_EVER) as job:
            job.await_step(20)
            for kill in range(3):  # as many as may be replaced
                before = job.epoch()
                if kill == 0:
                    with NoDescriptors(job.launcher()):
                        job.kill(job.workers()[0])
                        fails_again(job, "a worker")
                        job.await_epoch_after(before)
                        job.await_step(job.step() + 20)
                    wait_until("workers can be started", lambda: job.said("workers can be started again"))
                else:
                    job.kill(job.workers()[0])
                    job.await_epoch_after(before)
                job.await_size(3)
            if supervised:
                before = job.epoch()
                with NoDescriptors(job.launcher()):
                    os.kill(job.coordinator(), signal.SIGKILL)
                    fails_again(job, "the coordinator")
                    job.await_step(job.step() + 20)
                wait_until("all are back", lambda: job.said(f"all 3 workers of membership epoch {before} are back: training continues"))
                job.await_step(job.step() + 20)
                assert job.epoch() == before, job.log()
            job.process.send_signal(signal.SIGTERM)
            job.ends()
            job.judge()


def full_disk(programs, scratch):
    """The disk of $TMPDIR is full, from before the job on, and the folder of --output cannot be used any more: workers are lost and replaced, with a line
    about their output, and the ones that are started when the folder can be used have their files."""
    private_mounts()
    disk, logs = SmallDisk(os.path.join(scratch, "disk"), "1m"), os.path.join(scratch, "logs")
    os.environ["TMPDIR"] = disk.path
    disk.fill()

    def replaced(job):
        before = job.epoch()
        job.kill(job.workers()[0])
        job.await_epoch_after(before)
        job.await_size(2)

    try:
        for name, supervised in (("launcher", []), ("supervisor", ["--supervised"])):
            with VectorJob(programs, scratch, name, n=2, least=1, flags=["--output", f"{logs}/{name}", *supervised], steps=FOR_EVER) as job:
                job.await_step(20)
                shutil.rmtree(f"{logs}/{name}")
                with open(f"{logs}/{name}", "w"):
                    pass
                replaced(job)
                replaced(job)
                assert len(re.findall(rf"--output: cannot make '{logs}/{name}/rank.\d'", job.log())) == 1, job.log()
                os.remove(f"{logs}/{name}")
                replaced(job)
                assert os.listdir(f"{logs}/{name}") == ["rank.4"] and job.steps_lost() <= 3, job.log()
                job.process.send_signal(signal.SIGTERM)
                job.ends()
                job.judge()
    finally:
        disk.close()
