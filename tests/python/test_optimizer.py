"""DistributedOptimizer: training on n ranks is training in one process with all ranks' data."""
import warnings

import pytest
import torch

import cohort.torch as hvd
from launch import ranks
from optimizer_training import (  # noqa: F401: launch.py calls setup_rank and teardown_rank
    EVERY, SHARE, alike, data, loss_of, net, setup_rank, sgd, teardown_rank, train_alone, train_together,
)


@ranks(*EVERY)
def test_trains_as_one_process_with_all_the_data():
    alike(train_together(5), train_alone(5))


@ranks(*EVERY)
def test_backward_passes_add_up_before_a_step():
    alike(train_together(3, passes=3), train_alone(3, passes=3))


@ranks(*EVERY)
def test_groups_by_number_change_nothing():
    for count in (1, 2, 3, 100):
        alike(train_together(2, num_groups=count), train_alone(2))


@ranks(2, 3)
def test_groups_by_list_change_nothing():
    model = net()
    first, second = list(model.parameters())[:2], list(model.parameters())[2:3]  # the last one goes alone
    optimizer = hvd.DistributedOptimizer(sgd(model), named_parameters=model.named_parameters(), groups=[first, second])
    for step in range(3):
        optimizer.zero_grad()
        x, y = data(SHARE * hvd.size(), seed=step)
        chosen = slice(hvd.rank() * SHARE, (hvd.rank() + 1) * SHARE)
        loss_of(model, x[chosen], y[chosen]).backward()
        optimizer.step()
    alike(model, train_alone(3))


@ranks(*EVERY)
def test_predivision_is_the_average_with_and_without_groups():
    for options in ({}, {"num_groups": 2}):
        alike(train_together(3, gradient_predivide_factor=4.0, **options), train_alone(3))


@ranks(2, 3)
def test_predivision_happens_before_the_sum():
    for options in ({}, {"num_groups": 1}):
        p = torch.nn.Parameter(torch.zeros(2, dtype=torch.float16))
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([p], lr=1.0), gradient_predivide_factor=float(hvd.size()), **options)
        p.sum().mul(60000.0).backward()  # summed undivided this would overflow
        optimizer.synchronize()
        assert torch.isfinite(p.grad).all() and (p.grad - 60000).abs().max() < 100


@ranks(*EVERY)
def test_sums_when_asked_to():
    p = torch.nn.Parameter(torch.zeros(3))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([p], lr=1.0), op=hvd.Sum)
    (p * float(hvd.rank() + 1)).sum().backward()
    optimizer.step()
    assert p.tolist() == [-float(sum(range(1, hvd.size() + 1)))] * 3


@ranks(2, 4)
def test_compressed_gradients_come_close():
    for compression in (hvd.Compression.fp16, hvd.Compression.bf16):
        for options in ({}, {"num_groups": 2}):
            alike(train_together(3, compression=compression, **options), train_alone(3), atol=2e-2, rtol=2e-2)


@ranks(2)
def test_a_compressor_of_the_users_own():
    class Halved(hvd.Compression.none):
        @staticmethod
        def compress(tensor):
            return tensor / 2, None

        @staticmethod
        def decompress(tensor, ctx):
            return tensor * 2

    alike(train_together(3, compression=Halved), train_alone(3))


@ranks(*EVERY)
def test_clipping_between_synchronize_and_step():
    def clipped(optimizer, model):
        optimizer.synchronize()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        with optimizer.skip_synchronize():
            optimizer.step()

    model, reference = train_together(1, finish=clipped), net()
    optimizer = sgd(reference)
    x, y = data(SHARE * hvd.size(), seed=0)
    loss_of(reference, x, y).backward()
    torch.nn.utils.clip_grad_norm_(reference.parameters(), 0.01)
    optimizer.step()
    alike(model, reference)


@ranks(*EVERY)
def test_step_after_synchronize_warns_exactly_once():
    model = net()
    optimizer = hvd.DistributedOptimizer(sgd(model), named_parameters=model.named_parameters())
    loss_of(model, *data(4)).backward()
    optimizer.synchronize()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        optimizer.step()
    assert len(seen) == 1 and "skip_synchronize" in str(seen[0].message)
    loss_of(model, *data(4)).backward()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        optimizer.step()
    assert not seen


@ranks(2, 3, 4)
def test_zero_grad_while_gradients_are_reduced_is_refused():
    model = net()
    optimizer = hvd.DistributedOptimizer(sgd(model), named_parameters=model.named_parameters())
    loss_of(model, *data(4)).backward()
    with pytest.raises(AssertionError, match="zero_grad"):
        optimizer.zero_grad()
    optimizer.step()
    optimizer.zero_grad()


