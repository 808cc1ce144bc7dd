"""Claims about `cohort train --min-n`: check.py <programs> <claim>"""
import os
import random
import re
import signal
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from coordinators import Supervised, SupervisedJob, SupervisedVectorJob, alive, family  # noqa: E402
from jobs import FOR_EVER, SLOWDOWN, Job, Runs, VectorJob, wait_until  # noqa: E402
from runs import TINY  # noqa: E402


def launched(programs, scratch):
    """`cohort run --min-n`: a killed worker is replaced, one that was asked leaves, one more comes; all of it is said, and the job ends well."""
    dice = random.Random(7)
    with VectorJob(programs, scratch, "run", n=3, least=2, most=4, steps=FOR_EVER) as job:
        for _ in range(3):
            job.await_size(3)
            job.await_step(job.step() + dice.randrange(5, 60))
            before, lost = job.epoch(), job.steps_lost()
            job.kill(dice.choice(job.workers()))
            job.await_epoch_after(before)
            assert job.steps_lost() - lost <= 1, job.log()
        job.await_size(3)
        job.process.send_signal(signal.SIGUSR2)
        job.await_size(4)
        job.kill(job.workers()[0], signal.SIGUSR1)
        job.await_size(3)
        job.process.send_signal(signal.SIGTERM)
        job.ends()
        assert job.said("is lost: ") and job.said(r"worker \d+ \(process \d+\) ended: killed by SIGKILL") and job.said("leaves: SIGUSR1"), job.log()
        job.judge()


def abandoned(programs, scratch):
    """Nobody is left and nobody may come: the job ends, with a reason and a status that is not 0. Nothing of it stays behind."""
    with VectorJob(programs, scratch, "run", n=2, least=1, flags=["--respawns", "0"], steps=1000000) as job:
        job.await_step(20)
        for pid in job.workers():
            job.kill(pid)
        job.ends(status=128 + signal.SIGKILL)
        assert job.said("no worker is left"), job.log()


def lose_one_of_three(job, dice, which):
    """kill -9 of any worker at any step: the others go on, and compute at most one step again."""
    job.await_size(3)
    job.await_step(job.step() + dice.randrange(5, 40))
    before, lost = job.epoch(), job.steps_lost()
    at = job.kill(dice.choice(job.workers()))
    took = job.await_epoch_after(before) - at
    print(f"{which}: next step after {took:.2f} s, {job.steps_lost() - lost} steps again")
    assert job.steps_lost() - lost <= 1, job.log()


def killed(programs, scratch):
    """kill -9 at random steps: survivors go on, a replacement comes, at most one step is computed again, and the bits are those of a run without
    faults whose ranks came and went at the same steps."""
    dice = random.Random(6)
    with Job(programs, scratch, "run", n=3, least=2, steps=FOR_EVER, optim__rule="adam(lr=1e-3)") as job:
        for kill in range(2):
            lose_one_of_three(job, dice, f"kill {kill}")
        job.await_size(3)
        job.await_step(job.step() + 20)
        job.stops()
        assert job.said(r"is lost: "), job.log()
        assert job.said(r"go on after step \d+"), job.log()
        assert job.said(r"with the state of rank 0 \(process \d+\)"), job.log()
        job.judge()
        job.same_as_replay()


def leaves_and_another_comes(job, leaver, between):
    """SIGUSR1 to one of three workers, SIGUSR2 to the launcher, so many steps after each."""
    job.kill(leaver, signal.SIGUSR1)
    job.await_size(2)
    wait_until("the worker ends", lambda: leaver not in job.workers())
    job.await_step(job.step() + between)
    job.process.send_signal(signal.SIGUSR2)
    job.await_size(3)
    job.await_step(job.step() + between)
    job.stops()


def preempted(programs, scratch):
    """SIGUSR1 to a worker: it ends well after its step, nothing is computed again, the others go on; SIGUSR2 to the launcher brings one more."""
    with Job(programs, scratch, "run", n=3, least=1, steps=FOR_EVER) as job:
        job.await_step(20)
        leaves_and_another_comes(job, job.workers()[1], 20)
        assert job.steps_lost() == 0, job.log()
        assert job.said("leaves: SIGUSR1"), job.log()
        job.judge()
        job.same_as_replay()


