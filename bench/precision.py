#!/usr/bin/env python3
"""Does training in 16 bits reach the accuracy of fp32? precision.py [--epochs 3] [--seeds 1,2,3] [--model ..]

Trains the same perceptron on Fashion-MNIST in fp32, bf16 and fp16 (with the default loss scale) for every seed, one rank each, and prints
the test accuracies, their means, and the differences to fp32's mean in points. Exit status 1 when one of them is further away than
--within. On a CPU without fp16 arithmetic fp16 is several times slower than fp32: it is here for its numbers, not its speed.
"""
import argparse
import json
import subprocess
import sys
import tempfile
import time

LIMIT = 1800  # seconds for one run on a busy machine


def run(options, precision, seed, folder):
    sets = {"precision": precision, "seed": seed, "model": options.model, "epochs": options.epochs, "data.batch": options.batch,
            "threads": options.threads, "observe.tensorboard": "false", "observe.report": "false", "checkpoint.resume": "never"}
    out = f"{folder}/{precision}-{seed}"
    words = [options.cohort, "train", "-n", "1", "-o", out]
    for key, value in sets.items():
        words += ["--set", f"{key}={value}"]
    start = time.monotonic()
    done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    with open(out + "/metrics.jsonl") as file:
        lines = [json.loads(line) for line in file]
    return {"precision": precision, "seed": seed, "accuracy": round(100 * [m["test_accuracy"] for m in lines if "test_accuracy" in m][-1], 2),
            "skipped": [m["skipped"] for m in lines if "skipped" in m][-1], "seconds": round(time.monotonic() - start, 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cohort", default="build/bin/cohort")
    parser.add_argument("--model", default="mlp(in=784, hidden=128, out=10)")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1, help="so small a model gains nothing from more")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--within", type=float, default=0.3, help="points of accuracy")
    options = parser.parse_args()
    means = {}
    with tempfile.TemporaryDirectory(prefix="cohort-precision-") as folder:
        for precision in ("fp32", "bf16", "fp16"):
            runs = []
            for seed in options.seeds.split(","):
                runs.append(run(options, precision, int(seed), folder))
                print(json.dumps(runs[-1]), flush=True)
            means[precision] = sum(each["accuracy"] for each in runs) / len(runs)
    far = False
    for precision, mean in means.items():
        away = mean - means["fp32"]
        far = far or abs(away) > options.within
        print(f"{precision}: mean accuracy {mean:.2f} %, {away:+.2f} points from fp32")
    return 1 if far else 0


sys.exit(main())
