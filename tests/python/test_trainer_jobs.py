"""cohort.Trainer in jobs of its own: workers that are lost and replaced, signals, the program itself."""
import contextlib
import json
import math
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

import launch

LIMIT = 60 * launch.SLOWDOWN
EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "python" / "own_model_trainer.py"

# Trains until a file "stop" is there; writes down its steps.
PROGRAM = """
import json, os, pathlib, sys, time, torch, cohort
folder, steps, sync = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
torch.manual_seed(os.getpid())  # first values are rank 0's
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
data = [(torch.full((4,), i / 20 - 1), int(i >= 20)) for i in range(40)]
trainer = cohort.Trainer(model, data, out=str(folder / "run"), epochs=0, steps=steps, sync=sync, data={"batch": 2}, threads=1,
                         optim={"schedule": "constant"}, observe={"tensorboard": False, "report": False})
log = open(folder / f"{os.getpid()}.jsonl", "w")

@trainer.after_step
def note(step):
    whole = "stage=3" not in sync
    total = float(sum(p.detach().double().sum() for p in model.parameters())) if whole else 0
    print(json.dumps([step.number, trainer.rank, trainer.size, total, step.loss]), file=log, flush=True)
    if trainer.size == 1 and "buddy" in sync:
        time.sleep(0.1)  # it shall not be over before another worker comes
    if (folder / "stop").exists():
        trainer.leave("a file says so")

try:
    summary = trainer.run()
    print("ended", summary.steps, summary.ended_early, float(sum(p.detach().double().sum() for p in model.parameters())), flush=True)
except KeyboardInterrupt:
    print("interrupted", len(model.state_dict()), flush=True)
    raise
"""


class Program:
    """`with Program(folder, "-n", "2") as job`: PROGRAM under `cohort run`, or without options alone."""

    def __init__(self, folder, *options, steps=100_000_000, sync="all_reduce(op=sum)"):
        self.folder = folder
        launcher = [launch.COHORT, "run", *options, "--"] if options else []
        self.path = folder / "log"
        with open(self.path, "w", encoding="utf-8") as log:
            program = [sys.executable, "-c", PROGRAM, str(folder), str(steps), sync]
            self.process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *launcher, *program], env=launch.environment(), stdout=log,
                                            stderr=subprocess.STDOUT)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(LIMIT)

    def log(self):
        return self.path.read_text()

    def steps(self):
        """{pid: its steps}, each [number, rank, ranks, sum of the parameters, loss]."""
        found = {}
        for path in self.folder.glob("*.jsonl"):
            text = path.read_text()
            found[int(path.stem)] = [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines()]
        return {pid: steps for pid, steps in found.items() if steps}

    def wait_until(self, what, holds):
        until = time.monotonic() + LIMIT
        while not holds():
            assert self.process.poll() is None, f"it ended before {what}\n{self.log()}"
            assert time.monotonic() < until, f"{what}: not within {LIMIT} s\n{self.log()}"
            time.sleep(0.02)

    def await_workers(self, count, without=frozenset(), after=0):
        """So many processes, none of those, at one step together; returns {pid: rank}."""
        found = {}

        def came():
            newest = {pid: steps[-1] for pid, steps in self.steps().items() if pid not in without}
            found.clear()
            found.update({pid: step[1] for pid, step in newest.items() if step[2] == count and step[0] > after})
            return len(found) == count

        self.wait_until(f"{count} workers that are none of {sorted(without)}", came)
        return dict(found)

    def ends(self):
        status = self.process.wait(LIMIT)
        return status, self.log()


ELASTIC = ["-n", "2", "--min-n", "1", "--start-timeout", f"{30 * launch.SLOWDOWN}s", "--lost-after", f"{2 * launch.SLOWDOWN}s",
           "--timeout", f"{5 * LIMIT}s"]


def test_a_killed_worker_is_replaced_and_the_run_goes_on_from_memory(tmp_path):
    with Program(tmp_path, *ELASTIC) as job:
        workers = job.await_workers(2, after=3)
        killed = next(pid for pid, rank in workers.items() if rank == 0)  # whose state the others have had so far
        os.kill(killed, signal.SIGKILL)
        reached = max(step[0] for steps in job.steps().values() for step in steps)
        job.await_workers(2, {killed}, after=reached)
        job.process.send_signal(signal.SIGTERM)
        status, log = job.ends()
    assert status == 0 and "Traceback" not in log, log
    assert "go on after update" in log and "SIGKILL" in log, log
    sums = {}  # every step that was made has one result, on all ranks and over the loss
    for steps in job.steps().values():
        for number, _, _, total, _ in steps:
            assert sums.setdefault(number, total) == total, number
    missing = set(range(1, max(sums) + 1)) - set(sums)  # the step under way when a rank was lost counts, and after_step() is not called for it
    assert len(missing) <= 1 and all(number > job.steps()[killed][-1][0] for number in missing), missing


def test_an_elastic_run_that_nothing_happens_to_ends_on_every_rank_with_its_summary(tmp_path):
    with Program(tmp_path, *ELASTIC, steps=7) as job:
        status, log = job.ends()
    assert status == 0 and len(set(re.findall("ended 7 False (.*)", log))) == 1 and log.count("ended 7") == 2, log