def stopped(programs, scratch):
    """A worker that is stopped is left behind after --lost-after; woken up it can do no harm, and is taken in as a new one."""
    with Job(programs, scratch, "run", n=3, least=1, flags=["--respawns", "0", "--lost-after", "1s"], steps=FOR_EVER) as job:
        job.await_step(20)
        asleep = job.pid_of(0)  # the one that writes checkpoints and metrics
        at = job.kill(asleep, signal.SIGSTOP)
        job.await_size(2)
        print(f"left behind after {time.monotonic() - at:.2f} s")
        assert job.said("nothing heard for 1 s"), job.log()
        job.kill(asleep, signal.SIGCONT)
        job.await_size(3)
        job.await_step(job.step() + 20)
        job.stops()
        assert job.said("it may join as new"), job.log()
        job.judge()
        job.same_as_replay()


def coordinated(programs, scratch):
    """--supervised, kill -9 of the coordinator: it is started again, the epoch goes on as if nothing had been. Together with a worker: the others go on
    and a replacement comes, once. A worker that left of its own will before is not replaced by a coordinator that has forgotten why."""
    dice = random.Random(3)
    with SupervisedVectorJob(programs, scratch, "run", n=3, least=1, flags=["--supervised"], steps=FOR_EVER) as job:
        job.await_step(20)
        for _ in range(2):
            job.await_step(job.step() + dice.randrange(1, 60))
            at, again = job.kill_coordinator()
            print(f"another coordinator after {again - at:.3f} s, a step after {job.await_next_step() - at:.3f} s")
            wait_until("all are back", lambda: job.said("all 3 workers of epoch 1 are back: it goes on"))
        assert job.epoch() == 1 and job.steps_lost() == 0, job.log()
        at, _ = job.kill_coordinator([dice.choice(job.workers())])
        print(f"with a worker: the next epoch after {job.await_epoch_after(1) - at:.3f} s, {job.steps_lost()} steps again")
        assert job.steps_lost() <= 1, job.log()
        job.await_size(3)
        job.kill(job.workers()[0], signal.SIGUSR1)
        job.await_size(2)
        before = job.epoch()
        job.kill_coordinator()
        wait_until("both are back", lambda: job.said(f"all 2 workers of epoch {before} are back"))
        job.await_step(job.step() + 50)
        assert job.epoch() == before and len(job.workers()) == 2, job.log()
        job.process.send_signal(signal.SIGTERM)
        job.ends()
        assert job.said(r"the coordinator \(process \d+\) ended: killed by SIGKILL; it is started again \(1 of at most 5 times"), job.log()
        job.judge()


def given_up(programs, scratch):
    """A coordinator that dies again and again is given up, in words; its workers end by themselves, and nothing is left."""
    with SupervisedVectorJob(programs, scratch, "run", n=2, least=1, flags=["--supervised"], steps=FOR_EVER) as job:
        job.await_step(20)
        everybody = family(job.process.pid)
        for _ in range(5):
            job.kill_coordinator()
        job.kill(job.coordinator())
        at = time.monotonic()
        job.ends(status=1)
        print(f"over after {time.monotonic() - at:.2f} s")
        assert job.said("the coordinator ended 6 times within 60 s, the last time killed by SIGKILL: it is given up"), job.log()
        assert not alive(everybody), job.log()


def unsupervised_end(job, whom, limit):
    """Kills it, and waits until nothing is left of the job; how long that took."""
    everybody = family(job.process.pid) + [job.process.pid]
    at = job.kill(whom)
    job.process.poll()
    wait_until("nothing is left", lambda: (job.process.poll(), not alive(everybody))[1])
    took = time.monotonic() - at
    assert took < limit * SLOWDOWN, f"{took} s\n{job.log()}"
    return took


