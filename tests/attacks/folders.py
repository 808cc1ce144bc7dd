"""Runs whose folder is on a file system that is slow, fails, loses answers, hangs, or lacks links and locks (faulty_folder.py), as NFS may."""
import errno
import os
import random
import signal
import subprocess

from faulty_folder import CHANGES, Fault, FaultyFolder
from isolated import private_mounts
from jobs import FOR_EVER, Job, Runs, wait_until

SETS = {"checkpoint__every_steps": 5, "checkpoint__keep": 3, "epochs": 0, "steps": 60, "data__test": ""}
SEED = 24


def faulty(runs, name="run", **more):
    return FaultyFolder(runs.path(name), runs.path(name + ".behind"), **more)


def steps_behind(folder):
    """Checkpoints as they are on the server."""
    try:
        return sorted(int(name[5:]) for name in os.listdir(f"{folder.behind}/checkpoints") if name.startswith("step-"))
    except FileNotFoundError:
        return []


def all_load(runs, folder):
    """Every folder with the name of a checkpoint is whole."""
    for step in steps_behind(folder):
        whole = f"{folder.behind}-{step}.safetensors"
        runs.call([runs.cohort, "reshard", f"{folder.behind}/checkpoints/step-{step:08d}", whole, "--consolidate", "--optimizer"])
        os.remove(whole)


def learned(folder):
    newest = f"{folder.behind}/checkpoints/step-{steps_behind(folder)[-1]:08d}"
    return [open(f"{newest}/{name}", "rb").read() for name in ("model.safetensors", "optimizer.safetensors")]


def reference(runs, **sets):
    runs.train("plain", **{**SETS, **sets})
    return runs.tensors("plain")


def await_checkpoint(runs, name, run, folder, after=0):
    wait_until(f"a checkpoint of {name} after {after}", lambda: (steps_behind(folder) or [0])[-1] > after or run.poll() is not None)
    assert run.poll() is None, runs.log(name)


def slow_folder(programs, scratch):
    """Every operation takes 20 ms: the run ends well, with the same bits; checkpoints become rarer, and each that is there is whole."""
    private_mounts()
    runs = Runs(programs, scratch)
    expected = reference(runs)
    with faulty(runs) as folder:
        folder.faults = [Fault(delay=0.02)]
        runs.train("run", **{**SETS, "observe__every_steps": 20})
        folder.faults = []
        assert steps_behind(folder)[-1] == 60 and learned(folder) == expected
        all_load(runs, folder)


def lacking_folder(programs, scratch):
    """Without hard links, locks and the exchange of names: the run ends well with the same bits, the missing lock is told once, a second job is refused
    while the first runs, and a third goes on from its checkpoint."""
    private_mounts()
    runs = Runs(programs, scratch)
    expected = reference(runs)
    with faulty(runs, locks=False) as folder:
        folder.faults = [Fault(["link"], error=errno.EOPNOTSUPP), Fault(["rename2"], error=errno.EINVAL)]
        first = runs.start("run", **{**SETS, "steps": FOR_EVER})
        await_checkpoint(runs, "run", first, folder)
        second = runs.train("run", status=2, **SETS)
        assert "belongs to a run that goes on" in second.stderr, second.stderr
        first.send_signal(signal.SIGTERM)
        assert first.wait(90) == 0, runs.log("run")
        assert runs.log("run").count("this file system has no locks") == 1, runs.log("run")
        all_load(runs, folder)
        at = steps_behind(folder)[-1]
        third = runs.train("run", **{**SETS, "steps": at + 10})
        assert f"goes on after update {at}\n" in third.stdout, third.stdout
    with faulty(runs, "other", locks=False) as folder:
        folder.faults = [Fault(["link"], error=errno.EPERM), Fault(["rename2"], error=errno.ENOSYS)]
        runs.train("other", **SETS)
        assert learned(folder) == expected


def failing_folder(programs, scratch):
    """Half of all changes fail for a while, by turns with five errors, or are done and only their answer is lost: training goes on to the same bits, and
    every checkpoint is whole."""
    private_mounts()
    print(f"seed {SEED}")
    runs, rng = Runs(programs, scratch), random.Random(SEED)
    expected = reference(runs, steps=400)
    for kind in ("EIO", "ESTALE", "ENOSPC", "EDQUOT", "ETIMEDOUT", "lost"):
        with faulty(runs, kind) as folder:
            run = runs.start(kind, **{**SETS, "steps": FOR_EVER})
            await_checkpoint(runs, kind, run, folder)
            fault = Fault(CHANGES, error=errno.EIO if kind == "lost" else getattr(errno, kind), lost=kind == "lost", share=0.5, rng=rng)
            folder.faults = [fault]
            wait_until(f"faults of {kind}", lambda: fault.hits > 60 or run.poll() is not None)
            folder.faults = []
            await_checkpoint(runs, kind, run, folder, steps_behind(folder)[-1])
            run.send_signal(signal.SIGTERM)
            assert run.wait(90) == 0, runs.log(kind)
            all_load(runs, folder)
    with faulty(runs, "fixed") as folder:
        folder.faults = [Fault(CHANGES, error=errno.EIO, share=0.02, rng=rng)]
        runs.train("fixed", **{**SETS, "steps": 400})
        folder.faults = []
        assert steps_behind(folder)[-1] == 400 and learned(folder) == expected


