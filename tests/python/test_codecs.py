"""DistributedOptimizer(compression=<a codec>): fewer bytes, the same training, and nothing lost of what is not sent."""
import copy
import io

import pytest
import torch

import cohort.torch as hvd
from launch import ranks
from optimizer_training import SHARE, alike, data, loss_of, net, setup_rank, sgd, teardown_rank, train_alone, train_together  # noqa: F401

KEEPING = (hvd.Compression.int8, hvd.Compression.topk(ratio=0.25))  # codecs that keep what they do not send
LOW_RANK = hvd.Compression.powersgd(1, min_rate=1)


def same_on_all_ranks(tensors):
    for tensor in tensors:
        everyone = hvd.allgather(tensor.detach().reshape(1, -1))
        assert all(torch.equal(one, everyone[0]) for one in everyone)


def one(value, compression, lr=1.0, **options):
    """A parameter of so many elements and its optimizer; its gradient is what the tests say."""
    p = torch.nn.Parameter(torch.zeros(value))
    return p, hvd.DistributedOptimizer(torch.optim.SGD([p], lr=lr), named_parameters=[("p", p)], compression=compression, **options)


def give(p, gradient):
    (p * gradient).sum().backward()


def kept(optimizer, name="p"):
    """What this rank has not sent, as its share of the average."""
    r = optimizer.state_dict()["compression"]["residuals"][name]
    all_of_it = r["sent"].double()
    all_of_it[r["first"]:r["first"] + len(r["owned"])] += r["owned"].double() * r["share"]
    return all_of_it / hvd.size()


@ranks(1, 2, 3)
def test_training_comes_close_and_ranks_stay_alike():
    for compression, near in ((hvd.Compression.codec("bf16"), 0.02), (hvd.Compression.codec("fp16"), 0.02), (hvd.Compression.int8, 0.02)):
        for options in ({}, {"num_groups": 1}, {"num_groups": 3}):
            model = train_together(4, compression=compression, **options)
            alike(model, train_alone(4), atol=near, rtol=near)
            same_on_all_ranks(model.parameters())


@ranks(2, 3)
def test_a_codec_that_sends_little_learns_what_all_of_the_gradient_teaches():
    def loss_after(compression):
        torch.manual_seed(3)
        model = torch.nn.Linear(40, 1)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.05), named_parameters=model.named_parameters(),
                                             compression=compression)
        generator = torch.Generator().manual_seed(hvd.rank())
        truth = torch.linspace(-1, 1, 40)
        for _ in range(150):
            x = torch.randn(16, 40, generator=generator)
            loss = (model(x)[:, 0] - x @ truth).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        same_on_all_ranks(model.parameters())
        return float((model.weight[0] - truth).square().sum())
    plain, coded = loss_after(hvd.Compression.none), loss_after(hvd.Compression.topk(ratio=0.05))
    forgetful = loss_after(hvd.Compression.topk(ratio=0.05, feedback=False))
    assert coded < 0.05 and coded < forgetful / 2, (plain, coded, forgetful)


@ranks(2, 3)
def test_what_was_sent_and_what_is_kept_is_all_there_was():
    for compression in KEEPING:
        p, optimizer = one(700, compression)
        generator = torch.Generator().manual_seed(10 + hvd.rank())
        given = torch.zeros(700, dtype=torch.float64)
        for _ in range(5):
            gradient = torch.randn(700, generator=generator)
            given += hvd.allreduce(gradient.double(), op=hvd.Average)
            optimizer.zero_grad()
            give(p, gradient)
            optimizer.step()
        left = hvd.allreduce(kept(optimizer), op=hvd.Sum)
        assert left.abs().sum() > 0
        torch.testing.assert_close(-p.detach().double() + left, given, rtol=1e-5, atol=1e-5)


@ranks(2)
def test_a_step_that_is_called_off_leaves_what_is_kept_as_it_was():
    for compression in KEEPING:
        p, optimizer = one(600, compression)
        gradient = torch.randn(600, generator=torch.Generator().manual_seed(hvd.rank()))
        give(p, gradient)
        optimizer.step()
        before = kept(optimizer)
        results = []
        for spoil in (False, True, False):  # one is called off as it is, one because a gradient is not finite
            optimizer.zero_grad()
            give(p, gradient * (float("inf") if spoil and hvd.rank() == 1 else 1.0))
            optimizer.synchronize()
            results.append(p.grad.clone())
            assert torch.equal(kept(optimizer), before)
        assert torch.equal(results[0], results[2]) and not torch.isfinite(results[1]).all()
        with optimizer.skip_synchronize():
            optimizer.step()
        assert not torch.equal(kept(optimizer), before)