def cleared(programs, scratch):
    """kill -9 of the supervisor, or of the process in front of it: nothing is left within two seconds. The same for workers that are programs of one's own."""
    for name, flags, front in (("a", ["--supervised"], False), ("b", ["--supervised"], True), ("c", [], False), ("d", [], True)):
        with SupervisedVectorJob(programs, scratch, name, n=2, least=1, flags=flags, steps=FOR_EVER) as job:
            job.await_step(20)
            took = unsupervised_end(job, job.process.pid if front else job.launcher(), 2)
            print(f"{'front' if front else 'launcher'} {' '.join(flags)}: nothing left after {took:.2f} s")


def supervised(programs, scratch):
    """`cohort train --supervised`: the coordinator killed at random moments, and once with a worker: the bits of a run without faults."""
    dice = random.Random(4)
    with SupervisedJob(programs, scratch, "run", n=3, least=2, flags=["--supervised"], steps=FOR_EVER, optim__rule="adam(lr=1e-3)") as job:
        job.await_step(20)
        for kill in range(2):
            job.await_size(3)
            job.await_step(job.step() + dice.randrange(1, 30))
            epoch, lost = job.epoch(), job.steps_lost()
            at, _ = job.kill_coordinator([dice.choice(job.workers())] if kill else [])
            took = (job.await_epoch_after(epoch) if kill else job.await_next_step()) - at
            print(f"coordinator{' and worker' if kill else ''}: next step after {took:.2f} s, {job.steps_lost() - lost} steps again")
            assert took <= 5 * SLOWDOWN and job.steps_lost() - lost <= kill, job.log()
        job.await_size(3)
        job.await_step(job.step() + 20)
        job.stops()
        job.judge()
        job.same_as_replay()
    runs = Runs(programs, scratch)
    done = runs.call(runs.command("fixed", 2) + ["--supervised"], status=2)
    assert "--supervised without --min-n" in done.stderr, done.stderr


def orphaned(programs, scratch):
    """Without --supervised, kill -9 of the launcher or of the front: workers end their step, one saves it, all are gone within ten seconds; started
    again the run goes on after that step."""
    for name, front in (("launcher", False), ("front", True)):
        with SupervisedJob(programs, scratch, name, n=3, least=1, steps=FOR_EVER) as job:
            job.await_step(50)
            took = unsupervised_end(job, job.process.pid if front else job.launcher(), 10)
            step = job.step()
            print(f"{name} killed: nothing left after {took:.2f} s, step {step}")
            job.judge()
            again = job.runs.train(name, n=3, **{**job.sets, "steps": step + 5})
            assert f"goes on after update {step}\n" in again.stdout, again.stdout


def ended(programs, scratch):
    """Without faults an elastic run has the bits of a fixed one, and ends by itself; stopped by SIGTERM, started again it goes on where it was."""
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


def consolidated(runs, name):
    """The bytes of what a sharded run learned, optimizer state included, as one plain file."""
    path = runs.path(name + ".safetensors")
    runs.call([runs.cohort, "reshard", runs.path(name), path, "--consolidate", "--optimizer"])
    with open(path, "rb") as file:
        return file.read()


class ShardedJob(Job):
    """With ZeRO: no worker has all of the state."""

    def __init__(self, programs, folder, name, n, least, sync, most=None, flags=(), **sets):
        super().__init__(programs, folder, name, n, least, most, flags, sync=sync, optim__rule="adam(lr=1e-3)", **sets)

    def same_as_replay(self):
        for ranks, last in self.schedule():
            self.runs.train(self.name + "-again", n=ranks, **{**self.sets, "steps": last})
        assert consolidated(self.runs, self.name) == consolidated(self.runs, self.name + "-again"), f"other bits: {self.schedule()}\n{self.log()}"

    def origins(self):
        return [m["state_from"] for m in self.runs.metrics(self.name) if "state_from" in m]

    def origins_are(self, *wanted):
        """Of the changes that a test brought about. When it ends, one may leave a moment after the others, in an epoch of its own."""
        found = self.origins()
        return found[:len(wanted)] == list(wanted) and all(origin == "peers" for origin in found[len(wanted):])


