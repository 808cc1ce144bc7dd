"""Disks: 13 slow, 14 full or broken."""
import errno
import json
import os
import re
import resource
import signal
import statistics
import subprocess
import tempfile
import time

from runs import LIMIT, Runs, wait_until, workers
from shim import Shim
from suites import run_claim, run_suite

SLOWER = 0.05            # of a step while the disk hangs
SLOW_MS, PERIOD_S = 5000, 1.5
SMALL = {"model": "mlp(in=784, hidden=64x64, out=10)", "data__test": "", "epochs": 0, "checkpoint__every_epochs": 0, "optim__schedule": "constant",
         "threads": 1}


class Shimmed(Runs):
    """Runs under the shim, whose folder is that of the checkpoints."""

    def __init__(self, programs, folder, name="run"):
        super().__init__(programs, folder)
        self.shim, self.saved = Shim(folder), self.path(name) + "/checkpoints"
        self.shim.set(folder=self.saved)
        self.env = {**self.env, **self.shim.env}

    def steps(self, name="run"):
        lines = self.metrics(name)
        return lines[-1]["step"] if lines else 0

    def end(self, job):
        if job.poll() is None:
            job.kill()
        job.wait(LIMIT)


def newest_loads(runs, name="run"):
    """The step of the newest checkpoint that `cohort reshard` takes, which compares every digest."""
    out = runs.path("loaded.safetensors")
    if os.path.exists(out):
        os.remove(out)
    env = {k: v for k, v in runs.env.items() if k != "LD_PRELOAD"}
    done = subprocess.run([runs.cohort, "reshard", runs.path(name), out, "--consolidate", "--json"], capture_output=True, text=True, timeout=LIMIT, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])["step"]


def all_whole(runs, name="run"):
    """Everything with the name of a checkpoint is complete."""
    for path in runs.checkpoints(name):
        out = runs.path("whole.safetensors")
        if os.path.exists(out):
            os.remove(out)
        env = {k: v for k, v in runs.env.items() if k != "LD_PRELOAD"}
        done = subprocess.run([runs.cohort, "reshard", path, out, "--consolidate"], capture_output=True, text=True, timeout=LIMIT, env=env)
        assert done.returncode == 0, f"{path}: {done.stderr}"


def median_step(runs, begin, end):
    times = [line["time"] for line in runs.metrics("run") if "loss" in line and begin <= line["time"] <= end]
    assert len(times) > 8, f"only {len(times)} steps in {end - begin:.1f} s"
    return statistics.median(b - a for a, b in zip(times, times[1:]))


def row13(chaos, tries):
    """Periods with a disk whose fsync takes 5 s between periods with a quick one: steps take as long, checkpoints are skipped, which is logged."""
    def body():
        with tempfile.TemporaryDirectory(prefix="cohort-chaos-") as folder:
            runs = Shimmed(chaos.programs, folder)
            job = runs.start("run", n=2, checkpoint__every_steps=40, steps=10**8, **SMALL)
            try:
                wait_until("some steps", lambda: runs.steps() > 100)
                quick, slow = [], []
                for _ in range(4):
                    for delay, into in ((0, quick), (SLOW_MS, slow)):
                        runs.shim.set(fsync_delay_ms=delay)
                        begin = time.time()
                        time.sleep(PERIOD_S)
                        into.append(median_step(runs, begin, time.time()))
                assert runs.shim.get("slept") > 0, "no fsync was ever slow"
                log = runs.log("run")
                assert re.search(r"no checkpoint at step \d+: the one before is still being written", log), log
                assert re.search(r"alarm: \d+ checkpoints in a row were left out, .*; look at the disk of ", log), log
                runs.shim.set(fsync_delay_ms=0)
                job.send_signal(signal.SIGTERM)
                ratio = statistics.median(s / q for s, q in zip(slow, quick))
                assert ratio <= 1 + chaos.share(SLOWER), f"a step takes {ratio:.3f} times as long: {slow} and {quick}"
                return {"detect": ratio - 1}
            finally:
                runs.end(job)
    for _ in range(tries):
        if chaos.in_time():
            chaos.attempt("13 fsync takes 5 s (detect: how much slower a step is, of 1)", body)
    run_suite(chaos, "checkpoint_test", "Writer.*WhileTheDisk*:Writer.*HangingDisk*")


row13.most = 3
BREAKS = {"ENOSPC": "No space left on device", "EDQUOT": "Disk quota exceeded", "EIO": "Input/output error", "EROFS": "Read-only file system"}


def broken_for_a_while(chaos, runs, job, begin, end, words):
    """begin() breaks the disk: a checkpoint fails with a message, older ones stay, training continues; end() repairs it: the next checkpoint is written."""
    mark, at = len(runs.log("run")), time.monotonic()
    begin()
    pattern = rf"the checkpoint of step \d+ was not written: .*{words}.*; training goes on"
    wait_until(words, lambda: re.search(pattern, runs.log("run")[mark:]) or job.poll() is not None)
    assert job.poll() is None, runs.log("run")
    detect, step = time.monotonic() - at, runs.steps()
    before = newest_loads(runs)
    all_whole(runs)
    wait_until("training goes on", lambda: runs.steps() > step + 20 or job.poll() is not None)
    end()
    at = time.monotonic()
    wait_until("a checkpoint after that", lambda: (runs.checkpoints("run") and int(runs.checkpoints("run")[-1][-8:]) > before) or job.poll() is not None)
    assert job.poll() is None, runs.log("run")
    assert newest_loads(runs) > before
    return {"detect": detect, "recover": time.monotonic() - at}


def row14(chaos, tries):
    with tempfile.TemporaryDirectory(prefix="cohort-chaos-") as folder:
        runs = Shimmed(chaos.programs, folder)
        job = runs.start("run", n=2, checkpoint__every_steps=60, checkpoint__keep=2, steps=10**8, **SMALL)
        try:
            wait_until("a checkpoint", lambda: runs.checkpoints("run"))
            for i in range(tries):
                name = list(BREAKS)[i % len(BREAKS)]
                if chaos.in_time():
                    chaos.attempt(f"14 {name}", lambda name=name: broken_for_a_while(
                        chaos, runs, job, lambda: runs.shim.set(error=getattr(errno, name)), lambda: runs.shim.set(error=0), BREAKS[name]))
            pid = workers(job.pid)[0]
            before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
            chaos.attempt("14 EMFILE, a real one", lambda: broken_for_a_while(
                chaos, runs, job, lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, before[1])),
                lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, before), "Too many open files"))
        finally:
            runs.shim.set(error=0)
            runs.end(job)
    run_claim(chaos, "train/check.py", "full_disk")
    run_claim(chaos, "train/check.py", "file_limit")
    run_suite(chaos, "checkpoint_test", "StoreProcess.OnAFullDisk*:Writer.AFailedSave*")


row14.most = 8
ROWS = {"13": row13, "14": row14}
