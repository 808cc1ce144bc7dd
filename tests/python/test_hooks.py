"""cohort.hooks: codecs as communication hooks of DistributedDataParallel."""
import copy
import tempfile

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

import cohort
from launch import ranks
from test_c10d_training import alike_on_all_ranks, batch, loss_of, model, setup_rank, teardown_rank, train, trained_alone  # noqa: F401

KEEPING = ("int8", "topk(ratio=0.25)")  # codecs that keep what they do not send
SMALL = 0.002  # MB: several buckets


def hooked(net, spec, optimizer=None, **options):
    ddp = DDP(net, **options)
    made = optimizer(ddp.parameters()) if optimizer else None
    state = cohort.hooks.State(ddp, made)
    ddp.register_comm_hook(state, cohort.hooks.codec(spec))
    return ddp, state, made


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def everywhere(tensor):
    found = tensor.clone()
    dist.all_reduce(found)
    return found


def kept(state):
    """What all ranks together have not sent yet, as it would change the average; by name."""
    found = {}
    for name, r in state.state_dict()["residuals"].items():
        found[name] = r["sent"].double()
        found[name][r["first"]:r["first"] + len(r["owned"])] += r["owned"].double() * r["share"]
        found[name] = everywhere(found[name]) / dist.get_world_size()
    return found


@ranks(1, 2, 3)
def test_trains_as_one_process_would():
    for hook in (cohort.hooks.int8, cohort.hooks.bf16, cohort.hooks.fp16, cohort.hooks.topk(ratio=1.0)):
        net, _, optimizer = hooked(model(), hook.spec, sgd, bucket_cap_mb=SMALL)
        train(net, optimizer, 4)
        for one, other in zip(net.parameters(), trained_alone(4).parameters()):
            torch.testing.assert_close(one.detach(), other.detach(), rtol=0.05, atol=0.02)
        alike_on_all_ranks(net)


@ranks(2, 3)
def test_the_first_step_and_the_new_buckets_after_it_lose_nothing():
    for spec in KEEPING:
        for make in (None, sgd):
            net, state, optimizer = hooked(model(), spec, make, bucket_cap_mb=SMALL)
            plain = DDP(copy.deepcopy(net.module), bucket_cap_mb=SMALL)
            given, came = {}, {}
            for step in range(4):  # no update: both see the same gradients
                for ddp, total in ((net, came), (plain, given)):
                    ddp.zero_grad()
                    loss_of(ddp, step).backward()
                    for name, p in ddp.module.named_parameters():
                        total[name] = total.get(name, 0) + p.grad.double()
                if optimizer:
                    state._gradients.settle(True)  # as its step() would
            left = kept(state)
            assert sum(r.abs().sum() for r in left.values()) > 0
            for name, total in given.items():
                torch.testing.assert_close(came[name].reshape(-1) + left[name], total.reshape(-1), rtol=1e-5, atol=1e-5, msg=lambda m: f"{spec} {name}: {m}")


@ranks(2)
def test_sizes_of_buckets_change_no_bit_where_ranks_keep_their_own_alone():
    nets = [hooked(model(), "topk(ratio=0.1)", sgd, bucket_cap_mb=size) for size in (SMALL, 25)]
    for net, _, optimizer in nets:
        train(net, optimizer, 5)
    for one, other in zip(nets[0][0].parameters(), nets[1][0].parameters()):
        assert torch.equal(one, other)


def smooth():
    """No kink at which a last bit could decide."""
    torch.manual_seed(6)
    return torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.Tanh(), torch.nn.Linear(64, 4))


class Batches:
    """A data set that remembers what this rank was asked for."""

    def __init__(self):
        generator = torch.Generator().manual_seed(4)
        self.x, self.y, self.asked = torch.randn(48, 20, generator=generator), torch.randn(48, 4, generator=generator), []

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        self.asked.append(index)
        return self.x[index], self.y[index]


