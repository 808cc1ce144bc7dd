"""Process groups: made in any order, side by side, many times; timeouts, abort, what is left when they go."""
import atexit
import datetime
import os
import shutil
import tempfile
import threading

import pytest
import torch
import torch.distributed as dist

import cohort  # noqa: F401: registers the backend
from launch import launch, ranks


def setup_rank():
    dist.init_process_group("cohort")


def teardown_rank():
    dist.destroy_process_group()


def total(group=None):
    tensor = torch.full((3,), dist.get_rank() + 1.0)
    dist.all_reduce(tensor, group=group)
    return tensor[0].item()


@ranks(1, 2, 3, 4)
def test_the_backend_has_its_name():
    assert dist.get_backend() == "cohort"
    assert "cpu:cohort" in str(dist.distributed_c10d._world.pg_backend_config[dist.group.WORLD])
    assert total() == sum(range(1, dist.get_world_size() + 1))


@ranks(4)
def test_sub_groups_beside_the_world():
    me = dist.get_rank()
    halves = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    odd_even = [dist.new_group([0, 2]), dist.new_group([3, 1])]
    assert total(halves[me // 2]) == (3 if me < 2 else 7)
    assert total(odd_even[me % 2]) == (4 if me % 2 == 0 else 6)
    works = [dist.all_reduce(torch.ones(100_000), group=group, async_op=True) for group in (halves[me // 2], odd_even[me % 2], None)]
    for work in reversed(works):
        work.wait()
    tensor = torch.full((2,), float(me))
    dist.broadcast(tensor, src=2 * (me // 2) + 1, group=halves[me // 2])  # ranks of the world, as torch wants them
    assert tensor[0].item() == 2 * (me // 2) + 1
    for group in halves + odd_even:
        if group is not dist.GroupMember.NON_GROUP_MEMBER:
            dist.destroy_process_group(group)
    assert total() == 10


@ranks(3)
def test_a_group_that_only_its_members_make():
    me = dist.get_rank()
    if me < 2:
        group = dist.new_group([0, 1], use_local_synchronization=True)
        assert total(group) == 3
    dist.barrier()


@ranks(2)
def test_memory_shared_in_one_group_is_in_place_in_another():
    group = dist.new_group([0, 1])
    tensor = cohort.distributed.shared_tensor(1 << 20).fill_(1)
    dist.all_reduce(tensor, group=group)
    dist.all_reduce(tensor)
    assert bool((tensor == 4).all())
    assert cohort.distributed.shared_memory()["in_use"] >= 4 << 20
    del tensor
    dist.destroy_process_group(group)


@ranks(2)
def test_threads_with_a_group_each():
    groups = [dist.new_group([0, 1]) for _ in range(3)]
    failures = []

    def work(group):
        try:
            for _ in range(50):
                assert total(group) == 3
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(group,)) for group in groups]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@ranks(2)
def test_destroyed_and_made_again():
    rank, ranks_there = dist.get_rank(), dist.get_world_size()
    folder = [tempfile.mkdtemp(prefix="cohort-stores-")]
    atexit.register(shutil.rmtree, folder[0])  # the last group of this loop is in use until the end
    dist.broadcast_object_list(folder, src=0)
    for turn in range(10):
        dist.destroy_process_group()
        store = dist.FileStore(os.path.join(folder[0], str(turn)), ranks_there)
        dist.init_process_group("cohort", store=store, rank=rank, world_size=ranks_there)
        assert total() == 3
    shm = os.scandir("/dev/shm") if os.path.isdir("/dev/shm") else []
    assert not [entry.name for entry in shm if "cohort" in entry.name and entry.is_file()]  # folders are other tests'


@ranks(2)
def test_wait_may_be_cut_short_and_goes_on():
    me = dist.get_rank()
    if me == 0:
        work = dist.barrier(async_op=True)
        with pytest.raises(dist.DistBackendError, match="was not done after 50 ms and goes on"):
            work.wait(timeout=datetime.timedelta(milliseconds=50))
        dist.send(torch.ones(1), 1)
        work.wait()
    else:
        dist.recv(torch.ones(1), 0)
        dist.barrier()


@ranks(2)
def test_a_timeout_names_who_is_missing():
    me = dist.get_rank()
    group = dist.new_group([0, 1], timeout=datetime.timedelta(seconds=2))
    if me == 0:
        with pytest.raises(dist.DistBackendError, match="missing: rank 1"):
            dist.barrier(group=group)
    dist.barrier()
    with pytest.raises(dist.DistBackendError):  # for good, and on all
        dist.barrier(group=group)  # rank 0 was there in time for this one
        dist.barrier(group=group)
    dist.destroy_process_group(group)
    assert total() == 3


@ranks(2)
def test_abort_ends_waits_on_every_rank():
    group = dist.new_group([0, 1])
    if dist.get_rank() == 0:
        work = dist.all_reduce(torch.ones(1), group=group, async_op=True)  # rank 1 does not come to it
        group._get_backend(torch.device("cpu")).abort()
        with pytest.raises(dist.DistBackendError, match="rank 0 aborted process group"):
            work.wait()
    else:
        with pytest.raises(dist.DistBackendError, match="rank 0 aborted process group"):
            dist.recv(torch.ones(1), 0, group=group)  # nobody sends it
    dist.barrier()
    with pytest.raises(dist.DistBackendError, match="rank 0 aborted process group"):
        dist.all_reduce(torch.ones(1), group=group)
    dist.destroy_process_group(group)
    assert total() == 3


@ranks(2)
def test_a_group_that_was_shut_down_raises():
    backend = dist.new_group([0, 1])._get_backend(torch.device("cpu"))
    backend._shutdown() if hasattr(backend, "_shutdown") else backend.shutdown()
    with pytest.raises(ValueError, match="was shut down"):
        backend.allreduce([torch.ones(1)])


def test_pg_options_are_refused_with_a_sentence():
    script = """
import torch.distributed as dist, cohort
try:
    dist.init_process_group("cohort", pg_options=object())
except ValueError as error:
    print(error)
"""
    done = launch(1, script)
    assert "takes no pg_options" in done.stdout, done


def test_a_rank_may_forget_to_destroy_its_group():
    done = launch(2, "import torch, torch.distributed as d, cohort; d.init_process_group('cohort'); d.all_reduce(torch.ones(3)); w = d.barrier(async_op=True); w.wait()")
    assert done.returncode == 0 and "rror" not in done.stderr, done


def test_over_tcp():
    script = """
import torch, torch.distributed as dist, cohort
dist.init_process_group("cohort")
for count in (1, 1000, 300_001):
    t = torch.full((count,), dist.get_rank() + 1.0)
    dist.all_reduce(t)
    assert bool((t == 6).all())
    dist.reduce(t, 1)
    assert bool((t == (18 if dist.get_rank() == 1 else 6)).all())
    got = torch.zeros(count)
    work = dist.isend(t, (dist.get_rank() + 1) % 3)
    dist.recv(got, (dist.get_rank() + 2) % 3)
    work.wait()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(100, 100))
model(torch.ones(2, 100)).sum().backward()
dist.destroy_process_group()
print("whole")
"""
    done = launch(3, script, env={"COHORT_TRANSPORT": "tcp"})
    assert done.returncode == 0 and done.stdout.count("whole") == 3, done
