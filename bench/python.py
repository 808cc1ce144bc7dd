#!/usr/bin/env python3
"""Cohort's Python package against torch.distributed on gloo, side by side in one run: rounds alternate, medians are printed.

    cohort run -n 2 -- python bench/python.py [--rounds 5] [--only gradients,small]

gradients   in-place all-reduce of the 161 gradients of a ResNet-50 (25.6 million float32), asynchronous, then waited for
small       4 bytes, asynchronous, then waited for
"""
import argparse
import json
import os
import statistics
import time

import torch
import torch.distributed as dist

import cohort.torch as hvd

# Shapes of the parameters of torchvision's resnet50, in order.
def resnet50():
    shapes, width = [(64, 3, 7, 7), (64,), (64,)], 64
    for planes, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            shapes += [(planes, width, 1, 1), (planes,), (planes,), (planes, planes, 3, 3), (planes,), (planes,), (4 * planes, planes, 1, 1),
                       (4 * planes,), (4 * planes,)]
            if block == 0:
                shapes += [(4 * planes, width, 1, 1), (4 * planes,), (4 * planes,)]
            width = 4 * planes
    return shapes + [(1000, 2048), (1000,)]


def timed(work, repeats):
    dist.barrier()
    began = time.perf_counter()
    for _ in range(repeats):
        work()
    return (time.perf_counter() - began) / repeats


def contest(name, repeats, rounds, baselines):
    """{baseline: median seconds}; every round runs each of them once."""
    seconds = {who: [] for who in baselines}
    for work in baselines.values():
        work()
    for _ in range(rounds):
        for who, work in baselines.items():
            slowest = torch.tensor([timed(work, repeats)], dtype=torch.float64)
            dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
            seconds[who].append(slowest.item())
    medians = {who: statistics.median(values) for who, values in seconds.items()}
    if dist.get_rank() == 0:
        row = {"benchmark": name, "ranks": dist.get_world_size(), "us": {who: round(1e6 * s, 1) for who, s in medians.items()}}
        row["times gloo"] = {who: round(medians["gloo"] / s, 2) for who, s in medians.items() if who != "gloo"}
        print(json.dumps(row), flush=True)
    return medians


def gradients(rounds):
    grads = [torch.zeros(shape) for shape in resnet50()]

    def one_by_one():
        for handle in [hvd.allreduce_async_(grad, name=f"grad.{i}") for i, grad in enumerate(grads)]:
            hvd.synchronize(handle)

    def grouped():
        hvd.grouped_allreduce_(grads, name="grads")

    def gloo():
        for work in [dist.all_reduce(grad, async_op=True) for grad in grads]:
            work.wait()

    contest("gradients of ResNet-50", 3, rounds, {"cohort": one_by_one, "cohort grouped": grouped, "gloo": gloo})


def small(rounds):
    four = torch.zeros(1)
    contest("4 bytes", 300, rounds, {
        "cohort": lambda: hvd.synchronize(hvd.allreduce_async_(four, name="small")),
        "gloo": lambda: dist.all_reduce(four, async_op=True).wait(),
    })


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="gradients,small")
    options = parser.parse_args()
    if "RANK" not in os.environ:
        raise SystemExit("bench/python.py compares ranks: start it with `cohort run -n 2 -- python bench/python.py`")
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    hvd.init()
    dist.init_process_group("gloo")
    for word in options.only.split(","):
        {"gradients": gradients, "small": small}[word](options.rounds)
    dist.destroy_process_group()
    hvd.shutdown()


if __name__ == "__main__":
    main()