@ranks(2)
def test_a_gradient_scaler_that_skips_a_step_calls_it_off():
    p, optimizer = one(64, hvd.Compression.topk(ratio=0.25))
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=1000)
    for step in range(4):
        optimizer.set_loss_scale(scaler.get_scale())
        optimizer.zero_grad()
        before = kept(optimizer) if step else None
        scaler.scale((p * (torch.arange(64) + 1.0) * (float("inf") if step == 2 and hvd.rank() == 0 else 1.0)).sum()).backward()
        optimizer.synchronize()
        scaler.unscale_(optimizer)
        with optimizer.skip_synchronize():
            scaler.step(optimizer)
        scaler.update()
        if step == 2:
            assert torch.equal(kept(optimizer), before) and scaler.get_scale() == 2.0
    assert torch.isfinite(p).all()
    same_on_all_ranks([p])
    # three steps of 1 .. 64: what was sent and what is kept, which is in the measure of the last scale
    left = hvd.allreduce(kept(optimizer), op=hvd.Sum) / 2.0
    torch.testing.assert_close(-p.detach().double() + left, 3.0 * torch.arange(1, 65).double())


@ranks(2)
def test_what_is_kept_follows_the_learning_rate():
    p, optimizer = one(4, hvd.Compression.topk(ratio=0.25), lr=1.0)
    give(p, torch.tensor([8.0, 4.0, 2.0, 1.0]))
    optimizer.step()
    assert p.tolist() == [-8, 0, 0, 0]
    optimizer.param_groups[0]["lr"] = 0.5
    optimizer.zero_grad()
    give(p, torch.zeros(4))  # nothing but what was kept: 4 at a rate of 1 is 8 at one of 0.5
    optimizer.step()
    assert p.tolist() == [-8, -4, 0, 0]


def trained(model, optimizer, steps):
    for step in steps:
        optimizer.zero_grad()
        x, y = data(SHARE * hvd.size(), seed=step)
        chosen = slice(hvd.rank() * SHARE, (hvd.rank() + 1) * SHARE)
        loss_of(model, x[chosen], y[chosen]).backward()
        optimizer.step()
    return model


def wrapped(model, compression, **options):
    return hvd.DistributedOptimizer(sgd(model), named_parameters=model.named_parameters(), compression=compression, **options)


@ranks(1, 2, 3)
def test_state_dict_has_what_is_kept_and_goes_on_bit_for_bit():
    for compression in (*KEEPING, LOW_RANK, hvd.Compression.int8(rounding="stochastic", seed=5)):
        model = net()
        optimizer = wrapped(model, compression)
        trained(model, optimizer, range(3))
        file = io.BytesIO()
        torch.save((model.state_dict(), optimizer.state_dict()), file)
        file.seek(0)
        weights, state = torch.load(file, weights_only=True)
        again = net()
        again.load_state_dict(weights)
        resumed = wrapped(again, compression)
        resumed.load_state_dict(state)
        trained(model, optimizer, range(3, 6))
        trained(again, resumed, range(3, 6))
        for p, q in zip(model.parameters(), again.parameters()):
            assert torch.equal(p, q)
        same_on_all_ranks(again.parameters())
        torch.optim.SGD(again.parameters(), lr=0.1, momentum=0.9).load_state_dict(state)  # the plain optimizer takes it, too


@ranks(2)
def test_residuals_of_another_rank_are_not_taken():
    model = net()
    optimizer = wrapped(model, hvd.Compression.topk(ratio=0.25))
    trained(model, optimizer, range(2))
    mine = copy.deepcopy(optimizer.state_dict()["compression"])
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    for name, r in optimizer.state_dict()["compression"]["residuals"].items():
        assert torch.equal(r["sent"], mine["residuals"][name]["sent"])
    fresh = wrapped(net(), hvd.Compression.topk(ratio=0.25))
    fresh.load_state_dict(hvd.broadcast_object(optimizer.state_dict() if hvd.rank() == 0 else None))
    found = fresh.state_dict()["compression"]["residuals"]
    assert all(r["step"] == 2 for r in found.values())
    assert any(r["sent"].numel() and r["sent"].abs().sum() > 0 for r in found.values()) == (hvd.rank() == 0)


