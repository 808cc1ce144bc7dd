"""What stands on torch.distributed runs on backend "cohort" unchanged: DDP, ZeRO, FSDP2, DTensor, checkpoints, functional collectives."""
import copy
import os
import tempfile

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.checkpoint as checkpoint
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel as DDP

import cohort
from launch import ranks


def setup_rank():
    dist.init_process_group("cohort")


def teardown_rank():
    dist.destroy_process_group()


def model(width=64):
    torch.manual_seed(5)
    return torch.nn.Sequential(torch.nn.Linear(20, width), torch.nn.ReLU(), torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, 4))


def batch(step, rank=None):
    rank = dist.get_rank() if rank is None else rank
    torch.manual_seed(100 * step + rank)
    return torch.randn(8, 20), torch.randn(8, 4)


def loss_of(net, step, rank=None):
    inputs, targets = batch(step, rank)
    return torch.nn.functional.mse_loss(net(inputs), targets)


def trained_alone(steps, make=lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9)):
    """The same training by one process that sees the batches of all ranks."""
    net = model()
    optimizer = make(net.parameters())
    for step in range(steps):
        optimizer.zero_grad()
        n = dist.get_world_size()
        sum(loss_of(net, step, rank) for rank in range(n)).div(n).backward()
        optimizer.step()
    return net


def train(net, optimizer, steps):
    for step in range(steps):
        optimizer.zero_grad()
        loss_of(net, step).backward()
        optimizer.step()
    return net


def close(left, right):
    for one, other in zip(left.parameters(), right.parameters()):
        torch.testing.assert_close(one.detach(), other.detach(), rtol=1e-4, atol=1e-5)


def alike_on_all_ranks(net):
    for parameter in net.parameters():
        everyone = [torch.zeros_like(parameter) for _ in range(dist.get_world_size())]
        dist.all_gather(everyone, parameter.detach())
        assert all(torch.equal(one, everyone[0]) for one in everyone)


@ranks(1, 2, 3, 4)
def test_ddp_trains_as_one_process_would():
    net = DDP(model(), bucket_cap_mb=0.01)
    train(net, torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9), 4)
    close(net, trained_alone(4))
    alike_on_all_ranks(net)


@ranks(2)
def test_ddp_buckets_lie_in_shared_memory():
    before = cohort.distributed.shared_memory()["in_use"]
    net = DDP(model(512), gradient_as_bucket_view=True)
    loss_of(net, 0).backward()
    loss_of(net, 1).backward()
    held = cohort.distributed.shared_memory()["in_use"] - before
    assert held >= sum(p.numel() * 4 for p in net.parameters()), held


@ranks(2)
def test_ddp_variants():
    for options in ({"gradient_as_bucket_view": True}, {"static_graph": True}, {"find_unused_parameters": True}, {"broadcast_buffers": False}):
        net = DDP(model(), **options)
        train(net, torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9), 3)
        close(net, trained_alone(3))
    net = DDP(model())
    with net.no_sync():
        loss_of(net, 0).backward()
    loss_of(net, 1).backward()
    alike_on_all_ranks(net)
    normed = torch.nn.Sequential(torch.nn.Linear(20, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 4))
    net = DDP(normed)
    train(net, torch.optim.SGD(net.parameters(), lr=0.1), 3)
    alike_on_all_ranks(net)


@ranks(2)
def test_ddp_communication_hooks():
    for hook in (default_hooks.allreduce_hook, default_hooks.fp16_compress_hook):
        net = DDP(model())
        net.register_comm_hook(None, hook)
        train(net, torch.optim.SGD(net.parameters(), lr=0.1), 2)
        alike_on_all_ranks(net)
    net = DDP(model())
    net.register_comm_hook(powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2), powerSGD_hook.powerSGD_hook)
    train(net, torch.optim.SGD(net.parameters(), lr=0.1), 4)
    alike_on_all_ranks(net)


@ranks(2)
def test_ddp_with_sparse_gradients_and_uneven_inputs():
    torch.manual_seed(1)
    net = DDP(torch.nn.Sequential(torch.nn.EmbeddingBag(50, 8, sparse=True, mode="sum"), torch.nn.Linear(8, 1)))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        net(torch.tensor([[dist.get_rank(), step + 2, 7]])).sum().backward()
        optimizer.step()
    alike_on_all_ranks(net)
    net = DDP(model())
    with net.join():
        for step in range(2 + dist.get_rank()):
            net.zero_grad()
            loss_of(net, step).backward()


