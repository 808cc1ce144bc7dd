"""Parameters, optimizer state and objects: after a broadcast every rank has what the root has."""
import copy

import pytest
import torch

import cohort.torch as hvd
from launch import ranks

EVERY = (1, 2, 3, 4)


def setup_rank():
    hvd.init(process_sets="dynamic")


teardown_rank = hvd.shutdown


def net(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Conv2d(1, 3, 3), torch.nn.BatchNorm2d(3), torch.nn.Flatten(), torch.nn.Linear(12, 2))


def step(model, optimizer, seed):
    optimizer.zero_grad()
    model(torch.randn(4, 1, 4, 4, generator=torch.Generator().manual_seed(seed))).square().sum().backward()
    optimizer.step()


def alike_everywhere(tensor):
    everyone = hvd.allgather(tensor.detach().reshape(1, -1).double())
    return all(torch.equal(everyone[0], other) for other in everyone)


@ranks(*EVERY)
def test_parameters_of_a_state_dict_and_of_lists():
    for root in range(hvd.size()):
        model, expected = net(hvd.rank()), net(root)
        hvd.broadcast_parameters(model.state_dict(), root_rank=root)
        assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), expected.state_dict().values()))
        for listed in (list(net(hvd.rank()).parameters()), list(net(hvd.rank()).named_parameters()), net(hvd.rank()).named_parameters()):
            listed = list(listed)
            hvd.broadcast_parameters(listed, root_rank=root)
            tensors = [p[1] if isinstance(p, tuple) else p for p in listed]
            assert all(torch.equal(a, b) for a, b in zip(tensors, expected.parameters()))


@ranks(2)
def test_parameters_that_are_not_contiguous():
    p = torch.full((2, 3, 4, 4), float(hvd.rank())).to(memory_format=torch.channels_last)
    hvd.broadcast_parameters({"p": p}, root_rank=1)
    assert (p == 1).all() and p.is_contiguous(memory_format=torch.channels_last)


@ranks(1, 2)
def test_what_is_no_parameter_is_refused():
    for wrong in (torch.zeros(3), 5, {"p": "text"}, [3]):
        with pytest.raises(ValueError, match="broadcast_parameters"):
            hvd.broadcast_parameters(wrong, root_rank=0)
    hvd.broadcast_parameters({"p": torch.zeros(1), "nothing": None}, root_rank=0)


OPTIMIZERS = (
    lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True), lambda p: torch.optim.Adam(p, lr=0.1, amsgrad=True),
    lambda p: torch.optim.AdamW(p, lr=0.1), lambda p: torch.optim.Adagrad(p), lambda p: torch.optim.RMSprop(p, centered=True, momentum=0.5),
    lambda p: torch.optim.Adadelta(p), lambda p: torch.optim.Adamax(p), lambda p: torch.optim.NAdam(p), lambda p: torch.optim.RAdam(p),
    lambda p: torch.optim.ASGD(p), lambda p: torch.optim.Rprop(p), lambda p: torch.optim.Adafactor(p))


@ranks(1, 2, 3)
def test_optimizer_state_reaches_ranks_that_have_none():
    for make in OPTIMIZERS:
        for wrap in (lambda o: o, hvd.DistributedOptimizer):
            model = net(0)
            optimizer = make(model.parameters())
            for seed in range(3 if hvd.rank() == 0 else 0):
                step(model, optimizer, seed)
            optimizer = wrap(optimizer)
            hvd.broadcast_parameters(model.state_dict(), root_rank=0)
            hvd.broadcast_optimizer_state(optimizer, root_rank=0)
            states = hvd.allgather_object(optimizer.state_dict())
            assert len(states[0]["state"]) > 0
            for other in states[1:]:
                assert str(other) == str(states[0])
            step(model, optimizer, 9)
            assert all(alike_everywhere(p) for p in model.parameters())


