#!/usr/bin/env python3
"""torch's own DDP, ZeRO and FSDP2 on backend "cohort" against the same on gloo: the same scripts, one word changed, in turn, as fresh processes.

    python bench/python_training.py [--only ddp,fsdp2] [--rounds 5] [--against gloo] [--package build/python]

ddp         DDP of the MLP of `cohort bench step` (784-512-512-10, batch 64 a rank), with the settings its manual recommends for speed
ddp-plain   the same with DDP and SGD as they come
zero1       ZeroRedundancyOptimizer of a Transformer of 50.8 M parameters, batch 1 x 32 tokens a rank
fsdp2       fully_shard of every block of that Transformer, batch 1 x 32 tokens a rank
fsdp2-long  the same, batch 4 x 128: mostly arithmetic

Baselines are backends: gloo, cohort, cohort-staged (DDP's buckets in ordinary memory), cohort-large (every large tensor in shared memory).
Prints samples/s (median, lowest, highest of the rounds), peak memory where it is known, and how many times gloo that is. Exit status 1
when a baseline named cohort is below the ratio that was asked for by --at-least.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
LIMIT = 600  # seconds for one run on a busy machine

WORKLOADS = {  # script and its arguments
    "ddp": ["torch_ddp.py", "--model", "mlp", "--batch", "64", "--warm", "40", "--steps", "600"],
    "ddp-plain": ["torch_ddp.py", "--model", "mlp", "--batch", "64", "--warm", "40", "--steps", "600", "--plain"],
    "zero1": ["torch_sharded.py", "--how", "zero1", "--batch", "1", "--tokens", "32", "--warm", "2", "--steps", "8"],
    "fsdp2": ["torch_sharded.py", "--how", "fsdp2", "--batch", "1", "--tokens", "32", "--warm", "2", "--steps", "8"],
    "fsdp2-long": ["torch_sharded.py", "--how", "fsdp2", "--batch", "4", "--tokens", "128", "--warm", "1", "--steps", "4"],
}
BASELINES = {  # what it changes in the environment
    "gloo": {"COHORT_BASELINE_BACKEND": "gloo"},
    "cohort": {"COHORT_BASELINE_BACKEND": "cohort"},
    "cohort-staged": {"COHORT_BASELINE_BACKEND": "cohort", "DDP_DISABLE_COMM_MEM": "1"},
    "cohort-large": {"COHORT_BASELINE_BACKEND": "cohort", "COHORT_SHARED_TENSORS": str(1 << 20)},
}


def measure(options, workload, who):
    paths = [str(pathlib.Path(options.package).resolve()), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **BASELINES[who]}
    script, *arguments = WORKLOADS[workload]
    command = [sys.executable, str(HERE / "baselines" / script), "--ranks", str(options.ranks), *arguments]
    done = subprocess.run(command, env=env, text=True, capture_output=True, timeout=LIMIT)
    if done.returncode != 0:
        sys.exit(f"{who}: {' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def compare(options, workload):
    baselines = ["gloo", *options.against.split(",")]
    found = {who: [] for who in baselines}
    for turn in range(options.rounds):
        for who in baselines[turn % len(baselines):] + baselines[:turn % len(baselines)]:
            found[who].append(measure(options, workload, who))
    rates = {who: [run["samples_per_s"] for run in runs] for who, runs in found.items()}
    medians = {who: statistics.median(values) for who, values in rates.items()}
    for who in baselines:
        row = {"workload": workload, "ranks": options.ranks, "backend": who, "samples_per_s": round(medians[who], 1),
               "lowest": round(min(rates[who]), 1), "highest": round(max(rates[who]), 1), "times_gloo": round(medians[who] / medians["gloo"], 2),
               "last_loss": round(statistics.median(run["last_loss"] for run in found[who]), 4)}
        if "peak_bytes" in found[who][0]:
            row["peak_mib"] = round(statistics.median(run["peak_bytes"] for run in found[who]) / 2**20)
        print(json.dumps(row), flush=True)
    return medians["cohort"] / medians["gloo"] if "cohort" in medians else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="ddp,fsdp2")
    parser.add_argument("--against", default="cohort", help="baselines beside gloo: " + ", ".join(BASELINES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--package", default=str(HERE.parent / "build" / "python"))
    parser.add_argument("--at-least", type=float, default=0, help="times gloo")
    options = parser.parse_args()
    ratios = [compare(options, workload) for workload in options.only.split(",")]
    return 1 if any(ratio is not None and ratio < options.at_least for ratio in ratios) else 0


if __name__ == "__main__":
    sys.exit(main())
