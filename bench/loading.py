#!/usr/bin/env python3
"""What loading and augmenting cost of a training step: bench/loading.py [folder of programs] [--rounds n]

The MLP of 784-512-512-10, batch 64 a rank, is the shortest step there is. Its time and that of a batch's loading are measured in turns, on
the same machine in the same minutes. Prints the median share for each list of transforms and exits with status 1 when one is above 4 %:
rotating takes 75 us of the batch on the general path, which makes 3.5 % with the rest.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

LISTS = ["normalise", "rotate, normalise", "flip, shift, rotate, zoom, normalise"]
BATCH, RANKS, MOST = 64, 2, 0.04


def answer(*command):
    return json.loads(subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout.strip().splitlines()[-1])


words = argparse.ArgumentParser(description=__doc__)
words.add_argument("programs", nargs="?", default="build/bin")
words.add_argument("--rounds", type=int, default=5)
asked = words.parse_args()
missing = [name for name in ("cohort", "loading_bench") if not os.path.exists(os.path.join(asked.programs, name))]
if missing:
    sys.exit(f"{asked.programs} has no {' and no '.join(missing)}: run `make bench-loading`, which builds them")
steps, loads = [], {text: [] for text in LISTS}
for _ in range(asked.rounds):
    step = answer(f"{asked.programs}/cohort", "bench", "step", "--model", "mlp", "-n", str(RANKS), "--batch", str(BATCH), "--rounds", "1", "--json")
    steps.append(RANKS * BATCH / step["samples_per_s"] * 1e6)
    for text in LISTS:
        loads[text].append(answer(f"{asked.programs}/loading_bench", text, str(BATCH))["median_us"])
print(f"step, {RANKS} ranks: {statistics.median(steps):.0f} us [{min(steps):.0f}..{max(steps):.0f}]")
worst = 0
for text, taken in loads.items():
    shares = [load / step for load, step in zip(taken, steps)]
    worst = max(worst, statistics.median(shares))
    print(f"{text}: {statistics.median(taken):.1f} us, {100 * statistics.median(shares):.2f} % of the step "
          f"[{100 * min(shares):.2f}..{100 * max(shares):.2f}]")
sys.exit(1 if worst > MOST else 0)
