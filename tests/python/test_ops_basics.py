"""Every operation at one to four ranks: values, types, shapes, names, handles, gradients."""
import pytest
import torch

import cohort.torch as hvd
from cohort.torch import mpi_ops
from launch import ranks

setup_rank, teardown_rank = hvd.init, hvd.shutdown

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
EVERY = [1, 2, 3, 4]


def total(f):
    return sum(f(r) for r in range(hvd.size()))


@ranks(*EVERY)
def test_ranks_know_their_place():
    assert hvd.is_initialized()
    assert 0 <= hvd.rank() < hvd.size()
    assert hvd.local_rank() == hvd.rank() and hvd.local_size() == hvd.size()
    assert hvd.cross_rank() == 0 and hvd.cross_size() == 1 and mpi_ops.is_homogeneous()


@ranks(2)
def test_init_again_after_shutdown():
    hvd.shutdown()
    assert not hvd.is_initialized()
    with pytest.raises(ValueError, match="not been initialized"):
        hvd.rank()
    hvd.init()
    hvd.init()
    assert hvd.size() == 2


@ranks(*EVERY)
def test_allreduce_of_every_type_and_shape():
    for dtype in FLOATS + INTS:
        for shape in [(), (1,), (17,), (5, 3), (2, 3, 4), (0,), (3, 0)]:
            mine = torch.full(shape, hvd.rank() + 1, dtype=dtype)
            for op, expected in [(hvd.Sum, total(lambda r: r + 1)), (hvd.Min, 1), (hvd.Max, hvd.size())]:
                result = hvd.allreduce(mine, op=op)
                assert result.dtype == dtype and result.shape == mine.shape
                assert torch.equal(result, torch.full(shape, expected, dtype=dtype)), (dtype, shape, op)
            assert torch.equal(mine, torch.full(shape, hvd.rank() + 1, dtype=dtype))
    product = 1
    for r in range(hvd.size()):
        product *= r + 1
    assert hvd.allreduce(torch.tensor([hvd.rank() + 1]), op=hvd.Product).tolist() == [product]


@ranks(*EVERY)
def test_allreduce_averages_by_default_and_truncates_integers():
    mean = total(lambda r: r) / hvd.size()
    assert hvd.allreduce(torch.full((3,), float(hvd.rank()))).tolist() == pytest.approx([mean] * 3)
    assert hvd.allreduce(torch.full((2,), 3 * hvd.rank() + 1)).tolist() == [int(total(lambda r: 3 * r + 1) / hvd.size())] * 2
    assert hvd.allreduce(torch.full((2,), -hvd.rank())).tolist() == [int(-mean)] * 2


@ranks(2, 3)
def test_bool_is_or_and_and():
    mine = torch.tensor([True, hvd.rank() == 0, False])
    assert hvd.allreduce(mine, op=hvd.Sum).tolist() == [True, True, False]
    assert hvd.allreduce(mine, op=hvd.Product).tolist() == [True, False, False]
    assert hvd.allgather(mine).tolist() == [x for r in range(hvd.size()) for x in (True, r == 0, False)]
    with pytest.raises(ValueError, match="bool cannot be reduced by average"):
        hvd.allreduce(mine)


@ranks(*EVERY)
def test_in_place_forms_return_the_tensor_itself():
    tensor = torch.ones(4)
    assert hvd.allreduce_(tensor, op=hvd.Sum) is tensor and tensor.tolist() == [hvd.size()] * 4
    assert hvd.synchronize(hvd.allreduce_async_(tensor, op=hvd.Average)) is tensor
    assert hvd.broadcast_(tensor, 0) is tensor
    several = [torch.ones(2), torch.ones(3)]
    assert all(a is b for a, b in zip(hvd.grouped_allreduce_(several, op=hvd.Sum), several))
    assert several[1].tolist() == [hvd.size()] * 3


