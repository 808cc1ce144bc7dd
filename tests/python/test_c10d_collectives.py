"""Every collective of torch.distributed on backend "cohort", for every dtype and op, synchronous and asynchronous."""
import pytest
import torch
import torch.distributed as dist

import cohort  # noqa: F401: registers the backend
from launch import ranks

NINE = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.uint8, torch.int32, torch.int64, torch.bool]
MOVED_ONLY = [torch.int16, torch.uint16, torch.uint32, torch.uint64, torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2]


def setup_rank():
    dist.init_process_group("cohort")


def teardown_rank():
    dist.destroy_process_group()


def mine(count=7, dtype=torch.float32, rank=None):
    """Small whole numbers that say whose they are."""
    rank = dist.get_rank() if rank is None else rank
    values = torch.arange(count) % 5 + rank
    return values.to(torch.float32).to(dtype) if dtype.is_floating_point else values.to(dtype)


def of_all(count=7, dtype=torch.float32):
    return [mine(count, dtype, r) for r in range(dist.get_world_size())]


def same(left, right):
    """Equal bit for bit; by bytes, since torch compares not every dtype."""
    assert left.shape == right.shape and left.dtype == right.dtype, (left, right)
    assert left.contiguous().view(torch.uint8).tolist() == right.contiguous().view(torch.uint8).tolist(), (left, right)


def both_ways(call):
    """call(async_op=...) done at once, and later."""
    call(async_op=False)
    work = call(async_op=True)
    assert work.wait()
    assert work.is_completed() and work.is_success()


@ranks(1, 2, 3, long=[4])
def test_all_reduce_of_every_dtype_and_op():
    fold = {
        dist.ReduceOp.SUM: lambda a, b: a + b,
        dist.ReduceOp.PRODUCT: lambda a, b: a * b,
        dist.ReduceOp.MIN: torch.minimum,
        dist.ReduceOp.MAX: torch.maximum,
    }
    for dtype in NINE:
        for op, two in fold.items():
            expected = of_all(dtype=dtype)[0]
            for other in of_all(dtype=dtype)[1:]:
                expected = two(expected, other)
            tensor = mine(dtype=dtype)
            dist.all_reduce(tensor, op)
            same(tensor, expected.to(dtype))


@ranks(2, 3)
def test_all_reduce_averages_and_scales():
    n = dist.get_world_size()
    tensor = mine()
    dist.all_reduce(tensor, dist.ReduceOp.AVG)
    torch.testing.assert_close(tensor, sum(of_all()) / n)
    tensor = mine()
    dist.all_reduce(tensor, dist._make_nccl_premul_sum(0.5))
    torch.testing.assert_close(tensor, sum(of_all()) * 0.5)


@ranks(1, 2, 3)
def test_bitwise_reductions_of_integers():
    n = dist.get_world_size()
    for dtype in (torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool):
        for op, two in ((dist.ReduceOp.BAND, torch.bitwise_and), (dist.ReduceOp.BOR, torch.bitwise_or), (dist.ReduceOp.BXOR, torch.bitwise_xor)):
            expected = mine(dtype=dtype, rank=0)
            for r in range(1, n):
                expected = two(expected, mine(dtype=dtype, rank=r))
            tensor = mine(dtype=dtype)
            dist.all_reduce(tensor, op)
            same(tensor, expected)
            tensor = mine(dtype=dtype)
            dist.reduce(tensor, n - 1, op)
            same(tensor, expected if dist.get_rank() == n - 1 else mine(dtype=dtype))
    with pytest.raises(ValueError, match="Float cannot be reduced by BAND"):
        dist.all_reduce(torch.ones(2), dist.ReduceOp.BAND)


