"""Tests of elastic jobs on one host, `cohort run --min-n` and `cohort train --min-n`: check.py <programs> <claim>"""
import os
import random
import re
import signal
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from claims_coordinator import cleared, coordinated, given_up, orphaned, silent, supervised  # noqa: E402
from claims_drifting import drifting  # noqa: E402
from claims_failures import failing, killed_early, last_checkpoint, reset, stalled  # noqa: E402
from claims_launcher import full_disk, no_descriptors  # noqa: E402
from claims_shards import shards_coordinated, shards_killed, shards_left, shards_lost  # noqa: E402
from jobs import FOR_EVER, LIMIT, SLOWDOWN, Job, Runs, VectorJob, wait_until  # noqa: E402
from membership_changes import leaves_and_another_comes, lose_one_of_three  # noqa: E402
from runs import TINY  # noqa: E402


def launched(programs, scratch):
    """`cohort run --min-n`: a killed worker is replaced, one that was asked leaves, one more joins; all of it is logged, and the job ends well."""
    rng = random.Random(7)
    with VectorJob(programs, scratch, "run", n=3, least=2, most=4, steps=FOR_EVER) as job:
        for _ in range(3):
            job.await_size(3)
            job.await_step(job.step() + rng.randrange(5, 60))
            before, lost = job.epoch(), job.steps_lost()
            job.kill(rng.choice(job.workers()))
            job.await_epoch_after(before)
            assert job.steps_lost() - lost <= 1, job.log()
        job.await_size(3)
        job.process.send_signal(signal.SIGUSR2)
        job.await_size(4)
        job.kill(job.workers()[0], signal.SIGUSR1)
        job.await_size(3)
        job.process.send_signal(signal.SIGTERM)
        job.ends()
        assert job.said("is lost: ") and job.said(r"worker \d+ \(rank \d\) \(process \d+\) ended: killed by SIGKILL") and job.said("leaves: SIGUSR1"), job.log()
        job.judge()


def abandoned(programs, scratch):
    """No worker is left and none may be started: the job ends, with a reason and a status other than 0. No process is left."""
    with VectorJob(programs, scratch, "run", n=2, least=1, flags=["--respawns", "0"], steps=1000000) as job:
        job.await_step(20)
        for pid in job.workers():
            job.kill(pid)
        job.ends(status=128 + signal.SIGKILL)
        assert job.said("no worker is left"), job.log()


def killed(programs, scratch):
    """kill -9 at random steps: survivors continue, a replacement joins, at most one step is computed again, and the bits are those of a run without
    faults with the same numbers of ranks at the same steps."""
    rng = random.Random(6)
    with Job(programs, scratch, "run", n=3, least=2, steps=FOR_EVER, optimizer="adam(lr=1e-3)") as job:
        for kill in range(2):
            lose_one_of_three(job, rng, f"kill {kill}")
        job.await_size(3)
        job.await_step(job.step() + 20)
        job.stops()
        assert job.said(r"is lost: "), job.log()
        assert job.said(r"continue after step \d+"), job.log()
        assert job.said(r"with the state of rank 0 \(process \d+\)"), job.log()
        job.judge()
        job.same_as_replay()


def preempted(programs, scratch):
    """SIGUSR1 to a worker: it ends well after its step, no step is computed again, the others continue; SIGUSR2 to the launcher adds one more."""
    with Job(programs, scratch, "run", n=3, least=1, steps=FOR_EVER) as job:
        job.await_step(20)
        leaves_and_another_comes(job, job.workers()[1], 20)
        assert job.steps_lost() == 0, job.log()
        assert job.said("leaves: SIGUSR1"), job.log()
        job.judge()
        job.same_as_replay()


def stopped(programs, scratch):
    """A stopped worker is evicted after --lost-after; resumed it does no harm, and joins as a new one."""
    with Job(programs, scratch, "run", n=3, least=1, flags=["--respawns", "0", "--lost-after", "1s"], steps=FOR_EVER) as job:
        job.await_step(20)
        stopped_pid = job.pid_of(0)  # the one that writes checkpoints and metrics
        at = job.kill(stopped_pid, signal.SIGSTOP)
        job.await_size(2)
        print(f"evicted after {time.monotonic() - at:.2f} s")
        assert job.said("no heartbeat for 1 s"), job.log()
        job.kill(stopped_pid, signal.SIGCONT)
        job.await_size(3)
        job.await_step(job.step() + 20)
        job.stops()
        assert job.said("it may join as new"), job.log()
        job.judge()
        job.same_as_replay()


