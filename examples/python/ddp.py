#!/usr/bin/env python3
"""Images sorted into classes with torch's DistributedDataParallel, on Cohort: one import and one argument are all that changes.

    cohort run -n 2 -- python ddp.py
    torchrun --nproc-per-node 2 ddp.py
    cohort run -n 2 -- python ddp.py --codec int8          gradients in fewer bytes (docs/codecs.md)
    python ddp.py --backend gloo ...                       the same without Cohort

Reads Fashion-MNIST where Debian puts it (package dataset-fashion-mnist), else makes images of its own.
"""
import argparse
import gzip
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import cohort  # the backend "cohort", and its hooks

FOLDER = "/usr/share/datasets/fashion-mnist"


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="cohort")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=64, help="images of a rank")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--codec", help="a communication hook of cohort's: int8, topk(ratio=0.01) ..")
    return parser.parse_args()


def images_and_labels():
    if not os.path.isdir(FOLDER):
        labels = torch.arange(10_000) % 10
        shapes = torch.rand(10, 28, 28, generator=torch.Generator().manual_seed(1))
        return (shapes[labels] + 0.3 * torch.randn(10_000, 28, 28, generator=torch.Generator().manual_seed(2))).unsqueeze(1), labels

    def content(name, header):
        with gzip.open(os.path.join(FOLDER, name + ".gz")) as file:
            return torch.frombuffer(bytearray(file.read()[header:]), dtype=torch.uint8)

    images = content("train-images-idx3-ubyte", 16).view(-1, 1, 28, 28).float() / 255
    return images, content("train-labels-idx1-ubyte", 8).long()


def main():
    options = parse()
    dist.init_process_group(options.backend)
    rank, ranks = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(784, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)
    )
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9)
    if options.codec:
        model.register_comm_hook(cohort.hooks.State(model, optimizer), cohort.hooks.codec(options.codec))
    images, labels = images_and_labels()
    sampler = torch.utils.data.DistributedSampler(labels, ranks, rank)
    order = torch.tensor(list(sampler))

    start = time.perf_counter()
    for step in range(options.steps):
        mine = order[torch.arange(step * options.batch, (step + 1) * options.batch) % len(order)]
        loss = torch.nn.functional.cross_entropy(model(images[mine]), labels[mine])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and (step + 1) % max(1, options.steps // 5) == 0:
            print(f"step {step + 1}: loss {loss.item():.3f}", flush=True)
    seconds = time.perf_counter() - start

    right = torch.tensor([(model.module(images[rank::ranks][:2000]).argmax(1) == labels[rank::ranks][:2000]).float().sum(), 2000.0])
    dist.all_reduce(right)
    if rank == 0:
        print(f"{options.steps * options.batch * ranks / seconds:.0f} images/s on {ranks} ranks, {100 * right[0] / right[1]:.1f} % right")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
