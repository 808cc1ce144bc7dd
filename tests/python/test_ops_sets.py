"""Process sets, join, Adasum and sparse tensors."""
import pytest
import torch

import cohort.torch as hvd
from cohort.torch import process_sets
from launch import ranks

setup_rank, teardown_rank = hvd.init, hvd.shutdown


def restart(**settings):
    hvd.shutdown()
    hvd.init(**settings)


# ---- process sets


@ranks(2, 3)
def test_a_set_that_is_given_twice_is_one_and_all_ranks_are_the_global_one():
    first, again, everyone = hvd.ProcessSet([0]), hvd.ProcessSet([0]), hvd.ProcessSet(reversed(range(hvd.size())))
    restart(process_sets=[first, again, everyone])
    assert (first.process_set_id, again.process_set_id, everyone.process_set_id) == (1, 1, 0)
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum, process_set=everyone).tolist() == [hvd.size()]
    if hvd.rank() == 0:
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum, process_set=again).tolist() == [1]
    restart()
    assert again.process_set_id is None


@ranks(2, 3, 4)
def test_static_sets_work_by_themselves():
    n, me = hvd.size(), hvd.rank()
    first, last = hvd.ProcessSet([0]), hvd.ProcessSet(range(1, n))
    assert first.size() is None and first.rank() is None and first.included() is None
    restart(process_sets=[first, last])
    assert (first.process_set_id, last.process_set_id, hvd.global_process_set.process_set_id) == (1, 2, 0)
    mine, other = (first, last) if me == 0 else (last, first)
    assert mine.included() and not other.included() and mine.size() == (1 if me == 0 else n - 1)
    assert mine.rank() == (0 if me == 0 else me - 1) and other.rank() is None
    expected = 0 if me == 0 else sum(range(1, n))
    assert hvd.allreduce(torch.tensor([me]), op=hvd.Sum, process_set=mine).tolist() == [expected]
    assert hvd.allgather(torch.tensor([me]), process_set=mine).tolist() == mine.ranks
    root = mine.ranks[-1]
    assert hvd.broadcast(torch.tensor([me]), root, process_set=mine).tolist() == [root]
    assert hvd.alltoall(torch.arange(mine.size()) + 10 * me, process_set=mine).tolist() == [10 * r + mine.rank() for r in mine.ranks]
    assert hvd.reducescatter(torch.ones(mine.size()), op=hvd.Sum, process_set=mine).tolist() == [mine.size()]
    hvd.barrier(process_set=mine)
    with pytest.raises(ValueError, match=f"rank {me} is not a member of process set"):
        hvd.allreduce(torch.ones(1), process_set=other)
    with pytest.raises(ValueError, match="root rank .* is not in the process set"):
        hvd.broadcast(torch.ones(1), 0 if me > 0 else 1, process_set=mine)
    with pytest.raises(ValueError, match="dynamic"):
        hvd.add_process_set([0])
    with pytest.raises(ValueError, match="dynamic"):
        hvd.remove_process_set(mine)
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).tolist() == [n]
    restart()
    assert first.process_set_id is None


@ranks(3)
def test_sets_may_overlap_and_never_wait_for_each_other():
    low, high = hvd.ProcessSet([0, 1]), hvd.ProcessSet([1, 2])
    restart(process_sets=[low, high])
    if hvd.rank() == 2:  # rank 1 comes to this barrier only after the other set has done its work
        hvd.barrier(process_set=high)
    if hvd.rank() < 2:
        pending = hvd.allreduce_async(torch.ones(1), name="same name", process_set=hvd.global_process_set)
        assert hvd.allreduce(torch.ones(1), name="same name", op=hvd.Sum, process_set=low).tolist() == [2]
        if hvd.rank() == 1:
            hvd.barrier(process_set=high)
    else:
        pending = hvd.allreduce_async(torch.ones(1), name="same name")
    assert hvd.synchronize(pending).tolist() == [1]
    restart()


