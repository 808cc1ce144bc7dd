"""What goes wrong, which ranks get the error, and that the job stays usable."""
import pytest
import torch

import cohort.torch as hvd
from launch import SLOWDOWN, launch, ranks

setup_rank, teardown_rank = hvd.init, hvd.shutdown


def still_usable():
    assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [hvd.size()] * 2


def mismatch(match, work):
    with pytest.raises(hvd.HorovodInternalError, match=match):
        work()
    still_usable()


@ranks(2, 3)
def test_ranks_that_disagree_get_both_sides():
    me = hvd.rank()
    sides = r"rank 0 has \[17\], rank [12] has \[18\]|rank [12] has \[18\], rank 0 has \[17\]"  # as they came
    mismatch(f"Mismatched allreduce tensor shapes.*({sides})",
             lambda: hvd.allreduce(torch.ones(17 + (me > 0)), name="shape"))
    mismatch("Mismatched data types: One rank had type", lambda: hvd.allreduce(torch.ones(2, dtype=[torch.float32, torch.int32][me > 0]), name="t"))
    mismatch("Mismatched reduction operations", lambda: hvd.allreduce(torch.ones(2), name="op", op=[hvd.Sum, hvd.Max][me > 0]))
    mismatch("Mismatched reduction operations.*adasum", lambda: hvd.allreduce(torch.ones(2), name="op", op=[hvd.Sum, hvd.Adasum][me > 0]))
    mismatch("Mismatched broadcast root ranks", lambda: hvd.broadcast(torch.ones(2), root_rank=int(me > 0), name="root"))
    mismatch("Mismatched allgather tensor shapes", lambda: hvd.allgather(torch.ones(2, 3 + (me > 0)), name="gather"))
    mismatch("Mismatched data types", lambda: hvd.allgather(torch.ones(2, dtype=[torch.float32, torch.int16][me > 0]), name="gather"))
    mismatch("Mismatched alltoall tensor shapes", lambda: hvd.alltoall(torch.ones(hvd.size(), 3 + (me > 0)), name="to all"))
    mismatch("Mismatched reducescatter tensor shapes", lambda: hvd.reducescatter(torch.ones(4 + (me > 0)), name="scatter"))
    mismatch("prescale and/or postscale", lambda: hvd.allreduce(torch.ones(2), name="scale", prescale_factor=1.0 + (me > 0)))
    mismatch("Mismatched group sizes", lambda: hvd.grouped_allreduce([torch.ones(2)] * (1 + (me > 0)), name="group"))
    if me == 0:
        mismatch("allreduce|Mismatched", lambda: hvd.synchronize(hvd.grouped_allreduce_async([torch.ones(2)], name="x")) and hvd.allreduce(torch.ones(3), name="y"))
    else:
        mismatch("allreduce|Mismatched", lambda: hvd.synchronize(hvd.grouped_allreduce_async([torch.ones(2)], name="x")) and hvd.allreduce(torch.ones(4), name="y"))


@ranks(1, 2)
def test_reducescatter_has_no_adasum():
    for call in (hvd.reducescatter, hvd.reducescatter_async):
        with pytest.raises(NotImplementedError, match="does not know Adasum"):
            call(torch.ones(4), op=hvd.Adasum)


@ranks(2)
def test_what_is_refused_here_takes_no_number_of_the_nameless():
    if hvd.rank() == 0:
        for refused in (lambda: hvd.allreduce(torch.ones(2, dtype=torch.bool)), lambda: hvd.allreduce(torch.ones(2), prescale_factor=float("nan")),
                        lambda: hvd.allreduce(torch.ones(2, dtype=torch.int32), op=hvd.Adasum),
                        lambda: hvd.reducescatter(torch.ones(2, dtype=torch.bool))):
            with pytest.raises(ValueError):
                refused()
    assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [2, 2]
    assert hvd.reducescatter(torch.ones(2), op=hvd.Sum).tolist() == [2]


@ranks(1, 2)
def test_arguments_that_cannot_be():
    cases = [
        ("not contiguous", lambda: hvd.allreduce(torch.ones(4, 6).t())),
        ("not contiguous", lambda: hvd.allreduce_(torch.ones(4, 6)[:, ::2])),
        ("ComplexFloat", lambda: hvd.allreduce(torch.ones(2, dtype=torch.complex64))),
        ("is on meta", lambda: hvd.allreduce(torch.ones(2, device="meta"))),
        ("has none", lambda: hvd.allgather(torch.tensor(1.0))),
        ("has none", lambda: hvd.reducescatter(torch.tensor(1.0))),
        ("has none", lambda: hvd.alltoall(torch.tensor(1.0))),
        ("real numbers, not i32", lambda: hvd.allreduce(torch.ones(4, dtype=torch.int32), op=hvd.Adasum)),
        ("is not a reduction", lambda: hvd.allreduce(torch.ones(4), op=17)),
        ("add up to", lambda: hvd.alltoall(torch.ones(hvd.size() + 1), splits=[1] * hvd.size())),
        ("splits for", lambda: hvd.alltoall(torch.ones(9), splits=[3, 3, 3])),
        ("a split of -1", lambda: hvd.alltoall(torch.ones(hvd.size()), splits=[-1] * hvd.size())),
        ("expects splits", lambda: hvd.alltoall(torch.ones(hvd.size()), splits=torch.ones(hvd.size()))),
        ("root rank 99", lambda: hvd.broadcast(torch.ones(2), 99)),
        ("root rank -1", lambda: hvd.broadcast(torch.ones(2), -1)),
        ("at least one", lambda: hvd.grouped_allreduce([])),
        ("not registered", lambda: hvd.allreduce(torch.ones(2), process_set=hvd.ProcessSet([0]))),
        ("finite", lambda: hvd.allreduce(torch.ones(2), prescale_factor=float("nan"))),
    ]
    if hvd.size() > 1:
        cases.append(("divide evenly", lambda: hvd.alltoall(torch.ones(hvd.size() + 1))))
    for match, work in cases:
        with pytest.raises(ValueError, match=match):
            work()
    with pytest.raises(TypeError):
        hvd.allreduce([1, 2, 3])
    hvd.shutdown()
    hvd.init()  # unnamed operations are counted; both ranks have raised alike, so nothing is out of step, and this shows it afresh
    still_usable()


