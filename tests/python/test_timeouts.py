"""Every wait for other ranks ends after COHORT_TIMEOUT, on every rank that waits, naming the missing ranks and what each did last."""
import pytest

from launch import SLOWDOWN, launch

LIMIT = {"COHORT_TIMEOUT": f"{0.5 * SLOWDOWN:g}"}

HEAD = """
import os, pathlib, signal, sys, threading, time
import torch, cohort.torch as hvd
folder = pathlib.Path(sys.argv[1])
def until(name):
    while not (folder / name).exists(): time.sleep(0.01)
"""

CASES = HEAD + """
def case(title, work, both=False, **env):
    os.environ.update(env)
    hvd.init(process_sets="dynamic")
    hvd.allreduce(torch.ones(1), name="first")
    if both or hvd.rank() == 0:
        try:
            work()
        except hvd.HorovodInternalError as error:
            print(f"{title}, rank {hvd.rank()}:", str(error).replace("\\n", "; "), flush=True)
        (folder / title).touch()
    until(title)
    hvd.shutdown()
mismatch = lambda: hvd.allreduce(torch.ones(1), name=f"only {hvd.rank()}")
case("names", mismatch, both=True)
case("barrier", hvd.barrier)
case("join", hvd.join)
case("commit", lambda: hvd.elastic.TorchState(epoch=0).commit())
case("set", lambda: hvd.add_process_set([0]))
case("disabled", mismatch, both=True, HOROVOD_STALL_CHECK_DISABLE="1", HOROVOD_STALL_CHECK_TIME_SECONDS="0.01",
     HOROVOD_STALL_SHUTDOWN_TIME_SECONDS="0.01")
print("disabled is over", file=sys.stderr, flush=True)
case("horovod", mismatch, both=True, COHORT_TIMEOUT="3000", HOROVOD_STALL_CHECK_DISABLE="0",
     HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=os.environ["COHORT_TIMEOUT"])
"""


def test_what_some_ranks_call_alone_ends_and_the_missing_are_named(tmp_path):
    done = launch(2, CASES, tmp_path, env=LIMIT)
    said = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    output = done.stdout + done.stderr
    for rank in range(2):
        for title, variable in (("names", "COHORT_TIMEOUT"), ("disabled", "COHORT_TIMEOUT"),
                                ("horovod", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS")):
            line = said[f"{title}, rank {rank}"]
            assert "Missing ranks:; 0: [allreduce.only 1]; 1: [allreduce.only 0]" in line, output
            assert "Last submitted:; 0: allreduce.only 0; 1: allreduce.only 1" in line and f"({variable}) has passed" in line, output
    assert "1: [barrier.noname.0.0]; Last submitted:; 0: barrier.noname.0.0; 1: allreduce.first" in said["barrier, rank 0"], output
    assert "rank 0 called join and rank 1 did not" in said["join, rank 0"], output
    assert "Missing ranks:; 1: [broadcast." in said["commit, rank 0"], output
    assert "split 'process set [0]'" in said["set, rank 0"] and "missing: rank 1" in said["set, rank 0"], output
    before, after = done.stderr.split("disabled is over", 1)
    assert "for more than 10 ms" not in before and "for more than 10 ms" in after, output


STOPPED = HEAD + """
hvd.init()
if hvd.rank() == 0:
    (folder / "pid").write_text(str(os.getpid()))
    hvd.barrier()
    signal.raise_signal(signal.SIGSTOP)
else:
    hvd.barrier()
    pid = int((folder / "pid").read_text())
    while pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "T": time.sleep(0.01)
    try:
        hvd.allreduce(torch.ones(1), name="unanswered")
    except hvd.HorovodInternalError as error:
        print(error, flush=True)
    os.kill(pid, signal.SIGCONT)
"""


def test_a_rank_0_that_is_stopped_is_named(tmp_path):
    done = launch(2, STOPPED, tmp_path, env=LIMIT)
    assert "'allreduce.unanswered' waits for an answer of rank 0" in done.stdout, done.stdout + done.stderr


C10D = HEAD + """
import datetime, torch.distributed as dist, cohort
dist.init_process_group("cohort")
limit = datetime.timedelta(seconds=float(os.environ["COHORT_TIMEOUT"]))
os.environ["COHORT_TIMEOUT"] = "3000"
chosen = dist.new_group(timeout=limit)
dist.barrier()
for name, group in (("by variable", dist.group.WORLD), ("by argument", chosen)):
    if dist.get_rank() > 0: break
    try:
        dist.all_reduce(torch.ones(3), group=group)
    except dist.DistBackendError as error:
        print(name, error, flush=True)
(folder / "ended").touch() if dist.get_rank() == 0 else None
until("ended")
"""


def test_a_collective_of_torch_distributed_ends_too(tmp_path):
    """The timeout that the program gives torch wins; where it gives none, COHORT_TIMEOUT does."""
    done = launch(2, C10D, tmp_path, env=LIMIT)
    lines = done.stdout.splitlines()
    assert [line[:11] for line in lines] == ["by variable", "by argument"], done.stdout + done.stderr
    for line in lines:
        assert "all_reduce of 3 f32, sum" in line and "on rank 0: the deadline passed; missing: rank 1" in line, done.stdout + done.stderr


@pytest.mark.parametrize("value", ["soon", "-1", "nan", "inf"])
def test_times_that_cannot_be_are_refused(value, monkeypatch):
    import cohort.torch as hvd

    monkeypatch.setenv("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", value)
    with pytest.raises(ValueError, match=f"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS={value}: seconds, from 0 to 1e9, are expected"):
        hvd.init()


SHUTDOWN = HEAD + """
hvd.init()
one = torch.ones(4)
works = dict(allreduce=lambda: hvd.allreduce(one), allreduce_=lambda: hvd.allreduce_(one.clone()), allgather=lambda: hvd.allgather(one),
             alltoall=lambda: hvd.alltoall(one), broadcast=lambda: hvd.broadcast(one, 0), group=lambda: hvd.grouped_allreduce([one]),
             reducescatter=lambda: hvd.reducescatter(one), barrier=hvd.barrier, handle=lambda: hvd.synchronize(hvd.allreduce_async(one)))
outcomes = {}
def call(name, work):
    for when in ("during", "after"):
        try:
            outcomes[f"{name} {when}"] = f"result {work()}"
        except Exception as error:
            outcomes[f"{name} {when}"] = f"{type(error).__name__}: {error}"
if hvd.rank() == 0:
    threads = [threading.Thread(target=call, args=item) for item in works.items()]
    for thread in threads: thread.start()
    waits = lambda thread: sys._current_frames()[thread.ident].f_code.co_filename.endswith("handles.py")
    while not all(waits(thread) for thread in threads): time.sleep(0.01)
    shutdown = threading.Thread(target=hvd.shutdown)  # it waits for rank 1
    shutdown.start()
    for thread in threads: thread.join()
    for name, text in outcomes.items(): print(name, text.replace("\\n", "; "), flush=True)
    (folder / "over").touch()
    shutdown.join()
until("over")
"""


def test_threads_that_wait_while_another_shuts_down_get_a_sentence(tmp_path):
    done = launch(2, SHUTDOWN, tmp_path)
    lines = done.stdout.splitlines()
    assert len(lines) == 18 and done.returncode == 0, done.stdout + done.stderr
    for line in lines:
        if " after " in line:
            assert "ValueError: Horovod has not been initialized" in line, done.stdout
        else:
            assert "HorovodInternalError: hvd.shutdown() was called on this rank, by another thread, while" in line, done.stdout
