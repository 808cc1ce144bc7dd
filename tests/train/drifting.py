"""Claims about strategies whose replicas drift, and about codecs, in whole runs: for check.py."""
import glob
import os
import re
import signal

from interrupted import caught
from runs import FORGETFUL, STEPS_PER_EPOCH, workers

# A word of the table each, with rounds short enough for a short run.
DRIFTING = (
    "local_sgd(h=4)",
    "post_local_sgd(h=4, start=12)",
    "diloco(h=4)",
    "streaming_diloco(h=4, fragments=2, delay=1)",
    "easgd(h=2)",
    "eamsgd(h=2)",
    "sma",
    "dpsgd(graph=ring)",
    "dpsgd(graph=full)",
    "push_sum",
    "pair_averaging",
    "pair_averaging(pull=true)",
    "choco(graph=ring, codec=topk(ratio=0.2), gamma=0.2)",
    "hierarchical_gossip(per_host=2, graph=ring)",
    "parallel_sgd",
)
# Ranks meet when they come: bits of a run do not repeat.
UNREPEATED = ("ad_psgd", "local_sgd(h=4, wait=none)", "diloco(h=4, wait=none)", "easgd(h=2, async=true)")
EPOCHS = 4


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


def learns(runs, i, sync, again=("",)):
    """A strategy learns on three ranks (where hosts are of two, four), and a checkpoint has the one model and each rank's own state."""
    n = 4 if "per_host=2" in sync else 3
    for which in again:
        runs.train(f"run{i}{which}", n=n, sync=sync, epochs=EPOCHS)
    tested = evaluations(runs, f"run{i}")
    assert len(tested) == EPOCHS and tested[-1] < 0.8 * tested[0], f"{sync} does not learn: {tested}"
    made = files(runs, f"run{i}")
    assert {"model.safetensors", *(f"local-0000{r}-of-0000{n}.safetensors" for r in range(n))} <= set(made), sorted(made)
    return made


def repeating(runs, part):
    for i, sync in enumerate(DRIFTING[part::2]):
        made = learns(runs, i, sync, ("", "again"))
        assert made == files(runs, f"run{i}again"), f"{sync}: a run repeated has other bits"


def drifting(runs):
    """Every strategy learns on three ranks, and a run repeated has the same bits; a checkpoint has the one model and each rank's own state."""
    repeating(runs, 0)


def drifting_too(runs):
    """The same of the other half of them."""
    repeating(runs, 1)


def drifting_unrepeated(runs):
    """Strategies whose ranks wait for nobody learn, one rank alone too; a run that was saved goes on on as many ranks and on others; and the word
    that a strategy had before is refused with the new one."""
    for i, sync in enumerate(UNREPEATED):
        learns(runs, i, sync)
        runs.train(f"alone{i}", n=1, sync=sync, epochs=1)
        for n in (3, 2):
            again = runs.train(f"run{i}", n=n, sync=sync, epochs=EPOCHS + 1 + (n == 2))
            assert re.search(r"goes on after update (\d+)", again.stdout), again.stdout
        tested = evaluations(runs, f"run{i}")
        assert len(tested) == EPOCHS + 2 and tested[-1] < tested[0], f"{sync}: {tested}"
    refused = runs.train("refused", status=2, sync="average_once")
    assert "is called parallel_sgd now" in refused.stderr, refused.stderr


def measured(runs):
    """A run says how far its replicas are apart, what a rank receives, and what a codec keeps."""
    parameters = 784 * 32 + 32 + 32 * 32 + 32 + 32 * 10 + 10
    sets, steps = {"n": 2, "epochs": 2, "observe__report": "true"}, 10  # of an epoch: 600 samples, 2 x 32 a step
    for name, more in (("plain", {}), ("gossip", {"sync": "dpsgd(graph=ring)"}), ("local", {"sync": "local_sgd(h=10)"}),
                       ("coded", {"codec": "topk(ratio=0.05)"}), ("alone", {"sync": "parallel_sgd", "engine__report_every": 5})):
        runs.train(name, **sets, **more)
    tested = {name: [m for m in runs.metrics(name) if "test_loss" in m] for name in ("plain", "gossip", "local", "coded", "alone")}
    received = {name: sum(m["received_bytes"] for m in runs.metrics(name) if "loss" in m) / (2 * steps) for name in tested}
    for name in ("plain", "coded"):
        assert all("disagreement" not in m for m in tested[name]), tested[name]
    assert all(m["residual_norm"] > 0 for m in tested["coded"]) and all("residual_norm" not in m for m in tested["plain"]), tested
    assert all(m["disagreement"] == 0 for m in tested["local"]), f"an evaluation just after a round: {tested['local']}"
    assert 0 < tested["gossip"][-1]["disagreement"] < tested["alone"][-1]["disagreement"], tested
    few = 4096  # bytes of votes and of gaps between tensors
    for name, models in (("plain", 1), ("gossip", 1), ("local", 1 / steps), ("alone", 0)):
        assert abs(received[name] - models * 4 * parameters) < few, (name, received, parameters)
    assert few < received["coded"] < 0.2 * received["plain"], received
    with open(runs.path("gossip") + "/report.html") as file:
        report = file.read()
    assert "Disagreement of the replicas" in report and "of all_reduce&#39;s" in report.replace("'", "&#39;"), "the report does not say it"


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
