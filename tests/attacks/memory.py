"""Workers in a memory cgroup (version 1) that is too small, or under a limit on address space."""
import os
import re
import signal
import subprocess
import sys

from clocks import worker
from jobs import FOR_EVER, Job, Runs, wait_until

ROOT = "/sys/fs/cgroup/memory"
LARGE = {"model": "mlp(in=784, hidden=3000x3000, out=10)"}
KILLED = r"killed by SIGKILL, probably for want of memory: the kernel killed a process of its host for that; raise the memory limit or run fewer ranks"


class MemoryGroup:
    """A cgroup of so many MiB."""

    def __init__(self, mib):
        self.path = f"{ROOT}/cohort-attack-{os.getpid()}"
        os.mkdir(self.path)
        self.put("memory.limit_in_bytes", mib << 20)

    def put(self, name, value):
        with open(f"{self.path}/{name}", "w") as file:
            file.write(str(value))

    def entered(self):
        return ["sh", "-c", f'if [ "$COHORT_RANK" = 1 ]; then echo $$ > {self.path}/cgroup.procs; echo 1000 > /proc/$$/oom_score_adj; fi; exec "$@"', "sh"]

    def kills(self):
        with open(f"{self.path}/memory.oom_control") as file:
            return int(re.search(r"oom_kill (\d+)", file.read())[1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with open(f"{self.path}/cgroup.procs") as file:
            for pid in file.read().split():
                os.kill(int(pid), signal.SIGKILL)
        wait_until("the group is empty", lambda: not open(f"{self.path}/cgroup.procs").read())
        os.rmdir(self.path)


def small_group(programs, scratch):
    """The kernel kills a rank whose cgroup has too little memory: the job ends with its status, and says for what it was probably killed."""
    runs = Runs(programs, scratch)
    with MemoryGroup(120) as group:
        done = runs.call([runs.cohort, "run", "-n", "2", "--", *group.entered(), *worker(runs, "run", **LARGE)], status=128 + signal.SIGKILL)
        assert group.kills() == 1, done.stderr
    assert re.search("rank 1 failed first: " + KILLED, done.stderr), done.stderr


class GroupJob(Job):
    """Its worker 1 is in a cgroup."""

    def __init__(self, programs, folder, group):
        self.group = group
        super().__init__(programs, folder, "run", 3, 2, 3, steps=FOR_EVER)

    def words(self, n, limits):
        return [self.runs.cohort, "run", "-n", str(n), *limits, "--", *self.group.entered(), *worker(self.runs, self.name, **self.sets)]


# In the worker's group; of the two the worker is chosen to be killed: its oom_score_adj is 1000.
NEIGHBOUR = """
import signal, sys
taken = []
while "oom_kill 0" in open(sys.argv[1] + "/memory.oom_control").read():
    taken.append(bytearray(b"x" * (1 << 20)))
signal.pause()
"""


def crowded_group(programs, scratch):
    """A process beside a worker of an elastic job takes the memory of their cgroup, and the kernel kills the worker: that is said, another is started, and
    the others go on to the bits of a run without faults."""
    with MemoryGroup(400) as group, GroupJob(programs, scratch, group) as job:
        job.await_size(3)
        job.await_step(20)
        before = job.epoch()
        neighbour = subprocess.Popen(["sh", "-c", f'echo $$ > {group.path}/cgroup.procs; exec "$@"', "sh", sys.executable, "-c", NEIGHBOUR, group.path])
        try:
            job.await_epoch_after(before)
            wait_until("it is told", lambda: job.said(r"worker 1 \(rank \d\) \(process \d+\) ended: " + KILLED))
        finally:
            neighbour.kill()
            neighbour.wait(30)
        job.await_size(3)
        job.await_step(job.step() + 20)
        job.stops()
        assert group.kills() >= 1
        job.judge()
        job.same_as_replay()


def limited(mib):
    return ["sh", "-c", f'if [ "$COHORT_RANK" = 1 ]; then ulimit -v {mib << 10}; fi; exec "$@"', "sh"]


# The loader, torch's allocator and oneDNN, which has no other words, and our own.
NO_MEMORY = "cannot allocate memory|not enough memory|can't allocate memory|bad_alloc|failed to map segment|could not create a primitive"


def address_space(programs, scratch):
    """One rank may not map as much memory as it needs, so that an allocation fails, ever later: it ends with a status of its own, is named as the first, its
    cause is printed last, and no other rank is left."""
    runs = Runs(programs, scratch)
    ended = []
    for mib in range(400, 1000, 60):
        words = [runs.cohort, "run", "-n", "2", "--", *limited(mib), *worker(runs, f"run-{mib}", **LARGE)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=90, env=runs.env, cwd=scratch)
        if done.returncode == 0:
            break
        assert done.returncode in (1, 127, 134), f"{mib} MiB, status {done.returncode}: {done.stderr}"
        assert re.search("rank 1 failed first: (exit status|killed by SIGABRT)", done.stderr), done.stderr  # SIGABRT: before main()
        cause = done.stderr[done.stderr.rindex("its last lines on stderr:"):]
        assert re.search(NO_MEMORY, cause, re.IGNORECASE), done.stderr
        ended.append((mib, cause.splitlines()[-1].strip()))
    assert len(ended) > 2, ended
    print(*ended, sep="\n")