@ranks(*EVERY)
def test_scales_before_and_after():
    for dtype in FLOATS:
        result = hvd.allreduce(torch.full((3,), 2.0, dtype=dtype), op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0)
        assert result.tolist() == [4.0 * hvd.size()] * 3
    assert hvd.allreduce(torch.tensor([5]), op=hvd.Sum, prescale_factor=0.5).tolist() == [2 * hvd.size()]
    assert hvd.allreduce(torch.tensor([5]), op=hvd.Sum, postscale_factor=0.5).tolist() == [int(5 * hvd.size() * 0.5)]
    group = hvd.grouped_allreduce([torch.ones(2), torch.ones(3)], op=hvd.Sum, prescale_factor=3.0, postscale_factor=0.5)
    assert group[1].tolist() == [1.5 * hvd.size()] * 3


@ranks(2)
def test_average_argument_is_deprecated_and_excludes_op():
    with pytest.warns(DeprecationWarning):
        assert hvd.allreduce(torch.ones(1), False).tolist() == [hvd.size()]
    with pytest.warns(DeprecationWarning):
        assert hvd.allreduce(torch.ones(1), average=True).tolist() == [1]
    assert hvd.allreduce(torch.ones(1), None, "named").tolist() == [1]
    with pytest.raises(ValueError, match="supersedes average"):
        hvd.allreduce(torch.ones(1), average=True, op=hvd.Sum)


@ranks(*EVERY)
def test_groups_are_one_unit():
    tensors = [torch.full((n,), float(hvd.rank() + n)) for n in (1, 7, 1000)]
    for result in (hvd.grouped_allreduce(tensors, op=hvd.Sum), hvd.synchronize(hvd.grouped_allreduce_async(tensors, op=hvd.Sum))):
        assert [r.tolist() for r in result] == [[total(lambda r: r + n)] * n for n in (1, 7, 1000)]
    assert isinstance(hvd.synchronize(hvd.grouped_allreduce_async(tensors)), tuple)
    assert isinstance(hvd.grouped_allreduce(tensors), list)
    mixed = hvd.grouped_allreduce([torch.ones(2), torch.ones(2, dtype=torch.float64), torch.ones(2, dtype=torch.int32)], op=hvd.Sum)
    assert [m.dtype for m in mixed] == [torch.float32, torch.float64, torch.int32]
    gathered = hvd.grouped_allgather([torch.full((hvd.rank() + 1,), hvd.rank()), torch.full((2, 2), hvd.rank())])
    assert gathered[0].tolist() == [r for r in range(hvd.size()) for _ in range(r + 1)]
    assert gathered[1].shape == (2 * hvd.size(), 2)
    scattered = hvd.grouped_reducescatter([torch.ones(hvd.size(), 2), torch.ones(2 * hvd.size())], op=hvd.Sum)
    assert scattered[0].tolist() == [[hvd.size()] * 2] and scattered[1].tolist() == [hvd.size()] * 2


@ranks(*EVERY)
def test_allgather_joins_rows_of_every_type_and_length():
    for dtype in FLOATS + INTS + [torch.bool]:
        mine = torch.full((hvd.rank() + 1, 2), hvd.rank() % 2, dtype=dtype)
        result = hvd.allgather(mine)
        assert result.dtype == dtype
        assert torch.equal(result, torch.cat([torch.full((r + 1, 2), r % 2, dtype=dtype) for r in range(hvd.size())]))
    nothing_from_zero = hvd.allgather(torch.full((hvd.rank(), 3), hvd.rank()))
    assert nothing_from_zero.shape == (total(lambda r: r), 3)
    assert hvd.allgather(torch.zeros(0, 5)).shape == (0, 5)


@ranks(*EVERY)
def test_broadcast_gives_the_roots_values():
    for dtype in FLOATS + INTS + [torch.bool]:
        for root in range(hvd.size()):
            mine = torch.full((3, 2), (hvd.rank() + 1) % 2, dtype=dtype)
            result = hvd.broadcast(mine, root)
            assert torch.equal(result, torch.full((3, 2), (root + 1) % 2, dtype=dtype))
            assert torch.equal(mine, torch.full((3, 2), (hvd.rank() + 1) % 2, dtype=dtype))
    scalar = torch.tensor(float(hvd.rank()))
    assert hvd.synchronize(hvd.broadcast_async_(scalar, hvd.size() - 1)) is scalar and scalar.item() == hvd.size() - 1