@ranks(2, 4)
def test_dynamic_sets_are_added_and_removed():
    n, me = hvd.size(), hvd.rank()
    restart(process_sets="dynamic")
    for _ in range(3):
        added = hvd.add_process_set([0, n - 1])if n > 2 else hvd.add_process_set([n - 1])
        assert added.process_set_id is not None
        if added.included():
            assert hvd.allreduce(torch.ones(1), op=hvd.Sum, process_set=added).tolist() == [added.size()]
        assert process_sets.process_set_ids()[added.process_set_id] == added.ranks
        with pytest.raises(ValueError, match="exists already"):
            hvd.add_process_set(list(added.ranks))
        assert hvd.remove_process_set(added)
        assert added.process_set_id is None and not hvd.remove_process_set(added)
        with pytest.raises(ValueError, match="not registered"):
            hvd.allreduce(torch.ones(1), process_set=added)
    assert not hvd.remove_process_set(hvd.global_process_set)
    with pytest.raises(ValueError, match="there are ranks 0 to"):
        hvd.add_process_set([0, n])
    with pytest.raises(ValueError, match="names a rank twice"):
        hvd.add_process_set([0, 0])
    with pytest.raises(ValueError, match="at least one rank"):
        hvd.add_process_set([])
    restart()


@ranks(3)
def test_ranks_that_add_different_sets_get_an_error():
    restart(process_sets="dynamic")
    with pytest.raises((ValueError, hvd.HorovodInternalError), match="process set"):
        hvd.add_process_set([0, 1] if hvd.rank() == 0 else [0, 2])
    restart()


@ranks(3)
def test_errors_in_a_set_name_ranks_of_the_job():
    high = hvd.ProcessSet([1, 2])
    restart(process_sets=[high])
    if high.included():
        with pytest.raises(hvd.HorovodInternalError, match=r"rank 1 has \[3\], rank 2 has \[4\]|rank 2 has \[4\], rank 1 has \[3\]"):
            hvd.allreduce(torch.ones(2 + hvd.rank()), name="uneven", process_set=high)
    hvd.barrier()
    restart()


@ranks(2, 3)
def test_a_world_of_some_ranks():
    n, me = hvd.size(), hvd.rank()
    hvd.shutdown()
    if me == 0:
        with pytest.raises(ValueError, match="leaves rank 0 out"):
            hvd.init(comm=list(range(1, n)))
    else:
        hvd.init(comm=list(range(1, n)))
        assert hvd.size() == n - 1 and hvd.rank() == me - 1
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum).tolist() == [n - 1]
        hvd.shutdown()
    hvd.init()


# ---- join


@ranks(2, 3, 4)
def test_join_in_every_order():
    n, me = hvd.size(), hvd.rank()
    for last in range(n):
        order = [r for r in range(n) if r != last] + [last]
        steps = order.index(me)
        for step in range(steps):
            there = [r for r in range(n) if order.index(r) > step]
            assert hvd.allreduce(torch.ones(3), name=f"step {step}", op=hvd.Sum).tolist() == [len(there)] * 3
            assert hvd.allreduce(torch.ones(3), name=f"mean {step}").tolist() == pytest.approx([len(there) / n] * 3)
            grouped = hvd.grouped_allreduce([torch.ones(2), torch.ones(1)], name=f"group {step}", op=hvd.Sum)
            assert grouped[0].tolist() == [len(there)] * 2
        assert 0 <= hvd.join() < n
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).tolist() == [n]


@ranks(2, 3)
def test_all_ranks_get_the_rank_that_joined_last():
    last = hvd.size() - 1
    if hvd.rank() == last:
        handle = hvd.allreduce_async(torch.ones(1), name="while the others have joined")
        assert hvd.synchronize(handle).tolist() == pytest.approx([1 / hvd.size()])  # done when all others have joined
    assert hvd.join() == last