def gone_folder(programs, scratch):
    """From some moment on every operation fails, as on a server that forgot the folder: training goes on to its end, which is status 1 and says what is lost.
    What was whole is, and the same command goes on from it when the server is back."""
    private_mounts()
    runs = Runs(programs, scratch)
    sets = {**SETS, "steps": 3000, "checkpoint__last_try": "1s"}
    for name, error, flags in (("fixed", errno.ESTALE, []), ("elastic", errno.EIO, ["--min-n", "1"])):
        with faulty(runs, name) as folder:
            with open(runs.path(name + ".log"), "w") as log:
                run = subprocess.Popen(runs.command(name, **sets) + flags, stdout=log, stderr=subprocess.STDOUT, env=runs.env, cwd=scratch)
            await_checkpoint(runs, name, run, folder)
            folder.faults = [Fault(error=error)]
            assert run.wait(90) == 1, runs.log(name)
            folder.faults = []
            kept = steps_behind(folder)[-1]
            lost = f"its last checkpoint could not be written: updates {kept + 1} to 3000 are lost; the checkpoint of step {kept} was whole"
            assert lost in runs.log(name), runs.log(name)
            assert "nothing was saved" not in runs.log(name), runs.log(name)
            all_load(runs, folder)
            again = runs.train(name, **{**sets, "steps": kept + 5})
            assert f"goes on after update {kept}\n" in again.stdout, again.stdout


def hanging_saves(programs, scratch):
    """Writing into files of checkpoints hangs: training goes on, and says that checkpoints are left out; when the server is back the next one is written."""
    private_mounts()
    runs = Runs(programs, scratch)
    with faulty(runs) as folder:
        run = runs.start("run", **{**SETS, "steps": FOR_EVER})
        await_checkpoint(runs, "run", run, folder)
        folder.faults = [Fault(["write", "fsync"], names="safetensors", hangs=True)]
        wait_until("it hangs", lambda: folder.held or run.poll() is not None)
        at = runs.losses("run")[-1][0]
        wait_until("training goes on", lambda: runs.losses("run")[-1][0] > at + 50 or run.poll() is not None)
        assert "checkpoints in a row were left out" in runs.log("run"), runs.log("run")
        before = steps_behind(folder)[-1]
        folder.faults = []
        folder.release()
        await_checkpoint(runs, "run", run, folder, before)
        run.send_signal(signal.SIGTERM)
        assert run.wait(90) == 0, runs.log("run")
        all_load(runs, folder)


class FolderJob(Job):
    """An elastic job whose operations wait for 5 s only."""

    def words(self, n, limits):
        self.runs.env["COHORT_TIMEOUT"] = "5s"
        return super().words(n, limits)


def hanging_folder(programs, scratch):
    """Every operation hangs. A fixed job ends when the other ranks have waited for COHORT_TIMEOUT, says for what rank 0 waits, and leaves nothing behind. Rank
    0 of an elastic one is evicted; when the server is back the job goes on."""
    private_mounts()
    runs = Runs(programs, scratch)
    runs.env["COHORT_TIMEOUT"] = "15s"
    with faulty(runs, "fixed") as folder:
        run = runs.start("fixed", **{**SETS, "steps": FOR_EVER})
        await_checkpoint(runs, "fixed", run, folder)
        folder.faults = [Fault(hangs=True)]
        assert run.wait(90) == 1, runs.log("fixed")
        assert "missing: rank 0" in runs.log("fixed"), runs.log("fixed")
        assert f"{folder.path} has not answered for 10 s" in runs.log("fixed"), runs.log("fixed")
        folder.faults = []
        all_load(runs, folder)
    with faulty(runs, "elastic") as folder, FolderJob(programs, scratch, "elastic", 2, 1, flags=["--respawns", "100"], steps=FOR_EVER,
                                                      checkpoint__every_steps=20) as job:
        job.await_size(2)
        await_checkpoint(job.runs, "elastic", job.process, folder)
        try:
            folder.faults = [Fault(hangs=True)]
            wait_until("rank 0 is lost", lambda: job.said("is lost: it did not report its progress within") or job.process.poll() is not None)
        finally:
            folder.faults = []
            folder.release()
        job.await_size(2)
        job.await_step(job.step() + 20)
        job.stops()
        job.judge()
        all_load(runs, folder)