@ranks(2)
def test_types_that_cannot_be_reduced_are_refused_with_a_message():
    for dtype in (torch.int16, torch.uint16, torch.float8_e4m3fn):
        with pytest.raises(ValueError, match="cannot be reduced by SUM; convert the tensor first"):
            dist.all_reduce(torch.zeros(3, dtype=dtype))
    with pytest.raises(ValueError, match="Bool cannot be reduced by AVG"):
        dist.all_reduce(torch.ones(3, dtype=torch.bool), dist.ReduceOp.AVG)
    tensor = torch.full((3,), 1 + 2j)  # torch itself hands complex numbers over as pairs of real ones
    dist.all_reduce(tensor)
    assert tensor.tolist() == [2 + 4j] * 3


@ranks(1, 2, 3, 4)
def test_every_dtype_moves():
    n, me = dist.get_world_size(), dist.get_rank()
    for dtype in NINE + MOVED_ONLY:
        everyone = of_all(dtype=dtype)
        tensor = mine(dtype=dtype)
        dist.broadcast(tensor, n - 1)
        same(tensor, everyone[n - 1])
        listed = [torch.zeros_like(everyone[0]) for _ in range(n)]
        dist.all_gather(listed, mine(dtype=dtype))
        for got, wanted in zip(listed, everyone):
            same(got, wanted)
        whole = torch.zeros_like(torch.cat(everyone))
        dist.all_gather_into_tensor(whole, mine(dtype=dtype))
        same(whole, torch.cat(everyone))
        out = torch.zeros_like(everyone[0])
        dist.scatter(out, everyone if me == 0 else None, src=0)
        same(out, everyone[me])
        listed = [torch.zeros_like(everyone[0]) for _ in range(n)]
        dist.gather(mine(dtype=dtype), listed if me == n - 1 else None, dst=n - 1)
        if me == n - 1:
            for got, wanted in zip(listed, everyone):
                same(got, wanted)


@ranks(1, 2, 3, 4)
def test_asynchronous_forms():
    n, me = dist.get_world_size(), dist.get_rank()
    total = sum(of_all())
    tensors = [mine(), mine()]
    both_ways(lambda async_op: dist.all_reduce(tensors.pop(), async_op=async_op))
    both_ways(lambda async_op: dist.broadcast(mine(), 0, async_op=async_op))
    both_ways(lambda async_op: dist.barrier(async_op=async_op))

    def reduced(async_op):
        tensor = mine()
        work = dist.reduce(tensor, n - 1, async_op=async_op)
        if work is not None:
            work.wait()
        same(tensor, total if me == n - 1 else mine())
        return work

    both_ways(reduced)
    work = dist.all_reduce(mine(), async_op=True)
    value = work.get_future().wait()
    same(value[0], total)
    same(work.result()[0], total)


@ranks(2, 3, 4)
def test_reduce_scatter_in_all_its_forms():
    n, me = dist.get_world_size(), dist.get_rank()
    rows = [mine(5) + 10 * r for r in range(n)]  # what this rank gives to each
    expected = sum(of_all(5)) + 10 * me * n
    out = torch.zeros(5)
    dist.reduce_scatter(out, rows)
    same(out, expected)
    out = torch.zeros(5)
    dist.reduce_scatter_tensor(out, torch.cat(rows))
    same(out, expected)
    out = torch.zeros(5)
    dist.reduce_scatter_tensor(out, torch.cat(rows), op=dist.ReduceOp.AVG)
    torch.testing.assert_close(out, expected / n)
    outs = [torch.zeros(5), torch.zeros(5)]
    with dist._coalescing_manager():
        for out in outs:
            dist.reduce_scatter_tensor(out, torch.cat(rows))
    for out in outs:
        same(out, expected)


@ranks(2, 3)
def test_uneven_lists():
    n, me = dist.get_world_size(), dist.get_rank()
    listed = [torch.zeros(r + 1) for r in range(n)]
    dist.all_gather(listed, torch.full((me + 1,), float(me)))
    for r, got in enumerate(listed):
        assert got.tolist() == [r] * (r + 1)
    out = torch.zeros(me + 1)
    dist.reduce_scatter(out, [torch.full((r + 1,), float(r)) for r in range(n)])
    assert out.tolist() == [me * n] * (me + 1)