@ranks(2)
def test_a_name_in_flight_is_refused_at_once():
    if hvd.rank() == 0:
        first = hvd.allreduce_async(torch.ones(3), name="twice")
        with pytest.raises(ValueError, match="Duplicate tensor name 'allreduce.twice'"):
            hvd.allreduce_async(torch.ones(3), name="twice")
        hvd.barrier()
    else:
        hvd.barrier()
        first = hvd.allreduce_async(torch.ones(3), name="twice")
    assert hvd.synchronize(first).tolist() == [1, 1, 1]
    for _ in range(3):  # free again once synchronized
        assert hvd.allreduce(torch.ones(3), name="twice").tolist() == [1, 1, 1]


@ranks(2)
def test_tensors_in_flight_may_be_dropped_but_not_resized():
    if hvd.rank() == 0:
        tensor = torch.full((1000,), 2.0)
        handle = hvd.allreduce_async_(tensor, name="kept", op=hvd.Sum)
        with pytest.raises(RuntimeError, match="not resizable"):
            tensor.resize_(1 << 20)
        with pytest.raises(RuntimeError, match="not resizable"):
            tensor.untyped_storage().resize_(0)
        del tensor
        hvd.barrier()
    else:
        hvd.barrier()
        handle = hvd.allreduce_async_(torch.full((1000,), 2.0), name="kept", op=hvd.Sum)
    result = hvd.synchronize(handle)
    assert result.tolist() == [4.0] * 1000
    result.resize_(2000)


@ranks(2)
def test_dropped_handles_are_harmless():
    for i in range(20):
        hvd.allreduce_async(torch.ones(100), name=f"dropped {i}")
    if hvd.rank() == 0:
        hvd.allreduce_async(torch.ones(3), name="no other rank submits this")
    hvd.shutdown()
    hvd.init()
    assert hvd.synchronize(0) is None
    still_usable()


@ranks(1, 2)
def test_nothing_works_before_init_and_everything_raises():
    hvd.shutdown()
    hvd.shutdown()
    one = torch.ones(1)
    for work in [hvd.rank, hvd.size, hvd.local_rank, hvd.local_size, hvd.cross_rank, hvd.cross_size, hvd.join, hvd.barrier, hvd.stop_timeline,
                 hvd.mpi_threads_supported, lambda: hvd.allreduce(one), lambda: hvd.allgather(one), lambda: hvd.broadcast(one, 0),
                 lambda: hvd.alltoall(one), lambda: hvd.reducescatter(one), lambda: hvd.add_process_set([0]),
                 lambda: hvd.start_timeline("/tmp/never")]:
        with pytest.raises(ValueError, match="not been initialized"):
            work()
    hvd.init()
    still_usable()


@ranks(2)
def test_a_rank_that_leaves_is_named():
    if hvd.rank() == 1:
        hvd.shutdown()
    else:
        with pytest.raises(hvd.HorovodInternalError, match="rank 1"):
            hvd.allreduce(torch.ones(1), name="for two")
        hvd.shutdown()
    hvd.init()
    still_usable()


KILLED = """
import os, signal, sys, time
import torch
import cohort.torch as hvd
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the launcher's, which would end the survivors before they can print
hvd.init()
hvd.allreduce(torch.ones(1000), name="together")
victim = int(sys.argv[1])
if hvd.rank() == victim:
    print(time.time(), "killed", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
try:
    while True:
        hvd.allreduce(torch.ones(1000), name="alone")
except hvd.HorovodInternalError as error:
    print(time.time(), "raised", error, flush=True)
try:
    hvd.allreduce(torch.ones(1))
except hvd.HorovodInternalError as error:
    print(time.time(), "again", error, flush=True)
hvd.shutdown()
"""


@pytest.mark.parametrize("victim", [0, 2])
def test_a_killed_rank_is_named_within_a_second(victim):
    done = launch(3, KILLED, victim, timeout=30, options=["--grace", "5s"])
    lines = [line.split(" ", 2) for line in done.stdout.splitlines()]
    killed = [float(when) for when, what, *_ in lines if what == "killed"]
    raised = [(float(when), text[0]) for when, what, *text in lines if what == "raised"]
    assert len(killed) == 1 and len(raised) == 2, done.stdout + done.stderr
    for when, text in raised:
        assert when - killed[0] < 1.0 * SLOWDOWN, (when - killed[0], text)
        assert f"rank {victim}" in text
    assert sum(what == "again" for _, what, *_ in lines) == 2
    assert done.returncode == 128 + 9
