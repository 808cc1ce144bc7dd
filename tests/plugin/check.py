#!/usr/bin/env python3
"""Claims about --plugin: check.py <folder of programs> <library of 09_own_model> <folder of the other libraries> <claim>."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../train"))
from causes import fails  # noqa: E402
from runs import Runs  # noqa: E402

PROGRAMS, MINE, OTHERS = sys.argv[1:4]
LIMIT = 100 * float(os.environ.get("COHORT_TEST_SLOWDOWN", "1"))
TINY = ["--set", "model=mine(depth=3)", "--set", "loss=hinge", "--set", "data.train=stripes(samples=200)", "--set", "data.test=stripes(samples=50, seed=2)",
        "--set", "data.batch=20", "--set", "threads=1", "--set", "optim.schedule=constant", "--set",
        "observe.tensorboard=false", "--set", "observe.report=false"]


def cohort(*words, status=0, folder):
    done = subprocess.run([f"{PROGRAMS}/cohort", *words], capture_output=True, text=True, timeout=LIMIT, cwd=folder,
                          env={**os.environ, "COHORT_CALIBRATION": "none"})
    assert done.returncode == status, f"{words} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done


def digest(run):
    """Of the newest checkpoint: the files and their hashes."""
    newest = sorted(os.listdir(f"{run}/checkpoints"))[-1]
    manifest = json.load(open(f"{run}/checkpoints/{newest}/manifest.json"))
    return newest, json.dumps(manifest["files"], sort_keys=True)


def trains(folder):
    """A model, data and a loss of a library: trained on two ranks, resumed bit for bit from elsewhere, predicted with, planned, verified."""
    shutil.copy(MINE, f"{folder}/libmine.so")
    plugin = ["--plugin", "libmine.so"]
    done = cohort("train", "-n", "2", *plugin, *TINY, "--set", "epochs=3", "--out", "whole", folder=folder)
    accuracy = float(re.search(r"test accuracy +([\d.]+) %", done.stdout).group(1))
    assert accuracy > 90, done.stdout
    assert f"{os.path.realpath(folder)}/libmine.so" in open(f"{folder}/whole/config.yaml").read(), "not by its whole path"
    cohort("train", "-n", "2", *plugin, *TINY, "--set", "epochs=3", "--set", "steps=7", "--out", "parts", folder=folder)
    elsewhere = f"{folder}/elsewhere"
    os.mkdir(elsewhere)
    cohort("train", "../parts/config.yaml", "-n", "2", "--set", "steps=0", "--out", "../parts", folder=elsewhere)
    assert digest(f"{folder}/parts") == digest(f"{folder}/whole"), "other bits after a resumption"
    score = cohort("predict", "../whole", "--data", "stripes(samples=50, seed=2)", "--json", folder=elsewhere)
    assert abs(100 * json.loads(score.stdout)["accuracy"] - accuracy) < 0.01, score.stdout
    os.rename(f"{folder}/libmine.so", f"{folder}/moved.so")
    gone = cohort("predict", "whole", "--data", "stripes", status=2, folder=folder).stderr
    assert "was trained with a plugin: there is no plugin" in gone and "--plugin" in gone, gone
    cohort("predict", "whole", "--data", "stripes", "--plugin", "moved.so", folder=folder)
    plugin = ["--plugin", "moved.so"]
    assert "mine(depth=3)" in cohort("plan", "-n", "2", *plugin, *TINY, folder=folder).stdout
    cohort("verify", "--ranks", "2", *plugin, *TINY, folder=folder)


def refuses(folder):
    """What is wrong with a library, or with what is asked of it, is one line, and nothing has started."""
    library = lambda name: f"{OTHERS}/libplugin_{name}.so"
    open(f"{folder}/text.so", "w").write("no library")
    for path, words in [("missing.so", r"there is no plugin \S+/missing.so"), ("text.so", r"plugin \S+/text.so cannot be loaded: .*"),
                        (library("no_plugin"), r"\S+ is no plugin of cohort: it has no COHORT_PLUGIN.*"),
                        (library("other_version"), r"plugin \S+ was built with cohort 0.0.1, this is cohort \S+: build it again"),
                        (library("other_torch"), r"plugin \S+ was built with torch 2.0.0, this is torch \S+: build it again"),
                        (library("taken"), r"plugin \S+: there is a model 'mlp' already; give this one another name")]:
        for command in ("train", "plan", "verify"):
            if command != "train" and path != "missing.so":
                continue
            line = cohort(command, "-n", "2", "--plugin", path, status=2, folder=folder).stderr
            assert re.fullmatch(rf"cohort {command}: {words}\n", line), (path, line)
    line = cohort("train", "-n", "2", "--plugin", MINE, "--set", "model=mine(dept=3)", "--set", "data.train=stripes", "--set", "data.test=",
                  status=2, folder=folder).stderr
    assert "dept" in line and "depth" in line and line.count("\n") == 1, line
    assert not os.path.exists(f"{folder}/runs"), "something was left behind"


def elastic(folder):
    """Workers of an elastic job load it too, and learn."""
    done = cohort("train", "-n", "2", "--min-n", "1", "--plugin", MINE, *TINY, "--set", "epochs=3", "--out", "run", folder=folder)
    assert float(re.search(r"test accuracy +([\d.]+) %", done.stdout).group(1)) > 90, done.stdout


def throws(folder):
    """An exception of torch in the middle of training: its message comes last, with where it was, and without C++ frames."""
    fails(Runs(PROGRAMS, folder), r"epoch 0, step \d: mat1 and mat2 shapes cannot be multiplied \(32x783 and 784x10\)", model="throws",
          plugins=f"{OTHERS}/libplugin_throws.so")


with tempfile.TemporaryDirectory(prefix="cohort-plugin-") as scratch:
    {claim.__name__: claim for claim in (trains, refuses, elastic, throws)}[sys.argv[4]](scratch)