@ranks(2, 3)
def test_groups_change_no_bit():
    for compression in (*KEEPING, LOW_RANK):
        models = [train_together(4, compression=compression, **options) for options in ({}, {"num_groups": 1}, {"num_groups": 100})]
        for other in models[1:]:
            for p, q in zip(models[0].parameters(), other.parameters()):
                assert torch.equal(p, q)


@ranks(2)
def test_residuals_outlive_a_new_world():
    models = []
    for renew in (False, True):
        model = net()
        optimizer = wrapped(model, hvd.Compression.int8)
        trained(model, optimizer, range(2))
        if renew:
            hvd.shutdown()
            hvd.init(process_sets="dynamic")
        models.append(trained(model, optimizer, range(2, 4)))
    for p, q in zip(models[0].parameters(), models[1].parameters()):
        assert torch.equal(p, q)


@ranks(3)
def test_a_process_set_reduces_among_its_ranks():
    pair = hvd.add_process_set([0, 2])
    p, optimizer = one(300, hvd.Compression.int8, process_set=pair)
    give(p, torch.full((300,), float(hvd.rank())))
    optimizer.step()
    assert p.tolist() == [-1.0] * 300  # of 0 and 2; rank 1 has its own
    hvd.remove_process_set(pair)


@ranks(2)
def test_sums_and_several_backward_passes():
    p, optimizer = one(5, hvd.Compression.topk(ratio=1.0), op=hvd.Sum, backward_passes_per_step=2)
    for _ in range(2):
        give(p, torch.full((5,), 1.0 + hvd.rank()))
    optimizer.step()
    assert p.tolist() == [-6.0] * 5


@ranks(2)
def test_a_part_of_the_model_may_be_out_of_use():
    model = torch.nn.ModuleDict({"a": torch.nn.Linear(4, 2), "b": torch.nn.Linear(4, 2)})
    optimizer = wrapped(model, hvd.Compression.int8)
    for step in range(4):
        optimizer.zero_grad()
        model["a" if (step + hvd.rank()) % 2 else "b"](torch.ones(3, 4)).sum().backward()
        optimizer.step()
    same_on_all_ranks(model.parameters())


@ranks(2, 3)
def test_powersgd_gives_a_mean_of_one_direction_in_one_step():
    p = torch.nn.Parameter(torch.zeros(3, 4, 5))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([p], lr=1.0), named_parameters=[("p", p)], compression=LOW_RANK)
    noise = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(hvd.rank()))
    mean = torch.arange(1.0, 4.0).reshape(3, 1) * torch.linspace(-1, 1, 20)
    give(p, noise - hvd.allreduce(noise, op=hvd.Average) + mean.reshape(3, 4, 5))
    optimizer.step()
    torch.testing.assert_close(-p.detach(), mean.reshape(3, 4, 5), rtol=1e-4, atol=1e-5)
    same_on_all_ranks([optimizer.state_dict()["compression"]["residuals"]["p"]["memory"]])


@ranks(2)
def test_powersgd_begins_anew_on_all_ranks_where_one_has_lost_its_directions():
    models = net(), net()
    optimizers = [wrapped(model, LOW_RANK) for model in models]
    for model, optimizer in zip(models, optimizers):
        trained(model, optimizer, range(2))
    state = copy.deepcopy(optimizers[0].state_dict())
    if hvd.rank() == 1:
        for r in state["compression"]["residuals"].values():
            r.pop("memory", None)
    optimizers[0].load_state_dict(state)
    trained(models[0], optimizers[0], range(2, 4))
    same_on_all_ranks(models[0].parameters())
    assert all(torch.isfinite(p).all() for p in models[0].parameters())


@ranks(1, 2, 3)
def test_dgc_that_sends_everything_is_sgd_with_momentum():
    found = []
    for momentum, compression in ((0.5, hvd.Compression.none), (0.0, hvd.Compression.dgc(ratio=1, momentum=0.5, masking=False))):
        model = net()
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum),
                                             named_parameters=model.named_parameters(), compression=compression)
        trained(model, optimizer, range(3))
        if compression is not hvd.Compression.none:  # its velocity is saved, too
            again, file = net(), copy.deepcopy((model.state_dict(), optimizer.state_dict()))
            optimizer = hvd.DistributedOptimizer(torch.optim.SGD(again.parameters(), lr=0.1), named_parameters=again.named_parameters(),
                                                 compression=compression)
            again.load_state_dict(file[0])
            optimizer.load_state_dict(file[1])
            model = again
        trained(model, optimizer, range(3, 6))
        found.append(model)
    for p, q in zip(*(model.parameters() for model in found)):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)