@ranks(*EVERY)
def test_alltoall_even_and_by_splits():
    n, me = hvd.size(), hvd.rank()
    even = hvd.alltoall(torch.arange(2 * n) + 100 * me)
    assert even.tolist() == [100 * r + 2 * me + i for r in range(n) for i in range(2)]
    rows = torch.full((n * (n + 1) // 2, 3), me, dtype=torch.float64)
    splits = torch.arange(1, n + 1, dtype=torch.int32)
    result, received = hvd.alltoall(rows, splits=splits)
    assert received.dtype == torch.int32 and received.tolist() == [me + 1] * n
    assert result.tolist() == [[r] * 3 for r in range(n) for _ in range(me + 1)]
    result, received = hvd.synchronize(hvd.alltoall_async(torch.arange(n), splits=[1] * n))
    assert result.tolist() == [me] * n and received.tolist() == [1] * n
    empty, received = hvd.alltoall(torch.zeros(0, 2), splits=[0] * n)
    assert empty.shape == (0, 2) and received.tolist() == [0] * n


@ranks(*EVERY)
def test_reducescatter_gives_lower_ranks_the_odd_rows():
    n, me = hvd.size(), hvd.rank()
    for count in (n, 2 * n + 1, n - 1, 3 * n):
        mine = torch.arange(count * 2, dtype=torch.float32).reshape(count, 2) + me
        first = me * (count // n) + min(me, count % n)
        length = count // n + (1 if me < count % n else 0)
        expected = (torch.arange(count * 2, dtype=torch.float32).reshape(count, 2) * n + total(lambda r: r))[first:first + length]
        assert torch.equal(hvd.reducescatter(mine, op=hvd.Sum), expected)
        assert torch.allclose(hvd.reducescatter(mine), expected / n)
        assert torch.equal(hvd.synchronize(hvd.reducescatter_async(mine, op=hvd.Sum)), expected)
        assert torch.allclose(hvd.reducescatter(mine, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0), expected * 2)


@ranks(*EVERY)
def test_ranks_may_submit_in_any_order():
    names = [f"tensor {i}" for i in range(40)]
    mine = names if hvd.rank() % 2 == 0 else names[::-1]
    handles = {name: hvd.allreduce_async(torch.full((8,), float(names.index(name))), name=name, op=hvd.Sum) for name in mine}
    for i, name in enumerate(names):
        assert hvd.synchronize(handles[name]).tolist() == [i * hvd.size()] * 8


@ranks(2)
def test_handles_poll_and_resolve_once():
    handle = hvd.allreduce_async(torch.ones(3), name="polled")
    while not hvd.poll(handle):
        pass
    assert hvd.synchronize(handle).tolist() == [1, 1, 1]
    assert hvd.synchronize(handle) is None
    assert hvd.synchronize(123456789) is None
    with pytest.raises(ValueError, match="belongs to no operation"):
        hvd.poll(handle)


@ranks(*EVERY)
def test_barrier_passes_pending_operations():
    pending = hvd.allreduce_async(torch.ones(1), name="first on rank 0") if hvd.rank() == 0 else None
    hvd.barrier()
    if hvd.rank() != 0:
        pending = hvd.allreduce_async(torch.ones(1), name="first on rank 0")
    assert hvd.synchronize(pending).tolist() == [1]


@ranks(1, 2)
def test_what_is_built_in():
    assert not hvd.mpi_built() and not hvd.mpi_enabled() and not hvd.mpi_threads_supported()
    assert hvd.gloo_built() and hvd.gloo_enabled()
    assert hvd.nccl_built() == 0 and not any([hvd.ddl_built(), hvd.ccl_built(), hvd.cuda_built(), hvd.rocm_built()])


# ---- gradients


def leaf(*shape):
    return torch.full(shape, float(hvd.rank() + 1), requires_grad=True)


@ranks(*EVERY)
def test_allreduce_backward_is_the_same_allreduce():
    n = hvd.size()
    for op, expected in [(hvd.Sum, sum(range(1, n + 1))), (hvd.Average, sum(range(1, n + 1)) / n)]:
        x = leaf(3, 2)
        hvd.allreduce(x, op=op).backward(torch.full((3, 2), float(hvd.rank() + 1)))
        assert torch.allclose(x.grad, torch.full((3, 2), float(expected)))
    x = leaf(2)
    hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0).sum().backward()
    assert torch.allclose(x.grad, torch.full((2,), 1.5 * n))


@ranks(*EVERY)
def test_grouped_forms_have_gradients():
    n = hvd.size()
    xs = [leaf(2), leaf(3, 2)]
    a, b = hvd.grouped_allreduce(xs, op=hvd.Sum)
    (a.sum() + 2 * b.sum()).backward()
    assert torch.equal(xs[0].grad, torch.full((2,), float(n))) and torch.equal(xs[1].grad, torch.full((3, 2), 2.0 * n))
    xs = [leaf(1), leaf(2, 2)]
    a, b = hvd.grouped_allgather(xs)
    (a.sum() + 3 * b.sum()).backward()
    assert torch.allclose(xs[0].grad, torch.ones(1)) and torch.allclose(xs[1].grad, torch.full((2, 2), 3.0))
    xs = [leaf(n), leaf(n, 2)]
    a, b = hvd.grouped_reducescatter(xs, op=hvd.Average)
    (a.sum() + 3 * b.sum()).backward()
    assert torch.equal(xs[0].grad, torch.ones(n)) and torch.equal(xs[1].grad, torch.full((n, 2), 3.0))


@ranks(*EVERY)
def test_allgather_backward_averages_and_gives_back_the_own_rows():
    n, me = hvd.size(), hvd.rank()
    x = leaf(me + 1, 2)
    out = hvd.allgather(x)
    weights = torch.cat([torch.full((r + 1, 2), float(r + 1)) for r in range(n)]) * (me + 1)
    out.backward(weights)
    mean = sum(range(1, n + 1)) / n
    assert torch.allclose(x.grad, torch.full((me + 1, 2), (me + 1) * mean))


@ranks(*EVERY)
def test_broadcast_backward_is_zero_off_the_root():
    n, me = hvd.size(), hvd.rank()
    for root in range(n):
        x = leaf(4)
        hvd.broadcast(x, root).backward(torch.full((4,), float(me + 1)))
        mean = sum(range(1, n + 1)) / n
        assert torch.allclose(x.grad, torch.full((4,), mean if me == root else 0.0))


@ranks(*EVERY)
def test_alltoall_backward_sends_gradients_back():
    n, me = hvd.size(), hvd.rank()
    x = torch.arange(float(n * (n + 1) // 2), requires_grad=True)
    out, received = hvd.alltoall(x, splits=list(range(1, n + 1)))
    assert not received.requires_grad
    (out * (me + 1)).sum().backward()  # rank r multiplies what it got, which was r + 1 elements from each, by r + 1
    assert x.grad.tolist() == [r + 1 for r in range(n) for _ in range(r + 1)]
    even = torch.ones(n, requires_grad=True)
    hvd.alltoall(even).sum().backward()
    assert even.grad.tolist() == [1] * n


@ranks(*EVERY)
def test_reducescatter_backward_gathers():
    n, me = hvd.size(), hvd.rank()
    for op, factor in [(hvd.Sum, n), (hvd.Average, 1)]:
        x = leaf(2 * n + 1, 2)
        out = hvd.reducescatter(x, op=op, prescale_factor=0.5, postscale_factor=4.0)
        out.backward(torch.full_like(out, float(me + 1)))
        rows = [r + 1 for r in range(n) for _ in range(2 + (1 if r < 1 else 0))]
        assert torch.allclose(x.grad, torch.tensor([[row * factor * 2.0] * 2 for row in rows]))


@ranks(2)
def test_no_graph_without_need():
    x = leaf(2)
    with torch.no_grad():
        assert not hvd.allreduce(x).requires_grad
    assert not hvd.allreduce(torch.ones(2)).requires_grad
    assert hvd.allreduce(x).requires_grad


@ranks(2)
def test_gradients_of_gradients():
    x = torch.tensor([2.0], requires_grad=True)
    y = hvd.allreduce(x * x * x, op=hvd.Sum)
    (first,) = torch.autograd.grad(y, x)
    assert first.tolist() == [12.0 * hvd.size()]
