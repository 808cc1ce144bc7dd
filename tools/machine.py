#!/usr/bin/env python3
"""What this machine can take right now: `machine.py jobs|slots|factor` prints one number.

    jobs    compilers at a time: one for each core, as far as memory goes
    slots   places for tests at a time (tools/run_tests.py): two for each core, as tests wait a lot, as far as memory goes
    factor  by how much the limits in tests are stretched: COHORT_TEST_SLOWDOWN where it is set, else 5, the factor of an idle
            machine, times how much slower than that this one is at computing, starting processes and waking them
"""
import os
import subprocess
import sys
import time

GIB = 1 << 30
COMPILER = 2.0 * GIB     # g++ on a file that includes all of torch
SLOT = 0.75 * GIB        # half of a job of two to four ranks with torch
IDLE, MOST = 5.0, 20.0   # factors: an idle machine's (tests run beside each other), and where waiting longer proves nothing more
# Seconds that each probe takes on an idle virtual machine of two cores, where a wakeup crosses from one core to the other.
REFERENCE = {"computing": 0.05, "starting": 0.055, "waking": 0.25}


def first_number(path):
    """The first number of a file that may not be there; None for "max" and for limits that are none (negative)."""
    try:
        with open(path) as file:
            number = int(file.read().split()[0])
    except (OSError, ValueError, IndexError):
        return None
    return number if number >= 0 else None


def cores():
    count = len(os.sched_getaffinity(0))
    for quota, period in (("cpu.max", None), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):  # control groups, new and old
        granted = first_number(f"/sys/fs/cgroup/{quota}")
        each = 100_000 if period is None else first_number(f"/sys/fs/cgroup/{period}")
        if granted and each:
            count = min(count, max(1, round(granted / each)))
    return count


def memory():
    """Bytes that can be had without swapping."""
    with open("/proc/meminfo") as file:
        free = next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable:"))
    for limit, used in (("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes")):
        most, now = first_number(f"/sys/fs/cgroup/{limit}"), first_number(f"/sys/fs/cgroup/{used}")
        if most is not None and now is not None:
            free = min(free, max(0, most - now))
    return free


def jobs():
    return max(1, min(cores(), int(memory() / COMPILER)))


def slots():
    return max(1, min(2 * cores(), int(memory() / SLOT)))


def compute():
    """Every core at once: a neighbour on one of them shows."""
    children = []
    for _ in range(cores()):
        child = os.fork()
        if child == 0:
            sum(i * i for i in range(1_500_000))
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)


def start():
    for _ in range(100):
        subprocess.run(["/bin/true"], check=True)


def wake():
    """Two processes that wake each other in turn."""
    (there, to), (back, answer) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.close(to)
        while os.read(there, 1):
            os.write(answer, b".")
        os._exit(0)
    for _ in range(10_000):
        os.write(to, b".")
        os.read(back, 1)
    os.close(to)
    os.waitpid(child, 0)
    for end in (there, back, answer):
        os.close(end)


def slowness():
    """{probe: seconds / those of the reference}."""
    found = {}
    for name, probe in (("computing", compute), ("starting", start), ("waking", wake)):
        begin = time.monotonic()
        probe()
        found[name] = (time.monotonic() - begin) / REFERENCE[name]
    return found


def factor():
    told = os.environ.get("COHORT_TEST_SLOWDOWN")
    if told:
        return float(told)
    return round(min(MOST, IDLE * max(1.0, *slowness().values())), 1)


if __name__ == "__main__":
    asked = {"jobs": jobs, "slots": slots, "factor": factor}.get(sys.argv[1] if len(sys.argv) == 2 else "")
    if asked is None:
        sys.exit(__doc__)
    print(asked())