def ended(programs, scratch):
    """Without faults an elastic run has the bits of a fixed one, and ends by itself; stopped by SIGTERM, started again it continues from there."""
    with Job(programs, scratch, "whole", n=2, least=1, steps=60, data__test="synthetic(samples=101, split=test)", epochs=3) as job:
        job.ends()
        job.judge()
        job.runs.train("fixed", n=2, **job.sets)
        assert job.runs.tensors("whole") == job.runs.tensors("fixed"), job.log()
        assert [m["test_loss"] for m in job.runs.metrics("whole") if "test_loss" in m] == \
            [m["test_loss"] for m in job.runs.metrics("fixed") if "test_loss" in m]
    with Job(programs, scratch, "run", n=2, least=1, steps=FOR_EVER) as job:
        job.await_step(50)
        job.stops()
        step = job.step()
        again = job.runs.train("run", n=2, **{**job.sets, "steps": step + 5})
        assert f"goes on after update {step}\n" in again.stdout, again.stdout


def last_one(programs, scratch):
    """The only worker leaves and saves the state; the next one continues after that step, without further waiting."""
    with Job(programs, scratch, "run", n=1, least=1, steps=FOR_EVER) as job:
        for _ in range(3):
            job.await_step(job.step() + 20)
            leaver, before = job.pid_of(0), job.epoch()
            at = job.kill(leaver, signal.SIGUSR1)
            took = job.await_epoch_after(before) - at
            wait_until("the worker ends", lambda: leaver not in job.workers())
            assert took < 10 * SLOWDOWN, f"{took:.1f} s\n{job.log()}"
        saved = [int(step) for step in re.findall(r"saved update (\d+) in ", job.log())]
        begun = [line["step"] for _, line in job.history() if line["event"] == "restart" and line["epoch"] > 1]
        assert saved == begun and len(saved) == 3, job.log()
        job.stops()
        job.judge()


class FlippingJob(Job):
    """One of its workers flips a bit after step 7."""

    def words(self, n, limits):
        words = [self.runs.cohort, "run", "-n", str(n), *limits, "--", os.path.join(self.programs, "train_flip"), "1", "7", f"out={self.runs.path(self.name)}"]
        return words + [f"{key.replace('__', '.')}={value}" for key, value in {**TINY, **self.sets}.items()]


def flipped(programs, scratch):
    """A bit flips in one worker of an elastic job: the job ends on all of them, names the rank and the tensor, and no worker is restarted. Ranks compare
    every check_replicas steps, and whenever the roster changes: afterwards all would have the state of one."""
    with FlippingJob(programs, scratch, "steps", 3, 2, steps=30, checkpoint__every_steps=5, check_replicas=4) as job:
        job.ends(1)
        assert job.said(r"job '.*' gives up: after update 8 rank 1 holds other values than the others: 'fc1.weight' is the first"), job.log()
        assert not job.said("continue after step") and not job.said("epoch 2"), job.log()
        assert [path[-8:] for path in job.runs.checkpoints("steps")] == ["00000005"], job.runs.checkpoints("steps")
    with FlippingJob(programs, scratch, "change", 4, 2, steps=FOR_EVER, check_replicas=10**6) as job:
        wait_until("the flip", lambda: job.said(r"process (\d+) flips a bit"))
        culprit = int(job.said(r"process (\d+) flips a bit")[1])
        job.kill(next(pid for pid in job.workers() if pid != culprit))
        job.ends(1)
        assert job.said(r"job '.*' gives up: after update \d+ rank \d+ holds other values than the others: 'fc1.weight' is the first"), job.log()


def refused(programs, scratch):
    """Settings that cannot be elastic are refused with a reason, before anything starts; so are checkpoints that cannot be resumed from."""
    runs = Runs(programs, scratch)
    for sets, words in (({"engine.early_update": "true"}, "could not be called off"),
                        ({"sync_batch_norm": "true"}, "tied to one set of ranks"), ({"backend": "gloo", "deterministic": "false"}, "take backend=native")):
        done = runs.call(runs.command("run", 2, **sets) + ["--min-n", "1"], status=2)
        assert words in done.stderr, done.stderr
    done = runs.call(runs.command("run", 2) + ["--min-n", "3"], status=2)
    assert "min <= n <= max" in done.stderr, done.stderr
    done = runs.call(runs.command("run", 2) + ["--max-n", "3"], status=2)
    assert "--max-n without --min-n" in done.stderr, done.stderr
    sets = {"epochs": 0, "steps": 4, "data__test": ""}  # a job that cannot resume ends: workers started again could not either
    runs.train("run", **sets)
    for why, change in (("seed: 1 -> 2: it is in the middle of epoch 1", {"seed": 2}), ("none of the checkpoints in .* can be used", {})):
        done = runs.call(runs.command("run", 2, **{**sets, "steps": 8}, **change) + ["--min-n", "1"], status=2)
        assert re.search(f"gives up: .*{why}", done.stderr), done.stderr
        for path in runs.checkpoints("run"):
            os.truncate(f"{path}/model.safetensors", 50)


