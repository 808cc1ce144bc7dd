"""Elastic jobs with ZeRO, whose workers hold shards of the state."""
import random
import signal
import time

from coordinators import Supervised
from jobs import FOR_EVER, Job, wait_until
from membership_changes import leaves_and_another_comes, lose_one_of_three


def consolidated(runs, name):
    """The parameters and optimizer state of a sharded run, as the bytes of one plain file."""
    path = runs.path(name + ".safetensors")
    runs.call([runs.cohort, "reshard", runs.path(name), path, "--consolidate", "--optimizer"])
    with open(path, "rb") as file:
        return file.read()


class ShardedJob(Job):
    """With ZeRO: each worker holds a shard of the state."""

    def __init__(self, programs, folder, name, n, least, sync, most=None, flags=(), **sets):
        super().__init__(programs, folder, name, n, least, most, flags, **{"sync": sync, "optimizer": "adam(lr=1e-3)", **sets})

    def same_as_replay(self):
        for ranks, last in self.schedule():
            self.runs.train(self.name + "-again", n=ranks, **{**self.sets, "steps": last})
        assert consolidated(self.runs, self.name) == consolidated(self.runs, self.name + "-again"), f"other bits: {self.schedule()}\n{self.log()}"

    def origins(self):
        return [m["state_from"] for m in self.runs.metrics(self.name) if "state_from" in m]

    def origins_are(self, *wanted):
        """Of the changes that a test caused. At its end, one worker may leave a moment after the others, in an epoch of its own."""
        found = self.origins()
        return found[:len(wanted)] == list(wanted) and all(origin == "peers" for origin in found[len(wanted):])


def shards_killed(programs, scratch):
    """kill -9 with ZeRO and buddy copies: the survivors reshard, the lost shard comes from its buddy, replacements join; at most one step is computed
    again, and the bits are those of a run without faults with the same numbers of ranks at the same steps."""
    rng = random.Random(8)
    overflowing = {"precision": "fp16", "loss_scale": "torch(init=65536, window=3)"}  # many steps are skipped
    for stage, sets in ((1, {"optimizer": "muon"}), (2, overflowing), (3, {"optimizer": "adafactor"})):  # both of whole tensors
        with ShardedJob(programs, scratch, f"stage{stage}", 3, 2, f"zero(stage={stage}, op=sum, buddy=true)", steps=FOR_EVER, **sets) as job:
            lose_one_of_three(job, rng, f"stage {stage}")
            job.await_size(3)
            job.await_step(job.step() + 20)
            job.stops()
            assert job.said(r"with redistributed shards, \d+ % of them from buddy copies of lost ranks"), job.log()
            assert job.origins_are("buddies", "peers"), job.origins()
            job.judge()
            job.same_as_replay()


def shards_left(programs, scratch):
    """Workers join and leave as planned, with ZeRO and without buddies: a leaver transfers its shard, no step is lost or computed again."""
    for stage, leaver, optimizer in ((2, 0, "adafactor"), (3, 2, "adam(lr=1e-3)")):
        with ShardedJob(programs, scratch, f"stage{stage}", 3, 1, f"zero(stage={stage}, op=sum)", steps=FOR_EVER, optimizer=optimizer) as job:
            job.await_step(20)
            leaves_and_another_comes(job, job.pid_of(leaver), 10)
            assert job.steps_lost() == 0 and job.origins_are("peers", "peers"), job.log()
            assert job.said(r"\d+ % of them transferred by workers that left"), job.log()
            job.judge()
            job.same_as_replay()


class SupervisedShardedJob(Supervised, ShardedJob):
    pass


def shards_coordinated(programs, scratch):
    """The coordinator is killed while a worker transfers its shard and leaves, at moments from the notice to the next epoch: nothing is read from disk,
    the leaver ends, and one more joins."""
    rng = random.Random(12)
    with SupervisedShardedJob(programs, scratch, "run", 3, 1, "zero(stage=2, op=sum)", flags=["--supervised"], steps=FOR_EVER) as job:
        job.await_step(20)
        for _ in range(5):
            job.await_size(3)
            job.await_step(job.step() + 5)
            leaver, lost = rng.choice(job.workers()), job.steps_lost()
            job.kill(leaver, signal.SIGUSR1)
            time.sleep(rng.uniform(0, 0.15))
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


def shards_lost(programs, scratch):
    """What no survivor has is read from the newest checkpoint, which is logged: one lost without buddies, two neighbours at once with them."""
    for name, n, sync, lost in (("alone", 3, "zero(stage=2, op=sum)", [1]), ("neighbours", 4, "zero(stage=1, op=sum, buddy=true)", [1, 2])):
        with ShardedJob(programs, scratch, name, n, 1, sync, steps=FOR_EVER, checkpoint__every_steps=5) as job:
            job.await_size(n)
            wait_until("a checkpoint", lambda: job.runs.checkpoints(name))
            before = job.epoch()
            pids = [job.pid_of(rank) for rank in lost]
            for number in (signal.SIGSTOP, signal.SIGKILL):  # at once: neither sees the other end
                for pid in pids:
                    job.kill(pid, number)
            job.await_epoch_after(before)
            job.await_size(n)
            job.await_step(job.step() + 10)
            job.stops()
            assert job.said("from the newest checkpoint: no remaining worker") and job.said(r"goes on after update \d+\n"), job.log()
            assert "checkpoint" in job.origins() and "buddies" not in job.origins(), job.origins()
            assert any(line["event"] == "restart" and line["epoch"] > 1 for _, line in job.history()), job.log()
            job.judge()