@ranks(1, 2, 3, 4)
def test_all_to_all_in_all_its_forms():
    n, me = dist.get_world_size(), dist.get_rank()
    for dtype in (torch.float32, torch.int16, torch.complex64):
        out = torch.zeros(n, 2, dtype=dtype)
        dist.all_to_all_single(out, torch.tensor([[me, r] for r in range(n)], dtype=dtype))
        same(out, torch.tensor([[r, me] for r in range(n)], dtype=dtype))
    sends, receives = [r + 1 for r in range(n)], [me + 1] * n  # rank r gets r + 1 rows from everybody
    out = torch.zeros(sum(receives), 2)
    dist.all_to_all_single(out, torch.full((sum(sends), 2), float(me)), receives, sends)
    same(out, torch.repeat_interleave(torch.arange(n).float(), me + 1)[:, None].expand(-1, 2))
    outs = [torch.zeros(me + 1) for _ in range(n)]
    dist.all_to_all(outs, [torch.full((r + 1,), float(me)) for r in range(n)])
    for r, got in enumerate(outs):
        assert got.tolist() == [r] * (me + 1)


@ranks(1, 2, 3)
def test_coalesced_forms():
    n = dist.get_world_size()
    few = [mine(3), mine(5), mine(2)]
    dist.all_reduce_coalesced(few)
    for got, wanted in zip(few, (sum(of_all(3)), sum(of_all(5)), sum(of_all(2)))):
        same(got, wanted)
    large = [mine(300_000), mine(200_000)]
    dist.all_reduce_coalesced(large)
    same(large[0], sum(of_all(300_000)))
    same(large[1], sum(of_all(200_000)))
    small = [mine(4) for _ in range(3)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for tensor in small:
            dist.all_reduce(tensor)
    manager.wait()
    for tensor in small:
        same(tensor, sum(of_all(4)))
    wholes = [torch.zeros(3 * n), torch.zeros(2 * n)]
    with dist._coalescing_manager():
        for whole in wholes:
            dist.all_gather_into_tensor(whole, mine(whole.numel() // n))
    for whole in wholes:
        same(whole, torch.cat(of_all(whole.numel() // n)))


@ranks(2)
def test_non_contiguous_and_strange_tensors():
    me = dist.get_rank()
    grid = torch.arange(12.0).view(3, 4) * (me + 1)
    view = grid.t()
    dist.all_reduce(view)
    same(grid, torch.arange(12.0).view(3, 4) * 3)
    column = (torch.arange(12.0).view(3, 4) * (me + 1))[:, 1]
    dist.broadcast(column, 0)
    assert column.tolist() == [1, 5, 9]
    pixels = torch.full((2, 3, 4, 4), me + 1.0).to(memory_format=torch.channels_last)
    dist.all_reduce(pixels)
    assert pixels.is_contiguous(memory_format=torch.channels_last) and bool((pixels == 3).all())
    empty = torch.zeros(0)
    dist.all_reduce(empty)
    scalar = torch.tensor(me + 1.0)
    dist.all_reduce(scalar)
    assert scalar.item() == 3
    parameter = torch.nn.Parameter(torch.ones(3))
    dist.all_reduce(parameter.data)
    with torch.inference_mode():
        frozen = torch.ones(3)
        dist.all_reduce(frozen)
        assert frozen.tolist() == [2] * 3


@ranks(1, 2, 3)
def test_sparse_all_reduce():
    n, me = dist.get_world_size(), dist.get_rank()
    tensor = torch.sparse_coo_tensor([[0, me + 1]], torch.tensor([[1.0, 2.0], [3.0, 4.0]]), (n + 2, 2))
    dist.all_reduce(tensor)
    dense = torch.zeros(n + 2, 2)
    dense[0] = torch.tensor([1.0, 2.0]) * n
    dense[1 : n + 1] = torch.tensor([3.0, 4.0])
    same(tensor.to_dense(), dense)


@ranks(2, 3)
def test_objects():
    n, me = dist.get_world_size(), dist.get_rank()
    everyone = [None] * n
    dist.all_gather_object(everyone, {"rank": me, "text": "x" * (1000 * me)})
    assert [one["rank"] for one in everyone] == list(range(n))
    said = [{"from": 0}] if me == 0 else [None]
    dist.broadcast_object_list(said, src=0)
    assert said == [{"from": 0}]
    got = [None]
    dist.scatter_object_list(got, [f"for {r}" for r in range(n)] if me == 0 else None, src=0)
    assert got == [f"for {me}"]


@ranks(2)
def test_large_tensors_in_shared_memory_and_out_of_it():
    me = dist.get_rank()
    for count in (1 << 10, 1 << 16, 3_000_001):
        for make in (cohort.distributed.shared_tensor, torch.empty):
            tensor = make(count).fill_(me + 1)
            dist.all_reduce(tensor)
            assert bool((tensor == 3).all())
            whole = make(2 * count)
            dist.all_gather_into_tensor(whole, tensor * (me + 1))
            assert bool((whole[:count] == 3).all()) and bool((whole[count:] == 6).all())
            out = make(count)
            dist.reduce_scatter_tensor(out, whole)
            assert bool((out == 6 * (me + 1)).all())


@ranks(2)
def test_wrong_use_is_a_message_and_harms_no_rank():
    me = dist.get_rank()
    with pytest.raises(ValueError, match="is not one of 0 .. 1|not part of group"):
        dist.broadcast(torch.ones(2), 7)
    with pytest.raises(ValueError, match="not 2 times the input"):
        dist.all_gather_into_tensor(torch.zeros(3), torch.zeros(2))
    with pytest.raises(ValueError, match="the splits|splits"):
        dist.all_to_all_single(torch.zeros(4), torch.zeros(4), [1, 1], [2, 2])
    with pytest.raises(ValueError, match="moves CPU memory, the tensor is on meta"):
        dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu")).allreduce([torch.zeros(2, device="meta")])
    with pytest.raises(ValueError, match="rank 1 called all_reduce of 4 f32, sum, but rank 0 called all_reduce of 3 f32"):  # told to both, before data moves
        dist.all_reduce(torch.ones(3 + me))
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [2] * 3


@ranks(2)
def test_a_tensor_in_flight_cannot_be_resized_and_may_be_dropped():
    me = dist.get_rank()
    tensor = torch.ones(1000)
    dist.barrier()
    work = dist.all_reduce(tensor, async_op=True) if me == 0 else None
    store = dist.distributed_c10d._get_default_store()
    if me == 0:
        with pytest.raises(RuntimeError, match="not resizable"):
            tensor.resize_(2000)
        store.set("tried to resize", "")
    else:
        store.wait(["tried to resize"])  # only now may the operation end
    dist.barrier(async_op=True) if me == 0 else dist.all_reduce(tensor)
    if me == 1:
        dist.barrier()
    if work is not None:
        work.wait()
        tensor.resize_(10)
    for _ in range(20):
        dist.all_reduce(torch.ones(5000), async_op=True)  # nobody keeps anything
    dist.barrier()


@ranks(2)
def test_callbacks_of_futures_may_wait_for_later_operations():
    me = dist.get_rank()

    def again(future):
        tensor = future.value()[0]
        return dist.all_reduce(tensor.clone(), async_op=True).get_future().wait()[0]

    assert dist.all_reduce(torch.ones(4), async_op=True).get_future().then(again).wait().tolist() == [4] * 4
    with pytest.raises(ValueError):
        dist.all_reduce(torch.ones(2 + me), async_op=True).get_future().wait()
