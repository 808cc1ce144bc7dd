"""Whose folder it is: 37 a second job with the same folder is refused, and one that takes it over ends the first."""
import re
import signal
import tempfile
import time

from coordinators import descendants
from folder_jobs import FLAGS, SETTINGS, await_checkpoint, newest
from jobs import Job
from left_behind import tell
from rows_disk import newest_loads
from suites import run_claim


class SecondJob(Job):
    """A job with a log and a history of its own in the folder of the first."""

    def words(self, n, limits):
        return self.runs.command("run", n, **self.sets) + limits


def refused(job):
    """A second elastic job of the same command is refused while the first trains, in a line that names it; the first is not disturbed."""
    epoch, rank0 = job.epoch(), job.pid_of(0)
    at = time.monotonic()
    second = job.runs.call(job.runs.command(job.name, 2, **job.sets) + ["--min-n", "1"], status=2)
    took = time.monotonic() - at
    assert re.search(rf"belongs to a run that goes on: process {rank0} on \S+ since .*takeover=true", second.stderr), second.stderr
    job.await_step(job.step() + 20)
    assert job.epoch() == epoch and job.steps_lost() == 0, job.log()
    await_checkpoint(job, newest(job))
    return took


def taken_over(chaos, job, folder):
    """All processes of the first are stopped; a second elastic job takes the folder over and trains to its end. The first goes on, saves and removes nothing
    more, says who has the folder and ends with status 2. Each history is judged by itself: the second begins from a checkpoint of the first."""
    everyone = [job.process.pid, *descendants(job.process.pid)]
    for pid in everyone:
        tell(pid, signal.SIGSTOP)
    kept = newest(job)
    with SecondJob(chaos.programs, folder, "second", 2, 1, 2, FLAGS, **{**job.sets, "checkpoint__takeover": "true", "steps": kept + 30}) as second:
        second.ends()
        second.judge()
        assert second.step() == kept + 30, second.log()
    theirs = job.runs.checkpoints(job.name)
    at = time.monotonic()
    for pid in everyone:
        tell(pid, signal.SIGCONT)
    job.ends(status=2)
    took = time.monotonic() - at
    assert job.said(rf"{job.runs.path(job.name)} was taken over by .*: this run can save nothing there any more"), job.log()
    job.judge()
    assert job.runs.checkpoints(job.name) == theirs and newest_loads(job.runs, job.name) == kept + 30, (job.runs.checkpoints(job.name), theirs, job.log())
    return took


def row37(chaos, tries):
    def body():
        with tempfile.TemporaryDirectory(prefix="cohort-chaos-") as folder:
            with Job(chaos.programs, folder, "run", 2, 1, 2, FLAGS, **SETTINGS) as job:
                await_checkpoint(job)
                recover = refused(job)
                return {"detect": taken_over(chaos, job, folder), "recover": recover}
    for _ in range(tries):
        if chaos.in_time():
            chaos.attempt("37 a second job, then one that takes the folder over (recover: until it was refused)", body)
    run_claim(chaos, "train/check.py", "owner")
    run_claim(chaos, "elastic/check.py", "same_name")


row37.most = 20
ROWS = {"37": row37}
