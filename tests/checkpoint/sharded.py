#!/usr/bin/env python3
"""Claims about checkpoints of sharded runs: sharded.py <folder of programs> <claim>. Exit status 0 when the claim holds."""
import glob
import json
import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "train"))
from runs import Runs  # noqa: E402

SAME = {"optimizer": "adam(lr=1e-3)", "optim__schedule": "constant", "checkpoint__keep": 10}


def strategy(stage):
    return {"sync": f"zero(stage={stage}, op=sum)" if stage else "all_reduce(op=sum)"}


def whole(runs, name):
    """What a run has learned, as bytes of one file."""
    path = runs.path(f"{name}-{time.monotonic_ns()}.safetensors")
    runs.call([runs.cohort, "reshard", runs.path(name), path, "--consolidate", "--optimizer"])
    with open(path, "rb") as file:
        return file.read()


def files(runs, name):
    return sorted(os.path.basename(path) for path in glob.glob(runs.checkpoints(name)[-1] + "/*"))


def layout(runs):
    """Stages 1 and 2 write the model once and the optimizer's state a file a rank; the manifest says which run of which tensor lies where."""
    for stage in 1, 2:
        runs.train(f"run{stage}", n=3, epochs=1, **SAME, **strategy(stage))
        assert files(runs, f"run{stage}") == ["manifest.json", "model.safetensors"] + [f"optimizer-0000{r}-of-00003.safetensors" for r in range(3)], files(runs, "run")
        with open(runs.checkpoints(f"run{stage}")[-1] + "/manifest.json") as file:
            pieces = json.load(file)["pieces"]
        cut = [p for p in pieces if p["count"] < p["shape"][0] * (p["shape"][1] if len(p["shape"]) > 1 else 1)]
        assert cut and all(p["tensor"].split("/")[1] in ("exp_avg", "exp_avg_sq") for p in cut), cut
        hidden = [os.path.basename(path) for path in glob.glob(runs.path(f"run{stage}") + "/checkpoints/.*")]
        assert hidden == [".fence"], f"something is left: {hidden}"
    assert whole(runs, "run1") == whole(runs, "run2")


def other_stages(runs):
    """A run that goes on at another stage, and goes on again, has the bits of one that never stopped."""
    runs.train("never", epochs=3, **SAME, **strategy(0))
    for name, stages in (("a", (2, 0, 1)), ("b", (0, 1, 2))):
        for epochs, stage in enumerate(stages, 1):
            done = runs.train(name, epochs=epochs, **SAME, **strategy(stage))
            assert epochs == 1 or "goes on after update" in done.stdout, done.stdout
        assert whole(runs, name) == whole(runs, "never"), f"other bits by way of stages {stages}"


def other_ranks(runs):
    """Another number of ranks goes on from what is there, sharded or not: with the same bits at every stage, and from any layout."""
    runs.train("run", n=3, epochs=1, **SAME, **strategy(2))
    runs.call([runs.cohort, "reshard", runs.path("run"), runs.path("run5/checkpoints"), "-n", "5", "-s", "3"])
    ends = {}
    for start, stage in ("run", 0), ("run", 1), ("run", 2), ("run5", 1):
        name = f"{start}-{stage}"
        subprocess.run(["cp", "-r", runs.path(start), runs.path(name)], check=True)
        done = runs.train(name, epochs=2, **SAME, **strategy(stage))
        assert "goes on after update" in done.stdout and "this run has 2" in done.stderr, done.stdout + done.stderr
        ends[name] = whole(runs, name)
    for name, end in ends.items():
        assert end == ends["run-0"], f"{name} ended with other bits"


def whole_tensors(runs):
    """Rules of whole tensors, whose state has shapes of its own: the same bits at every stage, from any layout, on another number of ranks."""
    for rule in "adafactor", "muon":
        same = {**SAME, "optimizer": rule}
        runs.train(rule, n=3, epochs=1, **same, **strategy(2))
        runs.call([runs.cohort, "reshard", runs.path(rule), runs.path(f"{rule}5/checkpoints"), "-n", "5", "-s", "3"])
        ends = []
        for start, stage in (rule, 0), (rule, 1), (f"{rule}5", 3):
            name = f"{start}-{stage}"
            subprocess.run(["cp", "-r", runs.path(start), runs.path(name)], check=True)
            done = runs.train(name, epochs=2, **same, **strategy(stage))
            assert "goes on after update" in done.stdout and "this run has 2" in done.stderr, done.stdout + done.stderr
            ends.append(whole(runs, name))
        assert ends[1] == ends[0] and ends[2] == ends[0], f"{rule} ended with other bits"
        runs.train(f"{rule}-never", n=2, epochs=2, **same, **strategy(0))
        for epochs, stage in (1, 3), (2, 1):
            runs.train(f"{rule}-stopped", n=2, epochs=epochs, **same, **strategy(stage))
        assert whole(runs, f"{rule}-stopped") == whole(runs, f"{rule}-never"), f"{rule} that stopped ended with other bits"


def damaged(runs):
    """One changed byte in one rank's file: the checkpoint before serves. Predictions read sharded checkpoints too."""
    runs.train("run", epochs=2, checkpoint__every_epochs=1, **SAME, **strategy(2))
    older, newest = runs.checkpoints("run")[-2:]
    with open(f"{newest}/optimizer-00001-of-00002.safetensors", "r+b") as file:
        file.seek(-100, os.SEEK_END)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))
    done = runs.train("run", epochs=3, **SAME, **strategy(1))
    assert f"{newest} is damaged and was passed over" in done.stderr and f"goes on after update {int(older[-8:])}\n" in done.stdout, done.stderr
    runs.call([runs.cohort, "predict", runs.path("run"), "--data", "synthetic(samples=101, split=test)"])


with tempfile.TemporaryDirectory(prefix="cohort-sharded-") as scratch:
    {"layout": layout, "other_stages": other_stages, "other_ranks": other_ranks, "whole_tensors": whole_tensors, "damaged": damaged}[sys.argv[2]](Runs(sys.argv[1], scratch))
