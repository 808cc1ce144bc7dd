#!/usr/bin/env python3
"""What `cohort plan` predicts against what a run then measures: bench/plan.py [folder of programs] [--models mlp,..] [--ranks 1,2,4] [--steps n] [--rounds n].

Five models train for a few steps on 1, 2 and 4 ranks with `cohort train --plan`. Prints a line for each and exits with status 1 when a
memory is more than 10 % or a step more than 25 % off. Means of four steps in a row are compared, those of the fastest tenth: what
the machine does when nothing else uses it. A machine's own speed changes between the moment that the plan timed its kernels and the run,
so each pair is repeated and the median of its errors counts; the range is printed beside it. Run it on a quiet machine all the same.
"""
import argparse
import json
import os
import pathlib
import statistics
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
        "optimizer": RULES.get(name, "sgd(lr=0.01, momentum=0.9)"), "optim.schedule": "constant", "data.transforms": "",
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
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    cases = [(name, ranks) for name in asked.models.split(",") for ranks in map(int, asked.ranks.split(","))]
    found = {case: [] for case in cases}
    for number in range(asked.rounds):
        for case in cases:
            if sys.stderr.isatty():
                print(f"\rround {number + 1} of {asked.rounds}: {case[0]} on {case[1]} ranks   ", end="", file=sys.stderr, flush=True)
            with tempfile.TemporaryDirectory() as folder:
                found[case].append(run(os.path.join(asked.programs, "cohort"), *case, asked.steps, folder))
    print(f"{'model':<10} {'ranks':>5}  {'memory MiB: predicted':>22} {'measured':>9} {'off':>7}  "
          f"{'step ms: predicted':>19} {'fastest':>9} {'median':>9} {'off':>7}")
    return 1 if sum(show(*case, found[case]) for case in cases) else 0


# One line; whether it is off.
def show(name, ranks, rounds):
    def middle(of):
        return statistics.median(map(of, rounds))
    memory, step = middle(lambda r: r["memory_ratio"]) - 1, middle(lambda r: r["step_ratio"]) - 1
    bad = abs(memory) > MEMORY_OFF or abs(step) > STEP_OFF
    ends = [100 * (pick(r["step_ratio"] for r in rounds) - 1) for pick in (min, max)]
    print(f"{name:<10} {ranks:>5}  {middle(lambda r: r['predicted']['total_bytes']) / 2**20:>22.2f} "
          f"{middle(lambda r: r['measured']['total_bytes']) / 2**20:>9.2f} {100 * memory:>+6.1f}%  "
          f"{1e3 * middle(lambda r: r['predicted']['step_s']):>19.2f} {1e3 * middle(lambda r: r['measured']['quiet_step_s']):>9.2f} "
          f"{1e3 * middle(lambda r: r['measured']['step_s']):>9.2f} {100 * step:>+6.1f}% [{ends[0]:+.1f}..{ends[1]:+.1f}]"
          f"{'  <- off' if bad else ''}", flush=True)
    return bad


if __name__ == "__main__":
    sys.exit(main())