def shards_killed(programs, scratch):
    """kill -9 with ZeRO and buddy copies: the survivors lay out the shards anew, the lost one's from its buddy, replacements join; at most one step is
    computed again, and the bits are those of a run without faults whose ranks came and went at the same steps."""
    dice = random.Random(8)
    overflowing = {"precision": "fp16", "scale": "torch(init=65536, window=3)"}  # steps are left out all the time
    for stage, sets in ((1, {}), (2, overflowing), (3, {})):
        with ShardedJob(programs, scratch, f"stage{stage}", 3, 2, f"zero(stage={stage}, op=sum, buddy=true)", steps=FOR_EVER, **sets) as job:
            lose_one_of_three(job, dice, f"stage {stage}")
            job.await_size(3)
            job.await_step(job.step() + 20)
            job.stops()
            assert job.said(r"with shards laid out anew, \d+ % of them from buddy copies of lost ranks"), job.log()
            assert job.origins_are("buddies", "peers"), job.origins()
            job.judge()
            job.same_as_replay()


def shards_left(programs, scratch):
    """Workers come and go as planned, with ZeRO and without buddies: whoever leaves hands its shard over, nothing is lost or computed again."""
    for stage, whom in ((2, 0), (3, 2)):
        with ShardedJob(programs, scratch, f"stage{stage}", 3, 1, f"zero(stage={stage}, op=sum)", steps=FOR_EVER) as job:
            job.await_step(20)
            leaves_and_another_comes(job, job.pid_of(whom), 10)
            assert job.steps_lost() == 0 and job.origins_are("peers", "peers"), job.log()
            assert job.said(r"\d+ % of them handed over by those who left"), job.log()
            job.judge()
            job.same_as_replay()


class SupervisedShardedJob(Supervised, ShardedJob):
    pass


def shards_coordinated(programs, scratch):
    """The coordinator is killed while a worker hands its shard over and leaves, at moments from the notice to the next epoch: nothing comes from disk, the
    leaver goes, and one more comes."""
    dice = random.Random(12)
    with SupervisedShardedJob(programs, scratch, "run", 3, 1, "zero(stage=2, op=sum)", flags=["--supervised"], steps=FOR_EVER) as job:
        job.await_step(20)
        for _ in range(5):
            job.await_size(3)
            job.await_step(job.step() + 5)
            leaver, lost = dice.choice(job.workers()), job.steps_lost()
            job.kill(leaver, signal.SIGUSR1)
            time.sleep(dice.uniform(0, 0.15))
            job.kill_coordinator()
            job.await_size(2)
            wait_until("the worker ends", lambda: leaver not in job.workers())
            assert job.steps_lost() - lost <= 1, job.log()
            job.process.send_signal(signal.SIGUSR2)
        job.await_size(3)
        job.await_step(job.step() + 10)
        job.stops()
        assert "checkpoint" not in job.origins(), job.log()
        job.judge()
        job.same_as_replay()


def last_one(programs, scratch):
    """The only worker leaves and saves what nobody else has; whoever comes goes on after that step, and waits for nothing else."""
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


def shards_lost(programs, scratch):
    """What no survivor has comes from the newest checkpoint, and that is said: one lost without buddies, two neighbours at once with them."""
    for name, n, sync, whom in (("alone", 3, "zero(stage=2, op=sum)", [1]), ("neighbours", 4, "zero(stage=1, op=sum, buddy=true)", [1, 2])):
        with ShardedJob(programs, scratch, name, n, 1, sync, steps=FOR_EVER, checkpoint__every_steps=5) as job:
            job.await_size(n)
            wait_until("a checkpoint", lambda: job.runs.checkpoints(name))
            before = job.epoch()
            pids = [job.pid_of(rank) for rank in whom]
            for number in (signal.SIGSTOP, signal.SIGKILL):  # at once: none of them sees the other go
                for pid in pids:
                    job.kill(pid, number)
            job.await_epoch_after(before)
            job.await_size(n)
            job.await_step(job.step() + 10)
            job.stops()
            assert job.said("from the newest checkpoint: nobody") and job.said(r"goes on after update \d+ from its checkpoint"), job.log()
            assert "checkpoint" in job.origins() and "buddies" not in job.origins(), job.origins()
            assert any(line["event"] == "restart" and line["epoch"] > 1 for _, line in job.history()), job.log()
            job.judge()


