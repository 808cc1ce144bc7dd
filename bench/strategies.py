#!/usr/bin/env python3
"""Accuracy, time and bytes of every way of training together: strategies.py [--workers 4] [--epochs 3] [--quick] [--figure docs/strategies.svg]

Trains the small CNN on Fashion-MNIST once with each `sync` (and codec), all with the same data, rate, number of epochs and workers, and reads
metrics.jsonl of each run: the test accuracy at the end, seconds (of the training steps and evaluations), bytes that rank 0 received. One JSON
object a run, then a table; --figure draws the training loss against time and received bytes. --quick is a small perceptron on made-up data, of
seconds a run: that everything works, no result. Where workers share cores or a busy machine seconds say more about that than about a strategy;
bytes and accuracy do not depend on it.
"""
import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time

LIMIT = 3600  # seconds for one run on a busy machine
WAYS = ("all_reduce", "zero(stage=1)", "all_reduce +int8", "all_reduce +topk(ratio=0.01)", "local_sgd(h=8)", "local_sgd(h=8, wait=none)",
        "post_local_sgd(h=8, start=200)", "diloco(h=50)", "diloco(h=50, wait=none)", "streaming_diloco(h=50, fragments=2, delay=1)",
        "easgd(h=4)", "easgd(h=4, async=true)", "eamsgd(h=4)", "sma", "dpsgd(graph=ring)", "dpsgd(graph=exponential)", "push_sum",
        "pair_averaging", "pair_averaging(pull=true)", "ad_psgd", "choco(codec=topk(ratio=0.1), gamma=0.1)",
        "hierarchical_gossip(per_host=2)", "parallel_sgd")
FASHION = {"model": "cnn", "data.train": "fashion_mnist", "data.test": "fashion_mnist(split=test)", "data.transforms": "normalise", "data.batch": 32}
SMALL = {"model": "mlp(in=784, hidden=32, out=10)", "data.train": "synthetic(samples=1200)", "data.test": "synthetic(samples=200, split=test)",
         "data.batch": 16}


