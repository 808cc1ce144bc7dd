"""SyncBatchNorm on n ranks is BatchNorm in one process with the batch of all of them."""
import pytest
import torch

import cohort.torch as hvd
from launch import ranks

EVERY = (1, 2, 3, 4)
setup_rank, teardown_rank = hvd.init, hvd.shutdown
KINDS = {2: torch.nn.BatchNorm1d, 3: torch.nn.BatchNorm1d, 4: torch.nn.BatchNorm2d, 5: torch.nn.BatchNorm3d}


def batch(shape, dtype=torch.float64):
    return (torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 3 + 5).to(dtype)


def shares(rows):
    """Rows of each rank, unequal: rank 0 has the most."""
    cuts = [rows * (2 * hvd.size() - r) * r // (hvd.size() ** 2) for r in range(hvd.size() + 1)]
    return slice(cuts[hvd.rank()], cuts[hvd.rank() + 1])


def layers(kind, channels, dtype=torch.float64, **options):
    torch.manual_seed(2)
    whole = kind(channels, dtype=dtype, **options)
    if whole.affine:
        torch.nn.init.normal_(whole.weight)
        torch.nn.init.normal_(whole.bias)
    mine = hvd.SyncBatchNorm(channels, **options).to(dtype)
    mine.load_state_dict(whole.state_dict())
    return whole, mine


@ranks(*EVERY)
def test_forward_backward_and_running_statistics_equal_those_of_the_whole_batch():
    for shape in ((12, 5), (12, 5, 3), (12, 5, 3, 2), (12, 5, 2, 3, 2)):
        for options in ({}, {"affine": False}, {"momentum": None}, {"track_running_stats": False}, {"eps": 0.1, "momentum": 0.3}):
            whole, mine = layers(KINDS[len(shape)], 5, **options)
            for turn in range(2):
                x = batch(shape) * (turn + 1)
                share, weights = shares(12), torch.linspace(-1, 1, x.numel(), dtype=x.dtype).view(shape)
                a, b = x.clone().requires_grad_(), x[share].clone().requires_grad_()
                y, z = whole(a), mine(b)
                torch.testing.assert_close(z, y[share])
                (y * weights).sum().backward()
                (z * weights[share]).sum().backward()
                torch.testing.assert_close(b.grad, a.grad[share])
            if whole.affine:
                for p, q in zip(mine.parameters(), whole.parameters()):
                    torch.testing.assert_close(hvd.allreduce(p.grad, op=hvd.Sum), q.grad)
            for (name, p), q in zip(mine.state_dict().items(), whole.state_dict().values()):
                torch.testing.assert_close(p, q, msg=name)


@ranks(2, 3)
def test_half_precision_comes_close():
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        whole, _ = layers(torch.nn.BatchNorm2d, 5)
        mine = hvd.SyncBatchNorm(5)
        mine.load_state_dict(whole.state_dict())
        x = batch((12, 5, 3, 3))
        z = mine(x[shares(12)].to(dtype))
        assert z.dtype == dtype
        torch.testing.assert_close(z.double(), whole(x)[shares(12)], atol=2e-2 if dtype != torch.float32 else 1e-5, rtol=2e-2)


@ranks(2, 4)
def test_large_offsets_lose_no_digits():
    mine = hvd.SyncBatchNorm(2)
    x = torch.randn(64, 2, generator=torch.Generator().manual_seed(hvd.rank())) + 1e4
    everything = hvd.allgather(x).double()
    expected = (x.double() - everything.mean(0)) / everything.std(0, unbiased=False)
    assert (mine(x).double() - expected).abs().max() < 5e-3


@ranks(2, 3)
def test_a_rank_may_have_no_samples():
    mine = hvd.SyncBatchNorm(3).double()
    x = batch((6, 3))
    b = (x if hvd.rank() == 0 else x[:0]).clone().requires_grad_()
    z = mine(b)
    torch.testing.assert_close(hvd.allgather(z.detach()), torch.nn.BatchNorm1d(3).double()(x))
    z.square().sum().backward()
    assert b.grad.shape == b.shape


@ranks(*EVERY)
def test_eval_is_plain_batch_normalisation():
    whole, mine = layers(torch.nn.BatchNorm2d, 5)
    x = batch((4, 5, 2, 2))
    if hvd.rank() == 0:  # and needs nobody else
        torch.testing.assert_close(mine.eval()(x), whole.eval()(x))


@ranks(1, 2)
def test_wrong_input_is_a_value_error():
    mine = hvd.SyncBatchNorm(3)
    with pytest.raises(ValueError, match="dimensions"):
        mine(torch.zeros(3))
    with pytest.raises(ValueError, match="channels"):
        mine(torch.zeros(2, 4))


@ranks(2)
def test_one_value_per_channel_is_too_little():
    with pytest.raises(ValueError, match="more than one value"):
        hvd.SyncBatchNorm(3)(torch.zeros(1 if hvd.rank() == 0 else 0, 3))


@ranks(2, 3)
def test_inside_a_model_with_the_distributed_optimizer():
    def build():
        torch.manual_seed(0)
        return torch.nn.Linear(4, 6).double(), torch.nn.Linear(6, 2).double()

    x, y = batch((12, 4)), batch((12, 2))
    rows = slice(hvd.rank() * 12 // hvd.size(), (hvd.rank() + 1) * 12 // hvd.size())
    models = []
    for norm, chosen, wrap in ((hvd.SyncBatchNorm(6), rows, hvd.DistributedOptimizer), (torch.nn.BatchNorm1d(6), slice(None), lambda o: o)):
        first, second = build()
        model = torch.nn.Sequential(first, norm.double(), torch.nn.ReLU(), second)
        optimizer = wrap(torch.optim.SGD(model.parameters(), lr=0.05))
        for _ in range(3):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x[chosen]), y[chosen]).backward()
            optimizer.step()
        models.append(model)
    for p, q in zip(models[0].parameters(), models[1].parameters()):
        torch.testing.assert_close(p, q)


@ranks(1, 2)
def test_integers_are_refused():
    with pytest.raises(ValueError, match="real numbers, not torch.int64"):
        hvd.SyncBatchNorm(3)(torch.ones(2, 3, dtype=torch.int64))