def same_name(programs, scratch):
    """Two launches of one `--job` name are two jobs: the second is refused the run's folder. Where rank 0 moves it is still the first. Taken
    over, the first ends with the name of the second, which goes on from its checkpoint."""
    class Named(Job):
        def words(self, n, limits, **sets):
            options = self.runs.command(self.name, n, **{**self.sets, "out": self.runs.path(self.name), **sets})[6:]
            return [self.runs.cohort, "run", "-n", str(n), "--job", "mine", *limits, "--", os.path.join(programs, "cohort-worker"), "train", *options]

    with Named(programs, scratch, "run", n=2, least=1, steps=FOR_EVER, checkpoint__every_steps=5) as job:
        job.await_step(20)
        again = lambda **sets: job.words(1, ["--min-n", "1", "--respawns", "0"], **sets)
        refused = job.runs.call(again(), status=2).stderr
        assert re.search(r"/run belongs to a run that goes on: process \d+ on .*\(job mine\.[0-9a-f]{12}\)", refused), refused
        epoch = job.epoch()
        job.kill(job.pid_of(0))
        job.await_epoch_after(epoch)
        job.await_step(job.step() + 20)
        assert not job.said("taken over"), job.log()
        done = job.runs.call(again(steps=2, checkpoint__takeover="true"))  # it is beyond that: nothing is left to do
        assert "goes on after update" in done.stdout, done.stdout
        assert job.process.wait(LIMIT) != 0, job.log()
        assert job.said(r"/run was taken over by .*job mine\.[0-9a-f]{12}"), job.log()


def unfit(programs, scratch):
    """A file of settings or of data that changes while the job runs: workers that start later and read it end again, three of them at most; the
    others continue with what they have."""
    def write(path, text):
        with open(path + ".new", "w") as new:
            new.write(text)
        os.rename(path + ".new", path)  # a worker reads the one or the other

    file, table = os.path.join(scratch, "settings.yaml"), os.path.join(scratch, "train.csv")
    write_settings = lambda text: write(file, text)
    rows = [f"{i % 2},{i % 256},7,9,{200 - i % 100}\n" for i in range(101)]
    write_settings("seed: 1\n")
    write(table, "".join(rows[:100]))
    with Job(programs, scratch, "run", n=2, least=1, flags=[file], steps=FOR_EVER, model="mlp(in=4, hidden=3, out=2)",
             data__train=f"csv(file={table}, shape=1x2x2)") as job:
        job.await_step(20)
        write_settings("seed: 2\n")
        job.kill(job.workers()[1])
        wait_until("no worker is started any more", lambda: job.said("no more workers are started"))
        assert job.said("the settings differ: .*seed"), job.log()
        job.await_step(job.step() + 20)
        write_settings("seed: 1\n")
        job.process.send_signal(signal.SIGUSR2)
        job.await_size(2)
        job.await_step(job.step() + 20)
        write(table, "".join(rows))
        job.kill(job.workers()[1])
        wait_until("a worker with other data ends", lambda: job.said("the data differ: .*number of samples: 100 on rank 0 but 101 on rank 1; this worker cannot"))
        write(table, "".join(rows[:100]))
        job.await_size(2)
        job.await_step(job.step() + 20)
        job.stops()
        job.judge()


CLAIMS = (launched, abandoned, coordinated, given_up, failing, full_disk, killed_early, last_checkpoint, no_descriptors, reset, stalled, cleared, killed,
          preempted, stopped, supervised, orphaned, silent, ended, last_one, shards_killed, shards_left, shards_coordinated, shards_lost, flipped, refused,
          same_name, unfit, drifting)
with tempfile.TemporaryDirectory(prefix="cohort-elastic-") as folder:
    {claim.__name__: claim for claim in CLAIMS}[sys.argv[2]](os.path.abspath(sys.argv[1]), folder)
