"""torch.distributed.checkpoint: saved by some ranks, loaded by another number of them, also in the background.

    cohort run -n 2 -- python distributed_checkpoint.py cohort folder save
    cohort run -n 3 -- python distributed_checkpoint.py cohort folder load
"""
import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard


def sharded():
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(16, 50), torch.nn.Tanh(), torch.nn.Linear(50, 3))
    for layer in (model[0], model[2], model):
        fully_shard(layer)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def step(model, optimizer, number):
    """The same samples on every rank, so that their number does not matter."""
    samples = torch.randn(32, 16, generator=torch.Generator().manual_seed(number))
    loss = (model(samples) - samples[:, :3]).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if dist.get_rank() == 0:
        print("loss", number, round(loss.item(), 6), flush=True)


def state_of(model, optimizer):
    weights, moments = get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": moments, "step": torch.tensor(0)}


def save(folder):
    model, optimizer = sharded()
    for number in range(4):
        step(model, optimizer, number)
    state = state_of(model, optimizer)
    state["step"].fill_(4)
    dcp.save(state, checkpoint_id=folder)
    dcp.async_save(state, checkpoint_id=f"{folder}-background", process_group=dist.new_group()).result()
    for number in range(4, 8):
        step(model, optimizer, number)


def load(folder):
    for place in (folder, f"{folder}-background"):
        model, optimizer = sharded()
        state = state_of(model, optimizer)
        dcp.load(state, checkpoint_id=place)
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        for number in range(int(state["step"]), 8):
            step(model, optimizer, number)


if __name__ == "__main__":
    backend, folder, what = sys.argv[1:]
    dist.init_process_group(backend)
    os.makedirs(folder, exist_ok=True)
    save(folder) if what == "save" else load(folder)
    dist.destroy_process_group()