# No file may grow as large as a checkpoint needs. Buckets are files too, smaller ones.
NO_ROOM = """
import os, resource, sys, torch, cohort
model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(9)])
data = [(torch.ones(64) * i, torch.ones(64)) for i in range(8)]
trainer = cohort.Trainer(model, data, out=sys.argv[1], epochs=0, steps=3, data={"batch": 2}, threads=1, optim={"schedule": "constant"},
                         optimizer="sgd(lr=1e-6)", engine={"bucket": "8KiB", "first_bucket": "8KiB"}, checkpoint={"last_try": "1s"},
                         observe={"tensorboard": False, "report": False})
resource.setrlimit(resource.RLIMIT_FSIZE, (110_000, 110_000))
try:
    trainer.run()
except cohort.NotSavedError as error:
    assert not error.summary.saved and error.summary.steps == 3 and error.summary.lost == str(error)
    assert all(p.isfinite().all() for p in model.parameters())
    print("rank", trainer.rank, "raised", flush=True)
    raise
"""


@pytest.mark.parametrize("options", [[], ["-n", "2"], ["-n", "2", "--min-n", "1"]], ids=["alone", "fixed", "elastic"])
def test_a_last_checkpoint_that_cannot_be_written_is_raised_and_ends_the_program_with_a_status(tmp_path, options):
    launcher = [launch.COHORT, "run", *options, "--grace", "60s", "--"] if options else []
    done = subprocess.run([*launcher, sys.executable, "-c", NO_ROOM, str(tmp_path / "run")], env=launch.environment(), text=True,
                          capture_output=True, timeout=3 * LIMIT)
    assert done.returncode != 0 and "rank 0 raised" in done.stdout, done.stdout + done.stderr
    lost = "NotSavedError: the run ended, but its last checkpoint could not be written: updates 1 to 3 are lost: there is no checkpoint in "
    assert lost in done.stderr, done.stdout + done.stderr


@pytest.mark.long
def test_with_sharded_state_the_part_of_a_killed_worker_comes_from_its_buddy(tmp_path):
    sync, steps = "zero(stage=3, op=sum, buddy=true)", 2000
    with Program(tmp_path, *ELASTIC, sync=sync, steps=5) as job:
        status, log = job.ends()
    assert status != 0 and "--worker-state shard (buddy where buddy=true)" in log, log
    with Program(tmp_path, *ELASTIC, "--worker-state", "buddy", sync=sync, steps=steps) as job:
        workers = job.await_workers(2, after=300)
        os.kill(next(iter(workers)), signal.SIGKILL)
        status, log = job.ends()
    ended = re.findall(f"ended {steps} False (.*)", log)
    assert status == 0 and len(ended) == 2 and len(set(ended)) == 1, log
    came = [steps for pid, steps in job.steps().items() if pid not in workers]
    assert came and all(step[4] < 0.6 * math.log(2) for steps in came for step in steps[:20]), came  # not with first values


def test_sigterm_ends_the_run_after_the_step_with_a_checkpoint_and_the_same_program_goes_on(tmp_path):
    with Program(tmp_path, "-n", "2") as job:
        job.await_workers(2, after=2)
        job.process.send_signal(signal.SIGTERM)
        status, log = job.ends()
    ended = re.findall(r"ended (\d+) True", log)
    assert len(ended) == 2 and len(set(ended)) == 1 and "got SIGTERM: the run ends after update" in log, log
    (tmp_path / "stop").touch()
    with Program(tmp_path, "-n", "2") as job:
        status, log = job.ends()
    assert status == 0 and re.findall(r"ended (\d+) True", log) in ([str(int(ended[0]) + n)] * 2 for n in (1, 2)), log


def test_control_c_ends_it_wherever_it_waits(tmp_path):
    with Program(tmp_path) as job:
        job.await_workers(1, after=2)
        job.process.send_signal(signal.SIGINT)
        status, log = job.ends()
    assert status != 0 and "KeyboardInterrupt" in log and "interrupted 4" in log, log
    other = tmp_path / "two"
    other.mkdir()
    with Program(other, "-n", "2") as job:
        workers = job.await_workers(2, after=2)
        stopped = next(pid for pid, rank in workers.items() if rank == 1)
        os.kill(stopped, signal.SIGSTOP)  # rank 0 waits for it, in C++
        waiting = next(pid for pid, rank in workers.items() if rank == 0)
        os.kill(waiting, signal.SIGINT)
        job.wait_until("rank 0 is interrupted", lambda: "interrupted 4" in job.log())
        with contextlib.suppress(ProcessLookupError):  # the launcher may have killed it
            os.kill(stopped, signal.SIGCONT)
        status, log = job.ends()
    assert status != 0 and "KeyboardInterrupt" in log, log


def test_the_example_learns_on_two_ranks(tmp_path):
    done = launch.launch(2, EXAMPLE, "--out", tmp_path / "run", "--sync", "zero(stage=3)", timeout=120)
    assert done.returncode == 0, launch.ending(done)
    assert float(re.search(r"accuracy on other points: ([0-9.]+) %", done.stdout)[1]) > 90, done.stdout
    assert (tmp_path / "run" / "metrics.jsonl").exists()
