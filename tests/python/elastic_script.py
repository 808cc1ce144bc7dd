"""A worker of an elastic job, as a Horovod script has it: elastic_script.py <folder> <samples> [<mischief>]

It trains one number. A step adds the squares of the ranks' samples to it, by the optimizer; `state.trace` has a checksum after each commit, in
which the order counts, and `state.seen` the samples of each epoch. Every worker also writes down each commit that it saw return: those
lines must agree with the trace of the ranks that are there at the end, or a commit was lost. The file `stop` in the folder ends the job.
"""
import json
import os
import pathlib
import signal
import sys
import time

import torch

import horovod.torch as hvd

folder, samples = pathlib.Path(sys.argv[1]), int(sys.argv[2])
mischief = sys.argv[3] if len(sys.argv) > 3 else ""
BATCH = 2


def write(**what):
    with open(folder / f"{os.getpid()}.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps(what) + "\n")


pair = hvd.ProcessSet([0, 1])
hvd.init(process_sets=[pair])
torch.set_num_threads(1)
model = torch.nn.Linear(1, 1, bias=False).double()
torch.nn.init.zeros_(model.weight)
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), op=hvd.Sum)
sampler = hvd.elastic.ElasticSampler(range(samples), seed=3)
state = hvd.elastic.TorchState(model=model, optimizer=optimizer, sampler=sampler, epoch=0, batch=0, checksum=0, trace=[], seen=[[]], last=False)
state.register_reset_callbacks([lambda: write(event="reset", rank=hvd.rank(), size=hvd.size(), commits=len(state.trace))])


def misbehave(state):
    """Two commits that are in progress when a rank dies: of four ranks one more has not voted, and one that leaves; of two the other one has."""
    commit, victim = len(state.trace), hvd.size() - 1
    if mischief == "votes" and ((commit == 4 and hvd.size() == 4) or (commit == 8 and hvd.size() == 2)):
        if hvd.rank() == 2:
            os.kill(os.getpid(), signal.SIGUSR1)
            (folder / "leaves").touch()
        if hvd.rank() == 0:
            (folder / f"votes{commit}").touch()
        if hvd.rank() == victim:
            while not ((folder / "leaves").exists() and (folder / f"votes{commit}").exists()):
                time.sleep(0.01)
            time.sleep(0.1 * float(os.environ.get("COHORT_TEST_SLOWDOWN", "1")))  # rank 0 votes
            (folder / f"dies{commit}").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if hvd.rank() in (1, 2):
            hvd.allreduce(torch.zeros(1), name="no other rank comes here")


def step(state, batch):
    optimizer.zero_grad()
    (-model(torch.tensor([[float(s) ** 2] for s in batch]).double())).sum().backward()
    optimizer.step()
    stop = (folder / "stop").exists() and hvd.rank() == 0
    everyone = hvd.allgather(torch.tensor([*batch, int(stop)]), name="who did what").view(hvd.size(), -1)
    state.seen[-1] += everyone[:, :-1].flatten().tolist()
    state.last = bool(everyone[:, -1].any())
    state.checksum = (state.checksum * 31 + int(everyone[:, :-1].sum()) + hvd.size()) % 1000003
    if pair.included():  # there whenever there are two ranks
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum, process_set=pair).item() == 2
    assert (pair.process_set_id is None) == (hvd.size() == 1)
    sampler.record_batch(state.batch, len(batch))
    state.batch += 1
    misbehave(state)
    state.trace.append(state.checksum)
    state.commit()
    write(event="commit", rank=hvd.rank(), size=hvd.size(), number=len(state.trace), checksum=state.checksum)
    time.sleep(0.01)


@hvd.elastic.run
def within(state):
    """One inside the other ends nothing."""
    return state.last


@hvd.elastic.run
def train(state):
    write(event="enter", rank=hvd.rank(), size=hvd.size(), commits=len(state.trace))
    while not within(state):
        for batch in torch.utils.data.DataLoader(range(samples), batch_size=BATCH, sampler=sampler, num_workers=int(mischief == "loader")):
            step(state, batch.tolist())
        state.epoch += 1
        sampler.set_epoch(state.epoch)
        state.seen.append([])
    return "trained"


@hvd.elastic.run
def afterwards(state):
    """The job is over for its launcher; the ranks that ended it are still there for each other."""
    state.commit()
    return hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()


try:
    result = train(state)
except SystemExit:
    write(event="leaves", batch=state.batch, commits=len(state.trace))
    raise
assert afterwards(state)
total = hvd.allreduce(model.weight.detach(), op=hvd.Sum).item() / hvd.size()
write(event="end", result=result, rank=hvd.rank(), size=hvd.size(), weight=model.weight.item(), mean=total, trace=state.trace, seen=state.seen)
if mischief == "votes":
    sys.exit(7)  # after training
