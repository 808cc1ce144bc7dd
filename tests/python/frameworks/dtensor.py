"""DTensor: a perceptron in tensor parallel layers, and tensors that change their placement.

    cohort run -n 2 -- python dtensor.py cohort
"""
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class Perceptron(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(16, 64), torch.nn.Linear(64, 4)

    def forward(self, samples):
        return self.down(torch.relu(self.up(samples)))


def train(mesh):
    torch.manual_seed(7)
    model = parallelize_module(Perceptron(), mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    samples = torch.randn(64, 16)
    labels = (samples @ torch.randn(16, 4)).argmax(1)
    for _ in range(8):
        loss = torch.nn.functional.cross_entropy(model(samples), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print("loss", loss.item(), flush=True)


def move(mesh):
    """Every way from one placement to another, uneven shards too."""
    whole = torch.arange(35.0).reshape(7, 5)
    placements = [Shard(0), Shard(1), Replicate()]
    for here in placements:
        for there in placements:
            moved = distribute_tensor(whole, mesh, [here]).redistribute(placements=[there])
            assert torch.equal(moved.full_tensor(), whole), (here, there)
    product = distribute_tensor(whole, mesh, [Shard(1)]) @ distribute_tensor(whole.T.contiguous(), mesh, [Shard(0)])
    assert isinstance(product.placements[0], Partial)
    for there in placements:
        assert torch.equal(product.redistribute(placements=[there]).full_tensor(), whole @ whole.T), there
    total = product.full_tensor().sum().item()
    if dist.get_rank() == 0:
        print("product", total, flush=True)


if __name__ == "__main__":
    dist.init_process_group(sys.argv[1])
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    train(mesh)
    move(mesh)
    dist.barrier()  # rank 0 has printed before another rank goes
    dist.destroy_process_group()