class FlippingJob(Job):
    """Of workers one of which flips a bit after step 7."""

    def words(self, n, limits):
        words = [self.runs.cohort, "run", "-n", str(n), *limits, "--", os.path.join(self.programs, "train_flip"), "1", "7", f"out={self.runs.path(self.name)}"]
        return words + [f"{key.replace('__', '.')}={value}" for key, value in {**TINY, **self.sets}.items()]


def flipped(programs, scratch):
    """A bit flips in one worker of an elastic job: the job ends on all of them, says whose and in which tensor, and starts nobody anew. Ranks find it every
    check_replicas steps, and whenever the roster changes: afterwards all would have the state of one."""
    with FlippingJob(programs, scratch, "steps", 3, 2, steps=30, checkpoint__every_steps=5, check_replicas=4) as job:
        job.ends(1)
        assert job.said(r"job '.*' gives up: after update 8 rank 1 holds other values than the others: 'fc1.weight' is the first"), job.log()
        assert not job.said("go on after step") and not job.said("epoch 2"), job.log()
        assert [path[-8:] for path in job.runs.checkpoints("steps")] == ["00000005"], job.runs.checkpoints("steps")
    with FlippingJob(programs, scratch, "change", 4, 2, steps=FOR_EVER, check_replicas=10**6) as job:
        wait_until("the flip", lambda: job.said(r"process (\d+) flips a bit"))
        culprit = int(job.said(r"process (\d+) flips a bit")[1])
        job.kill(next(pid for pid in job.workers() if pid != culprit))
        job.ends(1)
        assert job.said(r"job '.*' gives up: after update \d+ rank \d+ holds other values than the others: 'fc1.weight' is the first"), job.log()


def refused(programs, scratch):
    """What cannot be elastic says why, before anything starts."""
    runs = Runs(programs, scratch)
    for sets, words in (({"engine.early_update": "true"}, "could not be called off"),
                        ({"sync_batch_norm": "true"}, "tied to one set of ranks"), ({"comm": "gloo", "bits": "free"}, "take comm=own")):
        done = runs.call(runs.command("run", 2, **sets) + ["--min-n", "1"], status=2)
        assert words in done.stderr, done.stderr
    done = runs.call(runs.command("run", 2) + ["--min-n", "3"], status=2)
    assert "min <= n <= max" in done.stderr, done.stderr
    done = runs.call(runs.command("run", 2) + ["--max-n", "3"], status=2)
    assert "--max-n without --min-n" in done.stderr, done.stderr


def unfit(programs, scratch):
    """A file of settings that changes while the job runs: whoever comes later and reads it goes again, three of them at most; the others train on."""
    def write_settings(text):
        with open(file, "w") as settings:
            settings.write(text)

    file = os.path.join(scratch, "settings.yaml")
    write_settings("seed: 1\n")
    with Job(programs, scratch, "run", n=2, least=1, flags=[file], steps=FOR_EVER) as job:
        job.await_step(20)
        write_settings("seed: 2\n")
        job.kill(job.workers()[1])
        wait_until("nobody is started any more", lambda: job.said("no more workers are started"))
        assert job.said("the settings differ: .*seed"), job.log()
        job.await_step(job.step() + 20)
        write_settings("seed: 1\n")
        job.process.send_signal(signal.SIGUSR2)
        job.await_size(2)
        job.await_step(job.step() + 20)
        job.stops()
        job.judge()


CLAIMS = (launched, abandoned, coordinated, given_up, cleared, killed, preempted, stopped, supervised, orphaned, ended, last_one, shards_killed, shards_left,
          shards_coordinated, shards_lost, flipped, refused, unfit)
with tempfile.TemporaryDirectory(prefix="cohort-elastic-") as folder:
    {claim.__name__: claim for claim in CLAIMS}[sys.argv[2]](os.path.abspath(sys.argv[1]), folder)