@ranks(2, 3)
def test_unnamed_operations_match_again_after_a_join():
    for _ in range(3):
        for _ in range(hvd.rank() + 1):
            hvd.allreduce(torch.ones(1))
        hvd.join()
    assert hvd.allreduce(torch.full((2,), float(hvd.rank())), op=hvd.Sum).tolist() == [sum(range(hvd.size()))] * 2


@ranks(2)
def test_what_cannot_be_joined_is_refused():
    if hvd.rank() == 1:
        hvd.join()
    else:
        one = torch.ones(2)
        for work in [lambda: hvd.allgather(one), lambda: hvd.broadcast(one, 0), lambda: hvd.alltoall(one), lambda: hvd.reducescatter(one),
                     lambda: hvd.allreduce(one, op=hvd.Max), lambda: hvd.allreduce(one, op=hvd.Adasum)]:
            with pytest.raises(hvd.HorovodInternalError, match="is not supported with join: rank 1 joined before"):
                work()
        hvd.barrier()
        hvd.join()
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).tolist() == [2]


# ---- Adasum


def adasum(tensors):
    """The definition: neighbours in pairs, round by round."""
    def pair(a, b):
        a, b = a.double(), b.double()
        dot, left, right = (a * b).sum(), (a * a).sum(), (b * b).sum()
        return (1 - dot / (2 * left)) * a + (1 - dot / (2 * right)) * b

    while len(tensors) > 1:
        odd = tensors[-1:] if len(tensors) % 2 else []
        tensors = [pair(a, b) for a, b in zip(tensors[::2], tensors[1::2])] + odd
    return tensors[0]


@ranks(1, 2, 3, 4)
def test_adasum_of_any_number_of_ranks_and_any_set():
    n, me = hvd.size(), hvd.rank()
    high = hvd.ProcessSet(range(1, n)) if n > 1 else None
    restart(process_sets=[high] if high else [])
    for dtype, near in [(torch.float64, 1e-12), (torch.float32, 1e-5), (torch.float16, 2e-2), (torch.bfloat16, 2e-1)]:
        inputs = [torch.randn(50, generator=torch.Generator().manual_seed(r)).to(dtype) for r in range(n)]
        result = hvd.allreduce(inputs[me], op=hvd.Adasum)
        assert result.dtype == dtype and torch.allclose(result.double(), adasum(inputs).double(), atol=near)
        group = hvd.grouped_allreduce([inputs[me], 2 * inputs[me][:7]], op=hvd.Adasum)
        assert torch.allclose(group[1].double(), adasum([2 * x[:7] for x in inputs]).double(), atol=near)
        if high and high.included():
            assert torch.allclose(hvd.allreduce(inputs[me], op=hvd.Adasum, process_set=high).double(), adasum(inputs[1:]).double(), atol=near)
    restart()


# ---- sparse


@ranks(1, 2, 3)
def test_sparse_allreduce_gathers_and_adds():
    n, me = hvd.size(), hvd.rank()
    mine = torch.sparse_coo_tensor([[me, n]], [[1.0, 2.0], [3.0, 4.0]], (n + 1, 2))
    for op, factor in [(hvd.Sum, 1), (hvd.Average, 1 / n)]:
        result = hvd.sparse_allreduce_async(mine, name="sparse", op=op)()
        expected = torch.tensor([[1.0, 2.0]] * n + [[3.0 * n, 4.0 * n]]) * factor
        assert result.is_sparse and torch.allclose(result.to_dense(), expected)
    empty = torch.sparse_coo_tensor(torch.zeros(1, 0, dtype=torch.long), torch.zeros(0, 2), (n + 1, 2))
    assert hvd.sparse_allreduce_async(empty, name="empty", op=hvd.Sum)().to_dense().tolist() == [[0, 0]] * (n + 1)
    with pytest.raises(ValueError, match="Average and Sum"):
        hvd.sparse_allreduce_async(mine, name="sparse", op=hvd.Max)