@ranks(1, 2)
def test_refusals_say_why():
    p = torch.nn.Parameter(torch.zeros(4))

    def refused(why, compression=hvd.Compression.int8, parameter=p, **options):
        with pytest.raises(ValueError, match=why):
            hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0), compression=compression, **options)
    refused("op=Average and op=Sum.*Adasum", op=hvd.Adasum)
    for optimizer in (torch.optim.SGD([p], lr=1.0, momentum=0.9), torch.optim.Adam([p])):
        with pytest.raises(ValueError, match="keeps the momentum itself.*" + type(optimizer).__name__):
            hvd.DistributedOptimizer(optimizer, compression=hvd.Compression.dgc)
    refused("no Min follows", op=hvd.Min)
    refused("gradient_predivide_factor is not for codec int8", gradient_predivide_factor=2.0)
    refused("float32 gradients on the CPU.*float64", parameter=torch.nn.Parameter(torch.zeros(4, dtype=torch.float64)))
    with pytest.raises(ValueError, match="no codec 'zip'|unknown codec|zip"):
        hvd.Compression.codec("zip")
    with pytest.raises(ValueError, match="ratio"):
        hvd.Compression.topk(ratio=2.0)
    with pytest.raises(ValueError, match="parameters"):
        hvd.Compression.topk(0.1, True, 3)
    with pytest.raises(AttributeError, match="there is no Compression.zip; there are none, fp16, bf16"):
        hvd.Compression.zip
    with pytest.raises(ValueError, match="is for hvd.DistributedOptimizer"):
        hvd.allreduce(torch.ones(3), compression=hvd.Compression.int8)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([p], lr=1.0), compression=hvd.Compression.int8)
    with pytest.raises(ValueError, match="above 0"):
        optimizer.set_loss_scale(0)


@ranks(2)
def test_sparse_gradients_are_refused_unless_made_dense():
    for dense in (False, True):
        table = torch.nn.Embedding(8, 3, sparse=True)
        torch.nn.init.zeros_(table.weight)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(table.parameters(), lr=1.0), named_parameters=table.named_parameters(),
                                             compression=hvd.Compression.int8, sparse_as_dense=dense)
        loss = table(torch.tensor([1, 2])).sum()
        if not dense:
            with pytest.raises(ValueError, match="weight is sparse, and codec int8.*sparse_as_dense=True"):
                loss.backward()
            continue
        loss.backward()
        optimizer.step()
        assert table.weight.sum(1).tolist() == [0, -3, -3, 0, 0, 0, 0, 0]


@ranks(2)
def test_ranks_must_have_the_same_codec_and_none_may_have_joined():
    p, optimizer = one(8, hvd.Compression.int8 if hvd.rank() else hvd.Compression.topk)
    give(p, torch.ones(8))
    with pytest.raises(hvd.HorovodInternalError, match="Mismatched codecs.*int8"):
        optimizer.synchronize()
    p, optimizer = one(8, hvd.Compression.int8)
    if hvd.rank() == 0:
        hvd.join()
    else:
        give(p, torch.ones(8))
        with pytest.raises(hvd.HorovodInternalError, match="a codec needs a payload from every rank"):
            optimizer.synchronize()
        hvd.join()
    p, optimizer = one(8, hvd.Compression.int8)
    give(p, torch.ones(8))
    optimizer.step()
    assert p.tolist() == [-1.0] * 8


def test_names():
    assert hvd.Compression.topk(ratio=0.001).spec == hvd.Compression.topk(0.001).spec == "topk(ratio=0.001, feedback=true)"
    assert hvd.Compression.codec("topk(ratio=0.001)").spec == hvd.Compression.topk(0.001).spec
    assert hvd.Compression.int8(rounding="stochastic").spec == "int8(rounding=stochastic, feedback=auto)"
    assert hvd.Compression.fp16.compress(torch.ones(2))[0].dtype == torch.float16  # a cast, as ever
    assert hvd.Compression.codec("fp16").spec == "fp16(sum=comm)"
