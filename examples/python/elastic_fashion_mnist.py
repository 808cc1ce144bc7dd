"""Elastic training: state that survives a failure, and a sampler that shows every image of an epoch once all the same.

    cohort run -n 2 -- python elastic_fashion_mnist.py
    cohort run -n 2 -- python elastic_fashion_mnist.py --fail-at 20       # a rank gives up there; all go on from the last commit
    cohort run -n 2 --min-n 1 --max-n 4 -- python elastic_fashion_mnist.py     # kill -9 a rank: the others go on, and another one comes
"""
import argparse

import torch
import torch.nn.functional as F

import cohort.torch as hvd
import fashion

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--batch-size", type=int, default=64, help="images per rank and step")
parser.add_argument("--images", type=int, help="train on so many only")
parser.add_argument("--fail-at", type=int, help="rank 0 gives up at this batch of the first epoch, once")
args = parser.parse_args()

hvd.init()
torch.manual_seed(42)
torch.set_num_threads(1)

data = fashion.load("train", args.images)
sampler = hvd.elastic.ElasticSampler(data)
loader = torch.utils.data.DataLoader(data, batch_size=args.batch_size, sampler=sampler)
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02 * hvd.size(), momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
COMMIT_EVERY = 10  # batches; what a failure may cost

failures = []


@hvd.elastic.run
def train(state):
    while state.epoch < args.epochs:
        for images, labels in loader:  # after a restart: what is left of the epoch
            if state.epoch == 0 and state.batch == args.fail_at and not failures and hvd.rank() == 0:
                failures.append(state.batch)
                raise hvd.HorovodInternalError("rank 0 gives up, as it was told to")
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            state.loss = loss.item()
            sampler.record_batch(state.batch, len(images))
            state.seen += int(hvd.allreduce(torch.tensor(len(images)), op=hvd.Sum, name="seen"))
            state.batch += 1
            if state.batch % COMMIT_EVERY == 0:
                state.commit()
        if hvd.rank() == 0:
            print(f"epoch {state.epoch + 1}: loss {state.loss:.3f}, {state.seen} images seen")
        state.epoch, state.batch, state.seen = state.epoch + 1, 0, 0
        sampler.set_epoch(state.epoch)
        state.commit()


state = hvd.elastic.TorchState(model=model, optimizer=optimizer, sampler=sampler, epoch=0, batch=0, seen=0, loss=0.0)
state.register_reset_callbacks([lambda: print(f"rank {hvd.rank()} of {hvd.size()} goes on from epoch {state.epoch + 1}, batch {state.batch}")])
train(state)