@ranks(2, 3)
def test_zero_redundancy_optimizer():
    make = lambda parameters: torch.optim.AdamW(parameters, lr=0.01)
    net = DDP(model())
    optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.AdamW, lr=0.01)
    train(net, optimizer, 4)
    close(net, trained_alone(4, make))
    alike_on_all_ranks(net)
    optimizer.consolidate_state_dict(to=0)
    if dist.get_rank() == 0:
        assert len(optimizer.state_dict()["state"]) == len(list(net.parameters()))


@ranks(2, 4)
def test_fsdp2_trains_as_one_process_would():
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    net = model()
    for layer in (net[0], net[2], net[4]):
        fully_shard(layer, mesh=mesh)
    fully_shard(net, mesh=mesh)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    train(net, optimizer, 4)
    alone = trained_alone(4, lambda parameters: torch.optim.AdamW(parameters, lr=0.01))
    for one, other in zip(net.parameters(), alone.parameters()):
        torch.testing.assert_close(one.full_tensor().detach(), other.detach(), rtol=1e-4, atol=1e-5)


@ranks(2)
def test_fsdp2_with_memory_of_the_process_group():
    net = fully_shard(model(512), mesh=init_device_mesh("cpu", (2,)))
    if hasattr(net, "set_allocate_memory_from_process_group_for_comm"):
        net.set_allocate_memory_from_process_group_for_comm(True)
    train(net, torch.optim.SGD(net.parameters(), lr=0.1), 3)


@ranks(4)
def test_hybrid_sharding_on_a_mesh_of_two_dimensions():
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    net = fully_shard(model(), mesh=mesh)
    train(net, torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9), 3)
    for one, other in zip(net.parameters(), trained_alone(3).parameters()):
        torch.testing.assert_close(one.full_tensor().detach(), other.detach(), rtol=1e-4, atol=1e-5)


@ranks(2, 3)
def test_dtensor_changes_its_placement():
    n = dist.get_world_size()
    mesh = init_device_mesh("cpu", (n,))
    whole = torch.arange(5.0 * 7).view(5, 7)
    rows = distribute_tensor(whole, mesh, [Shard(0)])
    columns = rows.redistribute(mesh, [Shard(1)])
    assert torch.equal(columns.redistribute(mesh, [Replicate()]).to_local(), whole)
    assert torch.equal((rows @ distribute_tensor(whole.t(), mesh, [Replicate()])).full_tensor(), whole @ whole.t())
    assert rows.sum().full_tensor().item() == whole.sum().item()


@ranks(2)
def test_tensor_parallel_layers():
    mesh = init_device_mesh("cpu", (2,))
    net, alone = model(), model()
    parallelize_module(net, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    inputs = batch(0, rank=0)[0]
    torch.testing.assert_close(net(inputs), alone(inputs))


@ranks(2, 4)
def test_checkpoints_are_written_by_all_and_read_by_all():
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    net = fully_shard(model(), mesh=mesh)
    folder = [tempfile.mkdtemp(prefix="cohort-dcp-") if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder, src=0)
    checkpoint.save({"model": get_model_state_dict(net)}, checkpoint_id=folder[0])
    other = fully_shard(copy.deepcopy(torch.nn.Sequential(*[torch.nn.Linear(l.in_features, l.out_features) if isinstance(l, torch.nn.Linear) else l for l in model()])), mesh=mesh)
    state = {"model": get_model_state_dict(other)}
    checkpoint.load(state, checkpoint_id=folder[0])
    set_model_state_dict(other, state["model"])
    for one, two in zip(net.parameters(), other.parameters()):
        assert torch.equal(one.full_tensor(), two.full_tensor())
    dist.barrier()
    if dist.get_rank() == 0:
        for name in os.listdir(folder[0]):
            os.remove(os.path.join(folder[0], name))
        os.rmdir(folder[0])


@ranks(2, 3)
def test_functional_collectives():
    n, me = dist.get_world_size(), dist.get_rank()
    group = dist.group.WORLD
    assert functional.all_reduce(torch.ones(3), "sum", group).tolist() == [n] * 3
    assert functional.all_gather_tensor(torch.full((2,), float(me)), 0, group).tolist() == [r for r in range(n) for _ in range(2)]
    assert functional.reduce_scatter_tensor(torch.ones(2 * n), "sum", 0, group).tolist() == [n] * 2
    assert functional.all_to_all_single(torch.full((n,), float(me)), None, None, group).tolist() == list(range(n))
