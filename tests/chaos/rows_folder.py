"""Training runs whose folder or port has trouble: 35 a full disk while the membership changes, 36 the port of the metrics is taken, 40 checkpoints/ is
removed. A try is one fault; what a job has written is judged at its end."""
import os
import re
import shutil
import signal
import socket
import tempfile
import time
import urllib.request

from folder_jobs import NEXT_STEP, RANKS, TRIES_A_JOB, await_checkpoint, change, in_jobs, newest
from isolated import SmallDisk, private_mounts
from jobs import FOR_EVER, Runs, wait_until
from rows_disk import all_whole, newest_loads

DISK = "4m"


def row35(chaos, tries):
    """On a real full disk; the moment is after a checkpoint has failed. A worker is lost, rank 0 is, one leaves, rank 0 leaves, a replacement joins."""
    private_mounts()
    kinds = ("a worker is killed", "rank 0 is killed", "a worker leaves", "rank 0 leaves")

    def one(job, i):
        kind, disk, mark, lost = kinds[i % len(kinds)], job.fault, len(job.log()), job.steps_lost()
        kept = await_checkpoint(job)
        disk.fill()
        failed = r"the checkpoint of step \d+ was not written: .*No space left on device.*; training goes on"
        wait_until("a checkpoint fails", lambda: job.said(failed, mark) or job.process.poll() is not None)
        assert job.process.poll() is None, job.log()
        recover = change(job, kind)
        job.await_size(RANKS)  # a newcomer gets the state from a peer, and needs no disk
        job.await_step(job.step() + 20)
        assert newest(job) >= kept, job.log()
        all_whole(job.runs, job.name)
        disk.free()
        await_checkpoint(job, newest(job))
        again = job.steps_lost() - lost
        return chaos.tried(f"35 the disk is full, {kind}", recover <= chaos.limit(NEXT_STEP) and again <= 1, recover=recover, lost=again, why=job.log()[-1500:])

    in_jobs(chaos, tries, "run", one, prepare=lambda folder: SmallDisk(os.path.join(folder, "run"), DISK))


class TakenPort:
    """A port that another program, this one, listens at, or nobody."""

    def __init__(self):
        self.listener, self.number = None, 0
        self.take()

    def take(self):
        self.listener = socket.create_server(("127.0.0.1", self.number))
        self.number = self.listener.getsockname()[1]

    def close(self):
        self.listener.close()


def page_of(job, since=0):
    """Where the newest rank 0 has its page, by the log from `since` on, and what is on it."""
    url = re.findall(r"metrics at (http\S+)", job.log()[since:])[-1]
    return url, urllib.request.urlopen(url, timeout=10).read().decode()


def rank0_gets_the_port(job, taken):
    """Nobody listens there any more: the next rank 0 does."""
    taken.close()
    mark = len(job.log())
    change(job, "rank 0 is killed")
    wait_until("rank 0 has the port", lambda: job.said(rf"metrics at http://[^/]*:{taken.number}/", mark))
    job.await_size(RANKS)


def row36(chaos, tries):
    """Another program has the port, also when the job begins, and rank 0 is killed; or rank 0 has it itself, and is stopped. The new rank 0 has its page
    elsewhere, and says where."""
    def one(job, i):
        port, stopped = job.fault, i % 2 == 1
        elsewhere = rf":{port.number}.*; the metrics are at (http\S+) instead"
        if stopped:
            rank0_gets_the_port(job, port)
        else:
            assert job.said(elsewhere), job.log()
        mark, lost, epoch, rank0 = len(job.log()), job.steps_lost(), job.epoch(), job.pid_of(0)
        at = time.monotonic()
        os.kill(rank0, signal.SIGSTOP if stopped else signal.SIGKILL)
        recover = job.await_epoch_after(epoch) - at - (2.0 if stopped else 0)  # --lost-after
        wait_until("the new rank 0 has a page", lambda: job.said(elsewhere, mark) and job.said("metrics at http", mark))
        job.await_size(RANKS)
        url, page = page_of(job, mark)
        assert "cohort_step " in page and f":{port.number}/" not in url, (url, page)
        again = job.steps_lost() - lost
        if stopped:
            os.kill(rank0, signal.SIGKILL)
            wait_until("it ends", lambda: not os.path.exists(f"/proc/{rank0}"))
            port.take()
        return chaos.tried(f"36 {'rank 0 has the port and is stopped' if stopped else 'another has the port, rank 0 is killed'}",
                           recover <= chaos.limit(NEXT_STEP) and again <= 1, recover=recover, lost=again, why=job.log()[-1500:])

    for first in range(0, tries, TRIES_A_JOB):
        port = TakenPort()
        in_jobs(chaos, min(TRIES_A_JOB, tries - first), "port", one, {"observe__prometheus_port": port.number}, lambda _, port=port: port, replay=False)


def removed_in_fixed_job(chaos):
    """The same of a job with a fixed number of ranks: the next save makes the folder again, and says so."""
    with tempfile.TemporaryDirectory(prefix="cohort-chaos-") as folder:
        runs = Runs(chaos.programs, folder)
        job = runs.start("run", epochs=0, steps=FOR_EVER, checkpoint__every_steps=20, checkpoint__every_epochs=0, optim__schedule="constant", data__test="")
        try:
            here = lambda: [int(path[-8:]) for path in runs.checkpoints("run")]
            wait_until("a checkpoint", lambda: here() or job.poll() is not None)
            kept = max(here(), default=0)
            os.rename(runs.path("run") + "/checkpoints", runs.path("removed"))  # in one instant: a save under way would fill it again
            at = time.monotonic()
            wait_until("a checkpoint again", lambda: max(here(), default=0) > kept or job.poll() is not None)
            took = time.monotonic() - at
            all_whole(runs)
            assert f"{runs.path('run')}/checkpoints is gone, with the checkpoints that were in it; it is made again" in runs.log("run"), runs.log("run")
            job.send_signal(signal.SIGTERM)
            assert job.wait(chaos.limit(60)) == 0, runs.log("run")
            assert re.search(rf"the run ends after update {newest_loads(runs)} of", runs.log("run")), runs.log("run")
            return {"detect": took}
        finally:
            job.kill()
            job.wait(chaos.limit(60))


def row40(chaos, tries):
    """checkpoints/ is removed, also with the worker that writes it; every fifth time in a job with a fixed number of ranks."""
    def one(job, i):
        lost, mark = job.steps_lost(), len(job.log())
        kept = await_checkpoint(job)
        step = job.step()
        shutil.rmtree(job.runs.path(job.name) + "/checkpoints", ignore_errors=True)
        recover = change(job, "rank 0 is killed") if i % 2 else 0
        at = time.monotonic()
        await_checkpoint(job, kept)
        written = time.monotonic() - at
        assert job.step() > step and not job.said("restart", mark), job.log()
        all_whole(job.runs, job.name)
        again = job.steps_lost() - lost
        return chaos.tried(f"40 checkpoints/ removed{', rank 0 killed' if i % 2 else ''}", recover <= chaos.limit(NEXT_STEP) and again <= 1, detect=written,
                           recover=recover, lost=again, why=job.log()[-1500:])

    fixed = (tries + TRIES_A_JOB) // (TRIES_A_JOB + 1)
    in_jobs(chaos, tries - fixed, "removed", one)
    for _ in range(fixed):
        if chaos.in_time():
            chaos.attempt("40 checkpoints/ removed, a fixed number of ranks", lambda: removed_in_fixed_job(chaos))


for limited in (row35, row36, row40):
    limited.most = 20
ROWS = {"35": row35, "36": row36, "40": row40}