@ranks(2, 3)
def test_gives_what_the_engine_gives():
    """The same batches, by cohort.Trainer with its codec and by DDP with the hook."""
    for spec in KEEPING:
        samples, trained, batches = Batches(), smooth(), []
        with tempfile.TemporaryDirectory() as folder:
            everywhere_same = [folder if dist.get_rank() == 0 else None]
            dist.broadcast_object_list(everywhere_same)
            trainer = cohort.Trainer(trained, samples, epochs=2, data={"batch": 8, "drop_last": True}, sync="all_reduce(op=average)",
                                     codec=spec, optimizer="sgd(lr=0.1, momentum=0.9)", optim={"schedule": "constant"}, threads=1,
                                     out=everywhere_same[0] + "/run", observe={"tensorboard": False, "report": False})
            trainer.after_step(lambda step: batches.append(samples.asked[-8:]))
            summary = trainer.run()
            dist.barrier()
        assert summary.steps == len(batches) == 2 * (len(samples) // (8 * dist.get_world_size()))
        net, _, optimizer = hooked(smooth(), spec, sgd)
        for chosen in batches:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(net(samples.x[chosen]), samples.y[chosen]).backward()
            optimizer.step()
        near = 0.02 if spec == "int8" else 1e-4  # a value in the middle of two levels may go either way; new buckets have other owners
        for begun, one, other in zip(smooth().parameters(), net.parameters(), trained.parameters()):
            assert (one - other).norm() <= near * (other - begun).norm(), spec


@ranks(2)
def test_steps_that_are_called_off_count_for_nothing():
    for make in (None, sgd):
        net, state, optimizer = hooked(model(), "topk(ratio=0.25)", make)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0, growth_interval=1000)
        for step in range(5):
            net.zero_grad()
            state.set_loss_scale(scaler.get_scale())
            spoiled = float("nan") if step == 3 and dist.get_rank() == 1 else 1.0
            scaler.scale(loss_of(net, step) * spoiled).backward()
            before = kept(state) if step == 3 and make else None
            if make:
                scaler.step(optimizer)
                scaler.update()
            if before is not None:
                assert all(torch.equal(r, before[name]) for name, r in kept(state).items())
        assert all(torch.isfinite(r).all() for r in kept(state).values())
        assert all(torch.isfinite(p).all() for p in net.parameters())
        alike_on_all_ranks(net)


@ranks(2)
def test_state_dict_goes_on_bit_for_bit():
    for spec in KEEPING:
        net, state, optimizer = hooked(model(), spec, sgd)
        train(net, optimizer, 3)
        again, resumed, other = hooked(copy.deepcopy(net.module), spec, sgd)
        other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        resumed.load_state_dict(state.state_dict())
        for ddp, made in ((net, optimizer), (again, other)):
            for step in range(3, 6):
                made.zero_grad()
                loss_of(ddp, step).backward()
                made.step()
        for one, two in zip(net.parameters(), again.parameters()):
            if spec.startswith("topk"):
                assert torch.equal(one, two)
            else:  # the first buckets of a new DDP have other owners, which round other values
                torch.testing.assert_close(one, two, rtol=0, atol=2e-3)
        alike_on_all_ranks(again)


@ranks(2)
def test_a_group_of_the_program_and_accumulated_gradients():
    group = dist.new_group([0, 1])
    net = DDP(model(), process_group=group)
    net.register_comm_hook(cohort.hooks.State(net), cohort.hooks.int8)
    with net.no_sync():
        loss_of(net, 0).backward()
    loss_of(net, 1).backward()
    for parameter in net.parameters():
        everyone = [torch.zeros_like(parameter) for _ in range(2)]
        dist.all_gather(everyone, parameter.grad)
        assert torch.equal(*everyone)
    dist.destroy_process_group(group)


@ranks(2)
def test_refusals_say_why():
    def refused(why, net, state, hook, step=lambda net: loss_of(net, 0).backward()):
        net = DDP(net)
        net.register_comm_hook(state(net), hook)
        with pytest.raises((ValueError, RuntimeError), match=why):
            step(net)
    refused("is kept in a cohort.hooks.State", model(), lambda net: None, cohort.hooks.int8)
    refused("float32 gradients on the CPU", model().double(), cohort.hooks.State, cohort.hooks.int8,
            lambda net: net(batch(0)[0].double()).sum().backward())
    table = torch.nn.EmbeddingBag(50, 8, sparse=True, mode="sum")
    refused("is sparse, and codec int8", table, cohort.hooks.State, cohort.hooks.int8, lambda net: net(torch.tensor([[1]])).sum().backward())
    gloo = dist.new_group([0, 1], backend="gloo")
    refused("backend cohort, not gloo", model(), lambda net: cohort.hooks.State(net, process_group=gloo), cohort.hooks.int8)
    with pytest.raises(ValueError, match="zip"):
        cohort.hooks.codec("zip")
    with pytest.raises(AttributeError, match="there is no cohort.hooks.zip"):
        cohort.hooks.zip
    state = cohort.hooks.State(model())
    state._codec(cohort.hooks.int8.spec)
    with pytest.raises(ValueError, match="make another one"):
        state._codec(cohort.hooks.topk.spec)


def test_names():
    assert cohort.hooks.topk(ratio=0.001).spec == cohort.hooks.topk(0.001).spec == "topk(ratio=0.001, feedback=true)"
    assert cohort.hooks.int8.__name__.startswith("cohort.hooks.int8")
