"""Jobs of 64 ranks, on however few cores there are."""
import os
import random
import signal

from jobs import FOR_EVER, Runs, VectorJob
from runs import consolidated

RANKS, SEED = 64, 64
SETS = {"data__batch": 2, "steps": 12, "epochs": 0, "threads": 1, "data__test": "", "checkpoint__every_epochs": 0}


def many_workers(programs, scratch):
    """64 workers of an elastic job: one is killed, four at once are, one leaves, one more comes; steps, samples and parameters are those of one history."""
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    with VectorJob(programs, scratch, "run", n=RANKS, least=RANKS // 4, most=RANKS + 4, flags=["--respawns", "100"], steps=FOR_EVER) as job:
        job.await_size(RANKS)
        for count in (1, 4):
            job.await_step(job.step() + 5)
            before, lost = job.epoch(), job.steps_lost()
            for pid in rng.sample(job.workers(), count):
                job.kill(pid)
            job.await_epoch_after(before)
            job.await_size(RANKS)
            assert job.steps_lost() - lost <= count, job.log()
        job.process.send_signal(signal.SIGUSR2)
        job.await_size(RANKS + 1)
        job.kill(job.workers()[0], signal.SIGUSR1)
        job.await_size(RANKS)
        job.process.send_signal(signal.SIGTERM)
        job.ends()
        job.judge()


def many_train(programs, scratch):
    """64 ranks train with all-reduce, once and again, and sharded in stage 3: the bits are the same, also of the optimizer's state."""
    runs = Runs(programs, scratch)
    for name, sets in (("plain", {}), ("again", {}), ("sharded", {"sync": "zero(stage=3, op=sum)"})):
        runs.train(name, n=RANKS, **SETS, **sets)
        assert consolidated(runs, name) == consolidated(runs, "plain"), f"{name}: other bits"


def many_sharded(programs, scratch):
    """A checkpoint of 64 shards is put together for one rank, which goes on from it with the bits of a run that goes on from the 64 shards themselves."""
    runs = Runs(programs, scratch)
    sharded = {**SETS, "sync": "zero(stage=3, op=sum)"}
    runs.train("many", n=RANKS, **sharded)
    newest = runs.checkpoints("many")[-1]
    assert len([name for name in os.listdir(newest) if name.startswith("model-")]) == RANKS, os.listdir(newest)
    runs.call([runs.cohort, "reshard", newest, runs.path("one/checkpoints"), "--stage", "0"])
    one = runs.train("one", n=1, **{**SETS, "steps": 15})
    same = runs.train("many", n=1, **{**sharded, "steps": 15})
    for done in (one, same):
        assert "goes on after update 12\n" in done.stdout, done.stdout + done.stderr
    assert consolidated(runs, "one") == consolidated(runs, "many"), "other bits"
