"""Claims about strategies whose replicas drift, and about codecs, in whole runs: for check.py."""
import glob
import os
import re
import signal

from interrupted import caught
from runs import FORGETFUL, STEPS_PER_EPOCH, workers

# A word of the table each, with rounds short enough for a short run.
DRIFTING = ("local_sgd(h=4)", "post_local_sgd(h=4, start=12)", "diloco(h=4)", "easgd(h=2)", "sma", "dpsgd(graph=ring)", "dpsgd(graph=full)")


def files(runs, name):
    """The bytes of every file of tensors of the newest checkpoint."""
    newest = runs.checkpoints(name)[-1]
    found = {}
    for path in glob.glob(newest + "/*.safetensors"):
        with open(path, "rb") as file:
            found[os.path.basename(path)] = file.read()
    return found


def evaluations(runs, name):
    return [m["test_loss"] for m in runs.metrics(name) if "test_loss" in m]


def drifting(runs):
    """Every strategy learns on three ranks, and a run repeated has the same bits; a checkpoint has the one model and each rank's own state."""
    for i, sync in enumerate(DRIFTING):
        for again in ("", "again"):
            runs.train(f"run{i}{again}", n=3, sync=sync, epochs=4)
        tested = evaluations(runs, f"run{i}")
        assert len(tested) == 4 and tested[-1] < 0.8 * tested[0], f"{sync} does not learn: {tested}"
        made = files(runs, f"run{i}")
        assert made == files(runs, f"run{i}again"), f"{sync}: a run repeated has other bits"
        assert {"model.safetensors", *(f"local-0000{r}-of-00003.safetensors" for r in range(3))} <= set(made), sorted(made)


def drifting_resumed(runs):
    """kill -9 between two rounds: started again on as many ranks the run ends with the bits of one never killed; on another number it goes on from
    the model that the ranks stood for."""
    for sync in ("diloco(h=5)", "dpsgd(graph=ring)"):
        sets = {**FORGETFUL, "optimizer": "adam(lr=1e-3)", "sync": sync}
        for name in ("whole", "killed"):
            runs.call(["rm", "-rf", runs.path(name)])
        runs.train("whole", **sets)

        def in_the_middle():
            steps = [int(path[-8:]) for path in runs.checkpoints("killed")]
            return steps and steps[-1] % STEPS_PER_EPOCH and steps[-1] % 5 and len(runs.metrics("killed")) > STEPS_PER_EPOCH

        caught(runs, "killed", in_the_middle, lambda job: os.kill(workers(job.pid)[1], signal.SIGKILL), **sets)
        runs.call(["cp", "-r", runs.path("killed"), runs.path("three")])
        again = runs.train("killed", **sets)
        assert re.search(r"goes on after update (\d+)", again.stdout), again.stdout
        assert files(runs, "killed") == files(runs, "whole"), f"{sync}: resumed with other bits than those of the run that never stopped"
        other = runs.train("three", n=3, **sets)
        assert re.search(r"goes on after update (\d+)", other.stdout), other.stdout
        tested = evaluations(runs, "three")
        assert tested[-1] < 0.8 * tested[0], f"{sync} on three ranks, fewer steps an epoch, does not go on learning: {tested}"
        runs.call(["rm", "-rf", runs.path("three")])


def coded(runs):
    """Every codec learns, under all-reduce and ZeRO; with error feedback a run that was killed resumes with the bits of one never killed."""
    runs.train("plain", epochs=4)
    first, *_, last = evaluations(runs, "plain")
    # What a codec loses at once, and what it is late with: a twentieth of the gradient a step is one in twenty steps.
    for i, (codec, most) in enumerate((("int8", 1.05 * last), ("topk(ratio=0.05)", 0.5 * first), ("bf16", 1.05 * last),
                                    ("powersgd(rank=2)", 0.5 * first))):
        for sync in ("all_reduce(op=sum)", "zero(stage=2, op=sum)"):
            name = f"{i}-{sync[:4]}"
            runs.train(name, epochs=4, codec=codec, sync=sync)
            tested = evaluations(runs, name)
            assert tested[-1] < most, f"{codec} with {sync} does not learn: {tested}, plain {first} to {last}"
    for codec, optimizer in (("topk(ratio=0.1)", "sgd(lr=0.02, momentum=0.9)"), ("powersgd(rank=2)", "sgd(lr=0.02, momentum=0.9)"),
                             ("dgc(ratio=0.1)", "sgd(lr=0.02)")):
        sets = {**FORGETFUL, "optimizer": optimizer, "codec": codec}
        for name in ("whole", "killed"):
            runs.call(["rm", "-rf", runs.path(name)])
        runs.train("whole", **sets)
        caught(runs, "killed", lambda: len(runs.checkpoints("killed")) > 2, lambda job: os.kill(workers(job.pid)[0], signal.SIGKILL), **sets)
        runs.train("killed", **sets)
        assert files(runs, "killed") == files(runs, "whole"), f"{codec} resumed with other bits: what it kept was lost"
