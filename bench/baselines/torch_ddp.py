#!/usr/bin/env python3
"""torch's DistributedDataParallel over gloo as a baseline of `cohort bench step`: trains, and prints one JSON line.

    python torch_ddp.py --ranks 2 --model mlp --batch 64 --warm 20 --steps 300 --lr 0.05 [--data DIR]

Starts its own ranks on the loopback device, one thread each. Network, data, batch, learning rate and number of steps are those of the other
baselines (cohort/cli/worker/bench_step.cc): the samples lie in memory as bytes, are shuffled, and become floats when a batch is made.
DDP has the settings its manual recommends for speed (--plain: as it comes): gradients as views of its buckets, one static graph, no broadcast of buffers, and torch's fused SGD.
Exit status: 0, 2 usage, 3 when torch or its gloo is missing.
"""
import argparse
import gzip
import os
import sys
import time

import local_ranks

SYNTHETIC_SAMPLES = 10000


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--model", default="mlp", choices=("mlp", "cnn", "resnet18"))
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--warm", type=int, default=20)
    p.add_argument("--steps", type=int, default=300)
    p.add_argument("--lr", type=float, default=0.05)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--data", default="/usr/share/datasets/fashion-mnist", help="folder of Fashion-MNIST (mlp, cnn)")
    p.add_argument("--plain", action="store_true", help="DDP and SGD as they come")
    return p.parse_args()


def read_idx(torch, folder, name):
    """The bytes of one IDX file, gzipped or not, after its header, in their shape."""
    path = os.path.join(folder, name)
    with gzip.open(path + ".gz") if os.path.exists(path + ".gz") else open(path, "rb") as file:
        raw = bytearray(file.read())
    sizes = [int.from_bytes(raw[4 + 4 * i:8 + 4 * i], "big") for i in range(raw[3])]
    return torch.frombuffer(raw, dtype=torch.uint8, offset=4 + 4 * len(sizes)).reshape(sizes)


def fashion_mnist(torch, folder):
    images = read_idx(torch, folder, "train-images-idx3-ubyte").unsqueeze(1)
    return images, read_idx(torch, folder, "train-labels-idx1-ubyte").long()


def synthetic(torch, seed):
    """As cohort/data/datasets/synthetic.cc: a mean image for each class in blocks of 4 x 4, plus uniform noise."""
    dice = torch.Generator().manual_seed(seed)
    means = torch.randint(64, 192, (10, 3, 8, 8), generator=dice).repeat_interleave(4, 2).repeat_interleave(4, 3)
    labels = torch.arange(SYNTHETIC_SAMPLES) % 10
    noise = torch.randint(-64, 65, (SYNTHETIC_SAMPLES, 3, 32, 32), generator=dice, dtype=torch.int16)
    return (means[labels] + noise).clamp(0, 255).to(torch.uint8), labels


def mlp(nn):
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))


def cnn(nn):
    return nn.Sequential(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Flatten(), nn.Linear(64 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, 10))


def resnet18(nn):
    """For 32 x 32 images: a 3 x 3 stem without a pool; convolutions start by He's rule."""

    class Residual(nn.Module):
        def __init__(self, given, width, stride):
            super().__init__()
            self.conv1 = nn.Conv2d(given, width, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(width)
            self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(width)
            self.relu = nn.ReLU(inplace=True)
            self.shortcut = nn.Identity()
            if stride != 1 or given != width:
                self.shortcut = nn.Sequential(nn.Conv2d(given, width, 1, stride, bias=False), nn.BatchNorm2d(width))

        def forward(self, x):
            y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
            y += self.shortcut(x)
            return self.relu(y)

    blocks = [Residual(max(64, w // 2) if i == 0 else w, w, 2 if i == 0 and w > 64 else 1) for w in (64, 128, 256, 512) for i in range(2)]
    net = nn.Sequential(nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                        nn.Linear(512, 10))
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return net


def batches(torch, args, images, labels):
    """Endless: every epoch another order, the same on all ranks, cut into global batches and those into contiguous parts."""
    rank, whole = int(os.environ["RANK"]), args.ranks * args.batch
    for epoch in range(10**9):
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(args.seed * 1000003 + epoch))
        for at in range(0, len(labels) - whole + 1, whole):
            mine = order[at + rank * args.batch:at + (rank + 1) * args.batch]
            yield images[mine].float().div_(255), labels[mine]


def wrap(torch, args, model):
    """The parallel model and its optimizer."""
    ddp = torch.nn.parallel.DistributedDataParallel
    if args.plain:
        return ddp(model), torch.optim.SGD(model.parameters(), lr=args.lr)
    return (ddp(model, gradient_as_bucket_view=True, static_graph=True, broadcast_buffers=False),
            torch.optim.SGD(model.parameters(), lr=args.lr, fused=True))


def train(torch, dist, args):
    torch.manual_seed(args.seed)
    model = {"mlp": mlp, "cnn": cnn, "resnet18": resnet18}[args.model](torch.nn)
    images, labels = synthetic(torch, args.seed) if args.model == "resnet18" else fashion_mnist(torch, args.data)
    parallel, sgd = wrap(torch, args, model)
    source, losses, start = batches(torch, args, images, labels), [], 0.0
    for step in range(args.warm + args.steps):
        if step == args.warm:
            dist.barrier()
            start = time.perf_counter()
        inputs, wanted = next(source)
        loss = torch.nn.functional.cross_entropy(parallel(inputs), wanted)
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        losses.append(loss.item())
    dist.barrier()
    return time.perf_counter() - start, losses


def work(args):
    found = local_ranks.gloo("torch_ddp") if local_ranks.die_with_parent() else None
    if found is None:
        return 3
    torch, dist = found
    torch.set_flush_denormal(True)
    seconds, losses = train(torch, dist, args)
    local_ranks.report(torch, dist, args, seconds, losses)
    return 0


if __name__ == "__main__":
    options = parse()
    sys.exit(work(options) if local_ranks.is_rank() else local_ranks.launch(options.ranks, OMP_WAIT_POLICY="PASSIVE"))