@ranks(2, 3)
def test_options_keep_their_types():
    model, mine = net(0), hvd.rank() == 1
    optimizer = torch.optim.Adam(model.parameters(), lr=0.2 if mine else 0.1, betas=(0.5, 0.6) if mine else (0.9, 0.99), eps=1e-7)
    optimizer.param_groups[0]["note"] = "root" if mine else None
    hvd.broadcast_optimizer_state(optimizer, root_rank=1)
    group = optimizer.param_groups[0]
    assert group["lr"] == 0.2 and group["betas"] == (0.5, 0.6) and isinstance(group["betas"], tuple) and group["note"] == "root"


@ranks(2)
def test_an_optimizer_that_made_no_step_stays_so_and_gets_zero_gradients():
    p, fixed = torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(3), requires_grad=False)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([p, fixed], lr=0.1, momentum=0.9, weight_decay=0.5))
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert not optimizer.state and p.tolist() == [1.0] * 3
    assert p.grad.tolist() == [0.0] * 3 and fixed.grad is None


@ranks(1, 2)
def test_lbfgs_is_refused():
    with pytest.raises(ValueError, match="LBFGS"):
        hvd.broadcast_optimizer_state(torch.optim.LBFGS(net(0).parameters()), root_rank=0)


class Thing:
    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return self.value == other.value


OBJECTS = (None, 5, "text", b"", {"a": [1, (2, 3)], "t": None}, Thing(7), list(range(100000)))


@ranks(*EVERY)
def test_objects_of_any_kind_and_size():
    for root in range(hvd.size()):
        for value in OBJECTS:
            assert hvd.broadcast_object(copy.deepcopy(value) if hvd.rank() == root else None, root_rank=root) == value
    tensor = hvd.broadcast_object({"t": torch.arange(3)} if hvd.rank() == 0 else None)["t"]
    assert tensor.tolist() == [0, 1, 2]


@ranks(*EVERY)
def test_objects_of_all_ranks():
    assert hvd.allgather_object(("x" * hvd.rank(), hvd.rank())) == [("x" * r, r) for r in range(hvd.size())]
    for value in OBJECTS:
        assert hvd.allgather_object(value) == [value] * hvd.size()
    assert hvd.allgather_object(1, name="named") == [1] * hvd.size()


@ranks(3, 4)
def test_objects_within_a_process_set():
    pair = hvd.add_process_set([0, 2])
    if pair.included():
        assert hvd.broadcast_object(hvd.rank(), root_rank=2, process_set=pair) == 2
        assert hvd.allgather_object(hvd.rank(), process_set=pair) == [0, 2]
    hvd.remove_process_set(pair)


@ranks(2, 3)
def test_an_object_that_cannot_be_pickled_is_an_error_everywhere():
    unpicklable = (value for value in "generators are not pickled")
    with pytest.raises(TypeError, match="pickle|cannot be sent"):
        hvd.broadcast_object(unpicklable if hvd.rank() == 0 else None)
    with pytest.raises(TypeError, match="pickle|cannot be sent"):
        hvd.allgather_object(unpicklable if hvd.rank() == 1 else None)
    assert hvd.broadcast_object(hvd.rank()) == 0  # the job is still usable


@ranks(1)
def test_compressors_leave_what_they_cannot_narrow():
    for compressor, wire in ((hvd.Compression.fp16, torch.float16), (hvd.Compression.bf16, torch.bfloat16)):
        for dtype in (torch.float32, torch.float64):
            sent, context = compressor.compress(torch.ones(3, dtype=dtype))
            assert sent.dtype == wire and compressor.decompress(sent, context).dtype == dtype
        for dtype in (torch.int64, torch.uint8, torch.bool, torch.float16, torch.bfloat16):
            sent, context = compressor.compress(torch.ones(3).to(dtype))
            assert sent.dtype == dtype and compressor.decompress(sent, context).dtype == dtype
    tensor = torch.ones(3)
    sent, context = hvd.Compression.none.compress(tensor)
    assert sent is tensor and hvd.Compression.none.decompress(sent, context) is tensor