@ranks(*EVERY)
def test_zero_grad_drops_gradients_or_writes_zeros():
    model = net()
    optimizer = hvd.DistributedOptimizer(sgd(model), named_parameters=model.named_parameters())
    loss_of(model, *data(4)).backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
    assert all(p.grad is not None and not p.grad.any() for p in model.parameters())
    optimizer.zero_grad(set_to_none=True)
    assert all(p.grad is None for p in model.parameters())


@ranks(2, 3, 4)
def test_a_rank_that_does_not_use_a_parameter_gives_zeros_for_it():
    p, q = torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(2))
    for options in ({}, {"num_groups": 1}):
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([p, q], lr=1.0), named_parameters=[("p", p), ("q", q)], **options)
        (p if hvd.rank() == 0 else q).sum().backward()
        optimizer.synchronize()
        assert torch.allclose(p.grad, torch.full((2,), 1 / hvd.size()))
        assert torch.allclose(q.grad, torch.full((2,), 1 - 1 / hvd.size()))
        optimizer.zero_grad()
        del optimizer


@ranks(2, 3, 4)
def test_too_many_backward_passes_are_an_error():
    model = net()
    optimizer = hvd.DistributedOptimizer(sgd(model), named_parameters=model.named_parameters())
    loss_of(model, *data(4)).backward()
    with pytest.raises(AssertionError, match="backward_passes_per_step"):
        loss_of(model, *data(4)).backward()
    optimizer.synchronize()


@ranks(2)
def test_the_number_of_passes_can_be_changed():
    model = net()
    optimizer = hvd.DistributedOptimizer(sgd(model), named_parameters=model.named_parameters())
    optimizer.set_backward_passes_per_step(2)
    assert optimizer.backward_passes_per_step == 2
    for _ in range(2):
        loss_of(model, *data(4)).backward()
    optimizer.step()
    with pytest.raises(ValueError, match="above 0"):
        optimizer.set_backward_passes_per_step(0)


@ranks(1, 2)
def test_an_optimizer_of_sparse_gradients_may_send_them_as_dense_ones():
    table = torch.nn.Embedding(10, 3, sparse=True)
    before = table.weight.detach().clone()
    optimizer = hvd.DistributedOptimizer(torch.optim.SparseAdam(list(table.parameters()), lr=0.1), sparse_as_dense=True)
    for _ in range(2):
        optimizer.zero_grad()
        table(torch.tensor([1, 2 + hvd.rank()])).sum().backward()
        optimizer.step()
    moved = (table.weight.detach() - before).abs().sum(1) > 0
    assert moved.tolist() == [1 <= row <= 1 + hvd.size() for row in range(10)]


@ranks(2, 3)
def test_sparse_gradients_alone_in_groups_and_as_dense_ones():
    for options in ({}, {"num_groups": 1}, {"sparse_as_dense": True}, {"compression": hvd.Compression.fp16}):
        torch.manual_seed(3)
        table = torch.nn.Embedding(10, 4, sparse=True)
        reference = table.weight.detach().clone()
        head = torch.nn.Linear(4, 1)
        named = [("table", table.weight), *head.named_parameters()]
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([p for _, p in named], lr=1.0), named_parameters=named, **options)
        for _ in range(2):
            optimizer.zero_grad()
            head(table(torch.tensor([hvd.rank(), 9]))).sum().backward()
            optimizer.step()
        moved = (table.weight.detach() - reference).abs().sum(1) > 0
        assert moved.tolist() == [row < hvd.size() or row == 9 for row in range(10)]
        assert table.weight.grad.is_sparse
        everyone = hvd.allgather(table.weight.detach().unsqueeze(0))
        assert all(torch.equal(everyone[0], other) for other in everyone[1:])


@ranks(2, 3)
def test_a_rank_without_its_sparse_gradient_gives_an_empty_one():
    table = torch.nn.Embedding(10, 2, sparse=True)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(table.parameters(), lr=1.0))
    table(torch.tensor([1])).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    if hvd.rank() == 0:
        table(torch.tensor([2])).sum().backward()
    optimizer.synchronize()
    assert torch.allclose(table.weight.grad.to_dense()[2], torch.full((2,), 1 / hvd.size()))


@ranks(2)
def test_gradients_that_are_not_contiguous():
    p = torch.nn.Parameter(torch.zeros(2, 3, 4, 4).to(memory_format=torch.channels_last))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([p], lr=1.0))
    weights = torch.arange(96.0).view(2, 3, 4, 4).to(memory_format=torch.channels_last)
    (p * weights * (hvd.rank() + 1)).sum().backward()
    optimizer.step()
    assert torch.allclose(p.detach(), -1.5 * weights)
