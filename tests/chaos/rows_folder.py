"""Elastic training runs whose folder or port has trouble: 35 a full disk while the membership changes, 36 the port of the metrics is taken, 37 a second job
with the same folder, 40 checkpoints/ is removed. A try is one fault; what a job has written is judged at its end."""
import os
import re
import shutil
import signal
import socket
import tempfile
import time
import urllib.request

from coordinators import descendants
from isolated import SmallDisk, private_mounts
from jobs import FOR_EVER, Job, wait_until
from rows_disk import all_whole, newest_loads
from rows_elastic import Watched

RANKS, TRIES_A_JOB = 3, 4
NEXT_STEP = 5.0  # seconds after the fault
SETTINGS = {"steps": FOR_EVER, "checkpoint__every_steps": 20, "checkpoint__keep": 2}
FLAGS = ["--respawns", "100000"]
DISK = "4m"


def newest(job):
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
    """A membership change; returns when it was asked for, and when the next epoch has committed a step."""
    epoch, pid = job.epoch(), job.pid_of(0 if "rank 0" in kind else RANKS - 1)
    at = time.monotonic()
    os.kill(pid, signal.SIGUSR1 if "leaves" in kind else signal.SIGKILL)
    took = job.await_epoch_after(epoch) - at
    if "leaves" in kind:
        wait_until("it ends", lambda: not os.path.exists(f"/proc/{pid}"))
        job.process.send_signal(signal.SIGUSR2)  # one for the one that left
    return took


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
    """A port of this process, where another program would listen."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.number = self.listener.getsockname()[1]

    def close(self):
        self.listener.close()


def page_of(job, since=0):
    url = re.findall(r"(?:metrics at|metrics are at) (http\S+)", job.log()[since:])[-1]
    return url, urllib.request.urlopen(url, timeout=10).read().decode()


def row36(chaos, tries):
    """Another program has the port when the job begins, or the rank 0 before has it, which is stopped. The new rank 0 has its page elsewhere, and says
    where."""
    def one(job, i):
        mark, lost = len(job.log()), job.steps_lost()
        port, epoch, rank0 = job.fault.number, job.epoch(), job.pid_of(0)
        taken = rf":{port}.*; the metrics are at (http\S+) instead"
        if i % TRIES_A_JOB == 0:
            assert job.said(taken), job.log()
        stopped = i % 2 == 1
        at = time.monotonic()
        os.kill(rank0, signal.SIGSTOP if stopped else signal.SIGKILL)
        recover = job.await_epoch_after(epoch) - at - (2.0 if stopped else 0)  # --lost-after
        wait_until("the new rank 0 has a page", lambda: job.said(taken, mark))
        url, page = page_of(job, mark)
        assert "cohort_step " in page and not url.split("/")[2].endswith(f":{port}"), (url, page)
        if stopped:
            os.kill(rank0, signal.SIGKILL)
        again = job.steps_lost() - lost
        return chaos.tried(f"36 the port is taken, rank 0 is {'stopped' if stopped else 'killed'}", recover <= chaos.limit(NEXT_STEP) and again <= 1,
                           recover=recover, lost=again, why=job.log()[-1500:])

    for first in range(0, tries, TRIES_A_JOB):
        port = TakenPort()
        in_jobs(chaos, min(TRIES_A_JOB, tries - first), "port", one, {"observe__prometheus_port": port.number}, lambda _, port=port: port, replay=False)


def refused(chaos, job):
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
    more, and ends with status 1. Both histories are judged by themselves: the second begins from a checkpoint of the first."""
    everyone = [job.process.pid, *descendants(job.process.pid)]
    for pid in everyone:
        os.kill(pid, signal.SIGSTOP)
    kept, history = newest(job), Job(chaos.programs, folder, "second", 2, 1, 2, FLAGS, **{
        **job.sets, "out": job.runs.path(job.name), "steps": newest(job) + 30, "checkpoint__takeover": "true"})
    with history as second:
        second.ends()
        second.judge()
        assert second.step() == kept + 30, second.log()
    ours = job.runs.checkpoints(job.name)
    at = time.monotonic()
    for pid in everyone:
        os.kill(pid, signal.SIGCONT)
    wait_until("it says that it was taken over", lambda: job.said("has taken over") and job.said("saves no more") or job.process.poll() is not None)
    detect = time.monotonic() - at
    job.process.send_signal(signal.SIGTERM)
    job.ends(status=1)
    job.judge()
    assert job.runs.checkpoints(job.name) == ours and newest_loads(job.runs, job.name) == kept + 30, (job.runs.checkpoints(job.name), ours, job.log())
    return detect


def row37(chaos, tries):
    def body():
        with tempfile.TemporaryDirectory(prefix="cohort-chaos-") as folder:
            with Job(chaos.programs, folder, "run", 2, 1, 2, FLAGS, **SETTINGS) as job:
                await_checkpoint(job)
                recover = refused(chaos, job)
                return {"detect": taken_over(chaos, job, folder), "recover": recover}
    for _ in range(tries):
        if chaos.in_time():
            chaos.attempt("37 a second job, then one that takes the folder over (recover: until it was refused)", body)


def row40(chaos, tries):
    """checkpoints/ is removed, also with the worker that writes it."""
    def one(job, i):
        lost, mark = job.steps_lost(), len(job.log())
        kept = await_checkpoint(job)
        step = job.step()
        shutil.rmtree(job.runs.path(job.name) + "/checkpoints", ignore_errors=True)
        recover = change(job, "rank 0 is killed") if i % 2 else 0
        at = time.monotonic()
        await_checkpoint(job, kept)
        written = time.monotonic() - at
        assert job.step() > step and not job.said("training starts anew|from the beginning", mark), job.log()
        all_whole(job.runs, job.name)
        again = job.steps_lost() - lost
        return chaos.tried(f"40 checkpoints/ removed{', rank 0 killed' if i % 2 else ''}", recover <= chaos.limit(NEXT_STEP) and again <= 1, detect=written,
                           recover=recover, lost=again, why=job.log()[-1500:])
    in_jobs(chaos, tries, "removed", one)


for limited in (row35, row36, row37, row40):
    limited.most = 20
ROWS = {"35": row35, "36": row36, "37": row37, "40": row40}
