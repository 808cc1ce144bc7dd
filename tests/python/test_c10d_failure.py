"""A rank is killed: every survivor gets its name within a second, in c10d's own exception; nothing is left behind.
And the two launchers: torchrun and `cohort run`."""
import contextlib
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time

import pytest

from launch import SLOWDOWN, environment, launch, stretched

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "python" / "ddp.py"

# The victim kills itself at a given point of its training; survivors print when they got the error, and its text.
SURVIVORS = """
import os, signal, sys, time
import torch, torch.distributed as dist, cohort
dist.init_process_group("cohort")
me, victim, where = dist.get_rank(), int(sys.argv[1]), sys.argv[2]
net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(300, 300))
def step():
    if where == "all_reduce":
        dist.all_reduce(torch.ones(1000))
    elif where == "ddp":
        net(torch.ones(2, 300)).sum().backward()
    elif where == "recv":
        dist.recv(torch.ones(3), victim) if me != victim else None
    elif where == "any":
        dist.recv(torch.ones(3)) if me != victim else None
    elif where == "async":
        dist.all_reduce(torch.ones(1000), async_op=True).get_future().wait()
if where not in ("recv", "any"):
    step()
dist.barrier()
print("ready", flush=True)
sys.stdin.readline()
if me == victim:
    os.kill(os.getpid(), signal.SIGKILL)
try:
    while True:
        step()
except RuntimeError as error:
    print(time.time(), type(error).__name__, str(error).replace(chr(10), " "), flush=True)
dist.destroy_process_group()
"""


def free_port():
    """Below the ephemeral ports: no other process gets it before rank 0 binds it."""
    for port in random.sample(range(20000, 32000), 100):
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("100 ports, none of them free")


def start(count, *arguments):
    port = free_port()
    processes = []
    for rank in range(count):
        place = {"RANK": rank, "WORLD_SIZE": count, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": count, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        env = {**environment(), **{name: str(value) for name, value in place.items()}}
        command = [sys.executable, "-c", SURVIVORS, *arguments]
        processes.append(subprocess.Popen(command, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    return processes


@pytest.mark.parametrize("count, victim, where", [(2, 1, "all_reduce"), (3, 2, "ddp"), (2, 1, "recv"), *(
    pytest.param(*how, marks=pytest.mark.long) for how in ((3, 1, "async"), (3, 2, "any"), (4, 3, "all_reduce")))])
def test_survivors_hear_who_was_killed_within_a_second(count, victim, where):
    processes = start(count, str(victim), where)
    try:
        for process in processes:
            assert process.stdout.readline() == "ready\n", process.communicate(timeout=10)
        for process in processes:
            process.stdin.write("go\n")
            process.stdin.flush()
        processes[victim].wait(timeout=stretched(30))
        killed_at = time.time()
        for rank, process in enumerate(processes):
            out, err = process.communicate(timeout=stretched(30))
            if rank == victim:
                continue
            heard_at, kind, text = out.split(" ", 2)
            assert kind == "DistBackendError", text
            assert f"rank {victim}" in text, text
            assert float(heard_at) - killed_at < 1.0 * SLOWDOWN, (heard_at, killed_at)
            assert process.returncode == 0, err
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    shm = os.scandir("/dev/shm") if os.path.isdir("/dev/shm") else []
    assert not [entry.name for entry in shm if "cohort" in entry.name and entry.is_file()]  # folders are other tests'


def test_the_example_runs_under_cohort_run():
    done = launch(2, EXAMPLE, "--steps", "20", timeout=120)
    assert done.returncode == 0 and "loss" in done.stdout, done


def test_the_example_runs_under_torchrun():
    with tempfile.TemporaryDirectory() as logs:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--log-dir", logs, str(EXAMPLE), "--steps", "20"]
        done = subprocess.run(command, env=environment(), text=True, capture_output=True, timeout=stretched(120))
    assert done.returncode == 0 and "loss" in done.stdout, done


def test_an_exception_of_one_rank_ends_the_job():
    script = """
import torch, torch.distributed as dist, cohort
dist.init_process_group("cohort")
if dist.get_rank() == 1:
    raise KeyError("the reason")
dist.all_reduce(torch.ones(1))
dist.all_reduce(torch.ones(1))
"""
    done = launch(2, script, timeout=30)
    assert done.returncode != 0 and "the reason" in done.stderr, done
