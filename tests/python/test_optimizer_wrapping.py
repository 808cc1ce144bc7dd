"""DistributedOptimizer around the user's optimizer: its class, hooks, schedulers and states, process sets, Adasum, wrong arguments."""
import gc
import os
import warnings

import pytest
import torch

import cohort.torch as hvd
from launch import ranks
from optimizer_training import (  # noqa: F401: launch.py calls setup_rank and teardown_rank
    EVERY, SHARE, alike, data, loss_of, net, setup_rank, sgd, teardown_rank, train_alone, train_together,
)


@ranks(*EVERY)
def test_it_is_the_users_own_optimizer():
    model = net()
    given = torch.optim.AdamW(model.parameters(), lr=0.5, weight_decay=0.1)
    optimizer = hvd.DistributedOptimizer(given, named_parameters=model.named_parameters())
    assert isinstance(optimizer, torch.optim.AdamW) and type(optimizer).__name__ == "AdamW"
    assert optimizer.param_groups is given.param_groups and optimizer.defaults["weight_decay"] == 0.1
    assert set(optimizer._parameter_names.values()) == {name for name, _ in model.named_parameters()}


@ranks(*EVERY)
def test_without_names_places_in_the_groups_are_names():
    p, q = torch.nn.Parameter(torch.zeros(1)), torch.nn.Parameter(torch.zeros(1))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([{"params": [p]}, {"params": [q]}], lr=0.1))
    assert len(set(optimizer._parameter_names.values())) == 2
    (p + q).sum().backward()
    optimizer.step()


@ranks(2)
def test_schedulers_made_before_or_after_see_the_steps():
    model = net()
    given = sgd(model)
    early = torch.optim.lr_scheduler.StepLR(given, 1, gamma=0.5)
    optimizer = hvd.DistributedOptimizer(given, named_parameters=model.named_parameters())
    late = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    loss_of(model, *data(4)).backward()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.step()
        early.step()
        late.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.025)


@ranks(2)
def test_step_hooks_run_once_also_after_loading_a_state():
    model = net()
    optimizer = hvd.DistributedOptimizer(sgd(model), named_parameters=model.named_parameters())
    seen = []
    optimizer.register_step_post_hook(lambda *_: seen.append(1))
    for expected in (1, 2):
        loss_of(model, *data(4)).backward()
        optimizer.step()
        assert len(seen) == expected
        optimizer.load_state_dict(optimizer.state_dict())
        optimizer.zero_grad()


@ranks(2, 3)
def test_gradients_of_a_closure_are_reduced():
    p = torch.nn.Parameter(torch.zeros(2))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([p], lr=1.0))

    def closure():
        loss = (p * float(hvd.rank())).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 0
    assert torch.allclose(p.detach(), torch.full((2,), -(hvd.size() - 1) / 2))


@ranks(2)
def test_loading_a_state_drops_what_was_in_flight():
    model = net()
    optimizer = hvd.DistributedOptimizer(sgd(model))
    loss_of(model, *data(4)).backward()
    optimizer.load_state_dict(optimizer.state_dict())
    optimizer.zero_grad()
    hvd.barrier()


@ranks(2)
def test_an_optimizer_that_is_dropped_stops_reducing():
    model = net()
    optimizer = hvd.DistributedOptimizer(sgd(model), named_parameters=model.named_parameters())
    del optimizer
    gc.collect()
    if hvd.rank() == 0:  # nobody waits for anybody
        loss_of(model, *data(4)).backward()
    optimizer = hvd.DistributedOptimizer(sgd(model), named_parameters=model.named_parameters())
    optimizer.zero_grad()
    loss_of(model, *data(4)).backward()
    optimizer.step()


@ranks(1)
def test_one_rank_reduces_only_in_elastic_jobs():
    model = net()
    optimizer = hvd.DistributedOptimizer(sgd(model))
    loss_of(model, *data(4)).backward()
    optimizer.zero_grad()  # nothing travels
    os.environ["HOROVOD_ELASTIC"] = "1"
    try:
        optimizer = hvd.DistributedOptimizer(sgd(model))
        loss_of(model, *data(4)).backward()
        with pytest.raises(AssertionError):
            optimizer.zero_grad()
        optimizer.step()
    finally:
        del os.environ["HOROVOD_ELASTIC"]


@ranks(3, 4)
def test_a_process_set_reduces_over_its_own_ranks():
    pair = hvd.add_process_set([0, 2])
    p = torch.nn.Parameter(torch.zeros(2))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([p], lr=1.0), process_set=pair)
    (p * float(hvd.rank())).sum().backward()
    optimizer.step()
    assert p.tolist() == [-1.0 if pair.included() else -float(hvd.rank())] * 2
    hvd.remove_process_set(pair)


@ranks(*EVERY)
def test_adasum_of_equal_steps_is_that_step():
    model = train_together(3, op=hvd.Adasum) if hvd.size() == 1 else net()
    if hvd.size() > 1:
        optimizer = hvd.DistributedOptimizer(sgd(model), named_parameters=model.named_parameters(), op=hvd.Adasum)
        for step in range(3):
            optimizer.zero_grad()
            loss_of(model, *data(SHARE, seed=step)).backward()
            optimizer.step()
    alike(model, train_alone(3, ways=1), atol=1e-5, rtol=1e-4)


@ranks(2, 3, 4)
def test_adasum_adds_steps_that_are_orthogonal():
    p = torch.nn.Parameter(torch.zeros(hvd.size()))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([p], lr=1.0), op=hvd.Adasum)
    p[hvd.rank()].backward()
    optimizer.step()
    torch.testing.assert_close(p.detach(), -torch.ones(hvd.size()))
    optimizer.synchronize()
    with pytest.raises(AssertionError, match="Adasum"):
        with optimizer.skip_synchronize():
            pass


@ranks(1, 2)
def test_wrong_arguments_are_value_errors():
    model = net()
    first, *rest = model.named_parameters()
    frozen = torch.nn.Parameter(torch.zeros(1), requires_grad=False)
    wrong = (
        dict(named_parameters=[first, *rest, (first[0], torch.nn.Parameter(torch.zeros(1)))]),
        dict(named_parameters=model.parameters()),
        dict(named_parameters=[first]),
        dict(backward_passes_per_step=0),
        dict(backward_passes_per_step=-1),
        dict(gradient_predivide_factor=2.0, op=hvd.Sum),
        dict(gradient_predivide_factor=2.0, op=hvd.Adasum),
        dict(gradient_predivide_factor=0.0),
        dict(num_groups=-1),
        dict(num_groups=1.5),
        dict(groups="two"),
        dict(groups=-1),
        dict(groups=list(model.parameters())),
        dict(groups=[["weight"]]),
        dict(groups=[[first[1]], [first[1]]]),
    )
    for options in wrong:
        with pytest.raises(ValueError):
            hvd.DistributedOptimizer(sgd(model), **options)
    optimizer = hvd.DistributedOptimizer(sgd(model), groups=[[frozen], list(model.parameters())])
    loss_of(model, *data(4)).backward()
    optimizer.step()
