"""Point to point on backend "cohort": in order for each peer and tag, beside each other otherwise."""
import pytest
import torch
import torch.distributed as dist

import cohort  # noqa: F401: registers the backend
from launch import ranks


def setup_rank():
    dist.init_process_group("cohort")


def teardown_rank():
    dist.destroy_process_group()


@ranks(2, 3, 4)
def test_a_ring_of_synchronous_messages():
    n, me = dist.get_world_size(), dist.get_rank()
    for dtype in (torch.float32, torch.int16, torch.complex64, torch.bool, torch.float8_e5m2):
        token = torch.tensor([1, 0, 1]).to(torch.float32).to(dtype)
        if me == 0:
            dist.send(token, 1)
        got = torch.zeros_like(token)
        dist.recv(got, (me - 1) % n)
        assert got.view(torch.uint8).tolist() == token.view(torch.uint8).tolist()
        if me != 0:
            dist.send(got, (me + 1) % n)


@ranks(2, 4)
def test_everybody_sends_before_anybody_receives():
    n, me = dist.get_world_size(), dist.get_rank()
    for count in (1, 1000, 1_000_000):
        sends = [dist.isend(torch.full((count,), float(me * n + r)), r) for r in range(n) if r != me]
        gots = {r: torch.zeros(count) for r in range(n) if r != me}
        receives = [dist.irecv(got, r) for r, got in gots.items()]
        for work in sends + receives:
            work.wait()
        for r, got in gots.items():
            assert bool((got == r * n + me).all())


@ranks(2)
def test_tags_keep_messages_apart_and_in_order():
    if dist.get_rank() == 0:
        for value in range(10):
            dist.isend(torch.tensor([float(value)]), 1, tag=value % 2)
        dist.barrier()
        return
    odd, even = [torch.zeros(1) for _ in range(5)], [torch.zeros(1) for _ in range(5)]
    works = [dist.irecv(tensor, 0, tag=1) for tensor in odd] + [dist.irecv(tensor, 0, tag=0) for tensor in even]
    for work in works:
        work.wait()
    assert [tensor.item() for tensor in even] == [0, 2, 4, 6, 8] and [tensor.item() for tensor in odd] == [1, 3, 5, 7, 9]
    dist.barrier()


@ranks(2, 3, 4)
def test_from_anybody():
    n, me = dist.get_world_size(), dist.get_rank()
    if me > 0:
        dist.send(torch.full((3,), float(me)), 0, tag=5)
        return
    seen = set()
    for _ in range(n - 1):
        got = torch.zeros(3)
        sender = dist.recv(got, tag=5)  # no source: from any
        assert got.tolist() == [sender] * 3
        seen.add(sender)
    assert seen == set(range(1, n))


@ranks(2, 3)
def test_batches_and_strided_tensors():
    n, me = dist.get_world_size(), dist.get_rank()
    out, got = torch.full((4,), float(me)), torch.zeros(4, 2)
    operations = [
        dist.P2POp(dist.isend, out, (me + 1) % n),
        dist.P2POp(dist.irecv, got[:, 0], (me - 1) % n),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    assert got[:, 0].tolist() == [(me - 1) % n] * 4 and got[:, 1].tolist() == [0] * 4


@ranks(2)
def test_objects_and_collectives_beside_messages():
    me = dist.get_rank()
    pending = dist.irecv(torch.zeros(1), 1 - me, tag=9)
    total = torch.ones(3)
    dist.all_reduce(total)
    assert not pending.is_completed() and total.tolist() == [2] * 3
    dist.barrier()
    dist.send(torch.ones(1), 1 - me, tag=9)
    pending.wait()
    if me == 0:
        dist.send_object_list([{"a": 1}, "b"], dst=1)
    else:
        objects = [None, None]
        dist.recv_object_list(objects, src=0)
        assert objects == [{"a": 1}, "b"]


@ranks(2)
def test_wrong_use_is_a_sentence():
    me = dist.get_rank()
    with pytest.raises(ValueError):
        dist.send(torch.ones(2), me)
    with pytest.raises(ValueError, match="tag -3 is negative"):
        dist.isend(torch.ones(2), 1 - me, tag=-3)
    if me == 0:
        dist.send(torch.ones(3), 1)
    else:
        with pytest.raises(RuntimeError, match="12 bytes|8 bytes|length"):
            dist.recv(torch.ones(2), 0)
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    assert tensor.item() == 2