def steps_of(options):
    return {True: 1200 // 16, False: 60000 // 32}[options.quick] // options.workers


def train(options, way, folder):
    sync, _, codec = way.partition(" +")
    total = options.steps or steps_of(options) * options.epochs
    sets = {**(SMALL if options.quick else FASHION), "sync": sync, "codec": codec or "none",
            "epochs": 0 if options.steps else options.epochs, "steps": options.steps, "seed": options.seed,
            "optimizer": options.optimizer, "optim.schedule": "cosine(warmup=0.05)", "threads": 1, "observe.every_steps": max(1, total // 60),
            "engine.report_every": max(1, total // 60), "observe.tensorboard": "false", "observe.report": "false",
            "checkpoint.every_epochs": 0, "checkpoint.resume": "never"}
    out = os.path.join(folder, "run")
    words = [options.cohort, "train", "-n", str(options.workers), "-o", out]
    for key, value in sets.items():
        words += ["--set", f"{key}={value}"]
    start = time.monotonic()
    done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    seconds = time.monotonic() - start
    with open(out + "/metrics.jsonl") as file:
        lines = [json.loads(line) for line in file]
    subprocess.run(["rm", "-rf", out], check=True)
    return result(way, lines, seconds)


def result(way, lines, seconds):
    """Of the lines of metrics.jsonl: the end, and the curve of the training loss."""
    begin, received, before, curve = lines[0]["time"], 0.0, 0, []
    for line in lines:
        if "received_bytes" not in line:
            continue
        received += line["received_bytes"] * (line["step"] - before)
        before = line["step"]
        curve.append([round(line["time"] - begin, 3), round(received / 1e6, 3), round(line["loss"], 4)])
    tested = [line for line in lines if "test_loss" in line]
    return {"sync": way, "accuracy": round(100 * tested[-1]["test_accuracy"], 2), "test_loss": round(tested[-1]["test_loss"], 4),
            "seconds": round(seconds, 1), "received_mb": round(received / 1e6, 2), "steps": before,
            "disagreement": tested[-1].get("disagreement"), "curve": curve}


def table(found):
    full = next((r["received_mb"] for r in found if r["sync"] == "all_reduce"), None)
    rows = [["`sync`, codec", "test accuracy", "test loss", "received", "of all_reduce's", "seconds"]]
    for r in found:
        share = f"{100 * r['received_mb'] / full:.1f} %" if full else ""
        rows.append([f"`{r['sync'].replace(' +', '`, `')}`", f"{r['accuracy']:.2f} %", f"{r['test_loss']:.3f}", f"{r['received_mb']:.1f} MB", share,
                     f"{r['seconds']:.0f}"])
    text = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([text[0], "|" + "---|" * len(rows[0]), *text[1:]])


# --- the figure: two panels, one line a run

COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#ff7f0e", "#9467bd", "#8c564b", "#e377c2", "#17becf", "#bcbd22", "#7f7f7f")
WIDTH, HEIGHT, LEFT, TOP, PANEL, TALL, GAP, LEGEND = 960, 400, 52, 34, 330, 300, 56, 190


def smooth(curve):
    """Each point with its neighbours: a loss of a few batches is noise."""
    return [[x, mb, sum(p[2] for p in curve[max(0, i - 2):i + 3]) / len(curve[max(0, i - 2):i + 3])] for i, (x, mb, _) in enumerate(curve)]


def panel(found, column, title, left, low, high, log):
    most = max(p[column] for r in found for p in r["curve"]) or 1
    least = min((p[column] for r in found for p in r["curve"] if p[column] > 0), default=1) if log else 0

    def across(value):
        if not log:
            return left + PANEL * value / most
        return left + PANEL * math.log(max(value, least) / least) / max(math.log(most / least), 1e-9)

    def down(value):
        return TOP + TALL * (1 - (min(max(value, low), high) - low) / (high - low))

    parts = [f'<text x="{left}" y="{TOP - 12}" font-size="13" fill="#222">{title}</text>']
    for k in range(5):
        value = low + (high - low) * k / 4
        parts.append(f'<line x1="{left}" y1="{down(value):.1f}" x2="{left + PANEL}" y2="{down(value):.1f}" stroke="#e5e5e5"/>'
                     f'<text x="{left - 6}" y="{down(value) + 4:.1f}" text-anchor="end" fill="#555">{value:.2f}</text>')
        at = least * (most / least) ** (k / 4) if log else most * k / 4
        parts.append(f'<text x="{across(at):.1f}" y="{TOP + TALL + 18}" text-anchor="middle" fill="#555">{at:.3g}</text>')
    for i, r in enumerate(found):
        points = " ".join(f"{across(p[column]):.1f},{down(p[2]):.1f}" for p in smooth(r["curve"]) if p[column] > 0)
        parts.append(f'<polyline points="{points}" fill="none" stroke-width="1.6" {stroke(i)}/>')
    return parts


def stroke(i):
    dash = ' stroke-dasharray="5 3"' if i >= len(COLOURS) else ""
    return f'stroke="{COLOURS[i % len(COLOURS)]}"{dash}'


def figure(found, title):
    losses = sorted(p[2] for r in found for p in smooth(r["curve"]))
    low, high = losses[0] * 0.95, losses[int(len(losses) * 0.93)]
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="11">',
             f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
             *panel(found, 0, "training loss against seconds", LEFT, low, high, False),
             *panel(found, 1, "against MB received by rank 0 (logarithmic)", LEFT + PANEL + GAP, low, high, True)]
    for i, r in enumerate(found):
        y = TOP + 14 * i
        parts.append(f'<line x1="{WIDTH - LEGEND}" y1="{y}" x2="{WIDTH - LEGEND + 18}" y2="{y}" stroke-width="2" {stroke(i)}/>'
                     f'<text x="{WIDTH - LEGEND + 23}" y="{y + 4}" fill="#222">{r["sync"]}</text>')
    parts.append(f'<text x="{LEFT}" y="{HEIGHT - 12}" fill="#555">{title}</text></svg>')
    return "\n".join(parts) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cohort", default="build/bin/cohort")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=0, help="so many steps instead of epochs")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--optimizer", default="sgd(lr=0.05, momentum=0.9)")
    parser.add_argument("--only", default="", help="spellings, with ; between them")
    parser.add_argument("--quick", action="store_true", help="a small perceptron on made-up data")
    parser.add_argument("--json", default="", help="the runs, into a file; what is there already is not run again")
    parser.add_argument("--figure", default="", help="an SVG")
    options = parser.parse_args()
    found = []
    if options.json and os.path.exists(options.json):
        with open(options.json) as file:
            found = [json.loads(line) for line in file]
    ways = [way.strip() for way in options.only.split(";") if way.strip()] or WAYS
    with tempfile.TemporaryDirectory(prefix="cohort-strategies-") as folder:
        for way in ways:
            if any(r["sync"] == way for r in found):
                continue
            found.append(train(options, way, folder))
            print(json.dumps({key: value for key, value in found[-1].items() if key != "curve"}), flush=True)
            if options.json:
                with open(options.json, "a") as file:
                    file.write(json.dumps(found[-1]) + "\n")
    found = [r for way in ways for r in found if r["sync"] == way]
    print(table(found))
    if options.figure:
        what = "a small perceptron on made-up data" if options.quick else "the small CNN on Fashion-MNIST"
        long = f"{options.steps} steps" if options.steps else f"{options.epochs} epochs"
        with open(options.figure, "w") as file:
            file.write(figure(found, f"{what}, {options.workers} workers of one thread on {len(os.sched_getaffinity(0))} cores, {long}: bench/strategies.py"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
