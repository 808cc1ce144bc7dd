"""Jobs whose folder has trouble: their checkpoints, tries in jobs of several, changes of their workers."""
import os
import signal
import tempfile
import time

from jobs import FOR_EVER, wait_until
from rows_disk import newest_loads
from rows_elastic import Watched

RANKS, TRIES_A_JOB = 3, 4
NEXT_STEP = 5.0  # seconds after the fault
SETTINGS = {"steps": FOR_EVER, "checkpoint__every_steps": 20, "checkpoint__keep": 2}
FLAGS = ["--respawns", "100000"]


def newest(job):
    """The step of the newest checkpoint; 0: there is none."""
    found = job.runs.checkpoints(job.name)
    return int(found[-1][-8:]) if found else 0


def await_checkpoint(job, after=0):
    wait_until(f"a checkpoint after {after}", lambda: newest(job) > after or job.process.poll() is not None)
    assert job.process.poll() is None, job.log()
    return newest(job)


def ends_well(job):
    job.await_size(RANKS)
    job.await_step(job.step() + 5)
    job.stops()
    job.judge()
    assert newest_loads(job.runs, job.name) == job.step(), job.log()


def in_jobs(chaos, tries, name, one, sets=None, prepare=lambda folder: None, replay=True):
    """Jobs of up to TRIES_A_JOB tries: one(job, i) returns what is logged, or raises. A job that ends badly fails all of its tries."""
    for first in range(0, tries, TRIES_A_JOB):
        if not chaos.in_time():
            return
        done, why, undo = [], "", None
        with tempfile.TemporaryDirectory(prefix="cohort-chaos-") as folder:
            try:
                undo = prepare(folder)
                with Watched(chaos.programs, folder, name, RANKS, 1, RANKS, FLAGS, **SETTINGS, **(sets or {})) as job:
                    job.fault = undo
                    await_checkpoint(job)
                    for i in range(first, min(tries, first + TRIES_A_JOB)):
                        if chaos.in_time():
                            job.await_size(RANKS)
                            done.append(one(job, i))
                            chaos.progress(done[-1])
                    ends_well(job)
                    if replay:
                        job.same_as_replay()
            except Exception as broken:  # of any kind: nothing was proven
                why = f"{type(broken).__name__}: {broken}"
                done = done or [chaos.tried(f"{chaos.row} {name}", False)]
            finally:
                if undo:
                    undo.close()
        for t in done:
            t.update({"ok": False, "why": t.get("why", "") + why[-3000:]} if why else {})
        chaos.write(done)


def change(job, kind):
    """A membership change; how many seconds later the next epoch has committed a step."""
    epoch, pid = job.epoch(), job.pid_of(0 if "rank 0" in kind else RANKS - 1)
    at = time.monotonic()
    os.kill(pid, signal.SIGUSR1 if "leaves" in kind else signal.SIGKILL)
    took = job.await_epoch_after(epoch) - at
    if "leaves" in kind:
        wait_until("it ends", lambda: not os.path.exists(f"/proc/{pid}"))
        job.process.send_signal(signal.SIGUSR2)  # one for the one that left
    return took
