"""Training with Horovod's interface, as its documentation shows it, on Cohort's engine.

    cohort run -n 2 -- python hvd_fashion_mnist.py
    horovodrun -np 2 python hvd_fashion_mnist.py

`import cohort.torch as hvd` is the same thing; scripts that say horovod.torch run unchanged.
"""
import argparse

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

import fashion
import horovod.torch as hvd

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--batch-size", type=int, default=64, help="images per rank and step")
parser.add_argument("--lr", type=float, default=0.02, help="of one rank; it grows with their number")
parser.add_argument("--images", type=int, help="train on so many only")
parser.add_argument("--fp16-allreduce", action="store_true", help="gradients travel as 16-bit numbers")
parser.add_argument("--codec", help="gradients travel by a codec: int8, topk(ratio=0.01) ..")
parser.add_argument("--use-adasum", action="store_true", help="combine the ranks' steps by Adasum")
args = parser.parse_args()

hvd.init()
torch.manual_seed(42)
torch.set_num_threads(1)

train_data, test_data = fashion.load("train", args.images), fashion.load("test", args.images)
train_sampler = DistributedSampler(train_data, num_replicas=hvd.size(), rank=hvd.rank(), seed=42)
test_sampler = DistributedSampler(test_data, num_replicas=hvd.size(), rank=hvd.rank(), shuffle=False)
train_loader = DataLoader(train_data, batch_size=args.batch_size, sampler=train_sampler)
test_loader = DataLoader(test_data, batch_size=1000, sampler=test_sampler)

model = torch.nn.Sequential(
    torch.nn.Conv2d(1, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
    torch.nn.Conv2d(16, 32, 3, padding=1), hvd.SyncBatchNorm(32), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
    torch.nn.Flatten(), torch.nn.Linear(32 * 7 * 7, 10))
scale = 1 if args.use_adasum else hvd.size()
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * scale, momentum=0.9)

hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
compression = hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none
if args.codec:
    compression = hvd.Compression.codec(args.codec)
optimizer = hvd.DistributedOptimizer(
    optimizer, named_parameters=model.named_parameters(), op=hvd.Adasum if args.use_adasum else hvd.Average, compression=compression)


def train(epoch):
    model.train()
    train_sampler.set_epoch(epoch)
    for images, labels in train_loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
    return loss.item()


def test():
    model.eval()
    right = torch.zeros(1)
    with torch.no_grad():
        for images, labels in test_loader:
            right += (model(images).argmax(1) == labels).sum()
    seen = torch.tensor([float(len(test_sampler))])
    return (hvd.allreduce(right, op=hvd.Sum, name="right") / hvd.allreduce(seen, op=hvd.Sum, name="seen")).item()


for epoch in range(args.epochs):
    loss = train(epoch)
    accuracy = test()
    if hvd.rank() == 0:
        print(f"epoch {epoch + 1}: loss of the last batch {loss:.3f}, test accuracy {accuracy:.1%}")
