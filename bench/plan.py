#!/usr/bin/env python3
"""What `cohort plan` predicts against what a run then measures: bench/plan.py [folder of programs] [--models mlp,..] [--ranks 1,2,4] [--steps n].

Five models train for a few steps on 1, 2 and 4 ranks with `cohort train --plan`. Prints a line for each and exits with status 1 when a
memory is more than 10 % or a step more than 25 % off. Means of four steps in a row are compared, those of the fastest tenth: what
the machine does when nothing else uses it. Run it on a quiet machine all the same.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

TOKENS = "synthetic(task=tokens, shape=128, classes=256, samples=2000)"
MODELS = {  # spec, data, batch of a rank, steps
    "mlp": ("mlp(in=784, hidden=512x512, out=10)", "synthetic(shape=1x28x28, classes=10, samples=20000)", 64, 200),
    "cnn": ("cnn", "synthetic(shape=1x28x28, classes=10, samples=20000)", 64, 60),
    "resnet18": ("resnet18(classes=10, stem=cifar)", "synthetic(shape=3x32x32, classes=10, samples=2000)", 16, 12),
    "lstm": ("lstm", TOKENS, 16, 30),
    "gpt": ("gpt-tiny", TOKENS, 16, 30),
}
RULES = {"lstm": "adam(lr=1e-3)", "gpt": "adamw(lr=1e-3)"}
MEMORY_OFF, STEP_OFF = 0.10, 0.25
LIMIT = 900  # seconds for one run


def run(cohort, name, ranks, steps, folder):
    spec, data, batch, usual = MODELS[name]
    settings = {
        "model": spec, "data.train": data, "data.test": "", "data.batch": batch, "epochs": 0, "steps": steps or usual,
        "optim.rule": RULES.get(name, "sgd(lr=0.01, momentum=0.9)"), "optim.schedule": "constant", "data.transforms": "",
        "observe.tensorboard": "false", "observe.report": "false", "checkpoint.every_epochs": 0, "checkpoint.resume": "never",
    }
    command = [cohort, "train", "-n", str(ranks), "--plan", "--out", folder]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return json.loads(pathlib.Path(folder, "plan.json").read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("programs", nargs="?", default="build/bin")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--ranks", default="1,2,4")
    parser.add_argument("--steps", type=int, default=0)
    asked = parser.parse_args()
    wrong = 0
    print(f"{'model':<10} {'ranks':>5}  {'memory MiB: predicted':>22} {'measured':>9} {'off':>7}  "
          f"{'step ms: predicted':>19} {'fastest':>9} {'median':>9} {'off':>7}")
    for name in asked.models.split(","):
        for ranks in map(int, asked.ranks.split(",")):
            with tempfile.TemporaryDirectory() as folder:
                found = run(os.path.join(asked.programs, "cohort"), name, ranks, asked.steps, folder)
            memory, step = found["memory_ratio"] - 1, found["step_ratio"] - 1
            bad = abs(memory) > MEMORY_OFF or abs(step) > STEP_OFF
            wrong += bad
            p, m = found["predicted"], found["measured"]
            print(f"{name:<10} {ranks:>5}  {p['total_bytes'] / 2**20:>22.2f} {m['total_bytes'] / 2**20:>9.2f} {100 * memory:>+6.1f}%  "
                  f"{1e3 * p['step_s']:>19.2f} {1e3 * m['quiet_step_s']:>9.2f} {1e3 * m['step_s']:>9.2f} {100 * step:>+6.1f}%"
                  f"{'  <- off' if bad else ''}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
