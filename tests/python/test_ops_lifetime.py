"""The timeline, stalls, signals and threads, and being started again and again."""
import json
import os
import pathlib
import tempfile
import time

import pytest
import torch

import cohort.torch as hvd
from horovod.common.util import env
from launch import SLOWDOWN, launch, ranks

setup_rank, teardown_rank = hvd.init, hvd.shutdown


def restart(**settings):
    hvd.shutdown()
    hvd.init(**settings)


# ---- timeline


@ranks(1, 2)
def test_a_dynamic_timeline_waits_for_start_timeline():
    with tempfile.TemporaryDirectory() as folder, env(HOROVOD_TIMELINE="DYNAMIC"):
        restart()
        assert not os.path.exists("DYNAMIC")
        path = os.path.join(folder, "timeline")
        hvd.start_timeline(path)
        hvd.allreduce(torch.ones(3), name="seen")
        hvd.stop_timeline()
        assert os.path.exists(path) == (hvd.rank() == 0)
    assert "HOROVOD_TIMELINE" not in os.environ


@ranks(1, 2)
def test_another_timeline_ends_the_one_before():
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, word) for word in ("one", "two")]
        for path in paths:
            hvd.start_timeline(path)
            hvd.allreduce(torch.ones(3), name=os.path.basename(path))
        hvd.stop_timeline()
        for path in paths if hvd.rank() == 0 else []:
            assert os.path.basename(path) in str(json.load(open(path)))


@ranks(1, 2)
def test_timeline_holds_operations_negotiations_and_cycles():
    with tempfile.TemporaryDirectory() as folder:
        for cycles in (False, True):
            path = os.path.join(folder, f"timeline {cycles}")
            hvd.start_timeline(path, mark_cycles=cycles)
            hvd.allreduce(torch.ones(3), name='a "quoted" name')
            hvd.allgather(torch.ones(3), name="gathered")
            hvd.stop_timeline()
            if hvd.rank() != 0:
                assert not os.path.exists(path)
                continue
            events = json.loads(pathlib.Path(path).read_text())
            names = [event.get("name") for event in events]
            rows = {event["args"].get("name"): event["pid"] for event in events if event.get("ph") == "M"}
            row = [event for event in events if event["pid"] == rows['allreduce.a "quoted" name'] and event["ph"] != "M"]
            assert [(event["ph"], event.get("name")) for event in row] == [
                ("B", "NEGOTIATE_ALLREDUCE"), ("E", None), ("B", "ALLREDUCE"), ("E", None)]
            assert [event["ts"] for event in row] == sorted(event["ts"] for event in row)
            assert "allgather.gathered" in rows and "ALLGATHER" in names and ("CYCLE_START" in names) == cycles
            assert any("start_time_since_epoch_in_micros" in event.get("args", {}) for event in events)
    hvd.barrier()
    if hvd.rank() == 0:
        with pytest.raises(hvd.HorovodInternalError, match="open /no/such/folder/timeline"):
            hvd.start_timeline("/no/such/folder/timeline")


def test_the_variables_of_horovod_have_effect(tmp_path):
    script = """
import os, torch, cohort.torch as hvd
hvd.init()
hvd.allreduce(torch.ones(1), name="seen")
hvd.add_process_set([hvd.size() - 1])
hvd.shutdown()
if os.environ["RANK"] == "0":
    print(open(os.environ["HOROVOD_TIMELINE"]).read())
"""
    done = launch(2, script, env={"HOROVOD_TIMELINE": str(tmp_path / "t.json"), "HOROVOD_TIMELINE_MARK_CYCLES": "1", "HOROVOD_DYNAMIC_PROCESS_SETS": "1"})
    assert done.returncode == 0, done.stderr
    assert "NEGOTIATE_ALLREDUCE" in done.stdout and "CYCLE_START" in done.stdout and "allreduce.seen" in done.stdout


def test_stalls_are_reported_with_the_missing_ranks():
    script = """
import torch, cohort.torch as hvd
hvd.init()
hvd.allreduce(torch.ones(1), name="both")
try:
    if hvd.rank() == 0:
        hvd.allreduce(torch.ones(1), name="only rank 0")
    else:
        hvd.allreduce(torch.ones(1), name="only rank 1")
except hvd.HorovodInternalError as error:
    print("ended:", error)
"""
    env = {"HOROVOD_STALL_CHECK_TIME_SECONDS": str(0.2 * SLOWDOWN), "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": str(0.6 * SLOWDOWN)}
    done = launch(2, script, env=env)
    assert "Missing ranks:" in done.stderr and "1: [allreduce.only rank 0]" in done.stderr and "0: [allreduce.only rank 1]" in done.stderr
    assert "Last submitted:" in done.stderr
    assert done.stdout.count("ended:") == 2, done.stdout


# ---- again and again


@ranks(1, 2, 3)
def test_a_hundred_cycles_in_one_process():
    def held():
        return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))

    threads, seconds = None, []
    for cycle in range(100):
        began = time.monotonic()
        restart()
        seconds.append(time.monotonic() - began)
        assert hvd.allreduce(torch.ones(10), op=hvd.Sum).tolist() == [hvd.size()] * 10
        if cycle == 10:
            time.sleep(0.1)  # one that was joined may be listed a moment longer
            threads = held()
    for _ in range(100):
        if held() != threads:
            time.sleep(0.02)
    assert held() == threads
    assert sorted(seconds)[50] < 0.5 * SLOWDOWN


@ranks(2)
def test_a_forked_child_is_no_rank():
    pid = os.fork()
    if pid == 0:
        ok = not hvd.is_initialized()
        try:
            hvd.allreduce(torch.ones(1))
        except ValueError as error:
            ok = ok and "forked" in str(error)
        hvd.shutdown()
        os._exit(0 if ok else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).tolist() == [2]


@ranks(2)
def test_threads_submit_side_by_side():
    import threading

    results = {}

    def work(number):
        for i in range(20):
            results[number, i] = hvd.allreduce(torch.full((5,), float(number)), name=f"thread {number}", op=hvd.Sum).tolist()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(results[number, i] == [2.0 * number] * 5 for number in range(4) for i in range(20))


def test_control_c_ends_a_wait():
    script = """
import os, signal, threading, torch, cohort.torch as hvd
hvd.init()
if hvd.rank() == 0:
    handle = hvd.allreduce_async(torch.ones(1), name="late")
    try:
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        hvd.synchronize(handle)
    except KeyboardInterrupt:
        print("interrupted")
    hvd.barrier()
else:
    hvd.barrier()
"""
    done = launch(2, script)
    assert "interrupted" in done.stdout, done.stdout + done.stderr
