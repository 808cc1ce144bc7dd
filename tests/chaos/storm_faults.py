"""Faults of the storm: function(run, job), which brings one about and waits for what tells that it has happened. A fault that lasts ends with another."""
import os
import shutil
import signal
import time

from coordinators import alive
from isolated import reset_connections
from jobs import SLOWDOWN, wait_until
from left_behind import others, tell

LOST_AFTER = 1.0  # as the launches are told
MOST_COORDINATORS, WITHIN = 4, 70.0  # its supervisor gives up after six ends within a minute


def worker_killed(run, job):
    tell(run.rng.choice(job.await_workers()), signal.SIGKILL)


def rank0_killed(run, job):
    tell(job.rank0(), signal.SIGKILL)


def several_killed(run, job):
    there = job.await_workers()
    for pid in run.rng.sample(there, max(1, len(there) - 1)):
        tell(pid, signal.SIGKILL)


def all_killed(run, job):
    """The job begins again from its newest checkpoint, or without one."""
    for pid in job.await_workers():
        tell(pid, signal.SIGKILL)


def paused(run, job):
    """For less time than is taken for a loss."""
    pid = run.rng.choice(job.await_workers())
    tell(pid, signal.SIGSTOP)
    time.sleep(run.rng.uniform(0.1, 0.4) * LOST_AFTER)
    tell(pid, signal.SIGCONT)


def stopped(run, job):
    """Until it is evicted, or for as long where it has not joined yet. Resumed it does no harm."""
    pid, mark, end = run.rng.choice([job.rank0(), run.rng.choice(job.await_workers())]), len(job.log()), time.monotonic() + 3 * LOST_AFTER * SLOWDOWN
    tell(pid, signal.SIGSTOP)
    wait_until("it is evicted", lambda: job.said(rf"process {pid} on \S+\) is lost", mark) or time.monotonic() > end or job.ended())
    tell(pid, signal.SIGCONT)


def preempted(run, job):
    pid = run.rng.choice(job.await_workers())
    tell(pid, run.rng.choice([signal.SIGUSR1, signal.SIGTERM]))
    wait_until("it ends", lambda: not alive([pid]) or job.ended())


def one_more(run, job):
    job.process.send_signal(signal.SIGUSR2)


def coordinator_killed(run, job):
    run.coordinator_ends.append(time.monotonic())
    wait_until("a coordinator", lambda: job.coordinator() or job.ended())
    tell(job.coordinator(), signal.SIGKILL)


def coordinator_stopped(run, job):
    """Its supervisor notices, kills it and starts another."""
    run.coordinator_ends.append(time.monotonic())
    wait_until("a coordinator", lambda: job.coordinator() or job.ended())
    stopped_pid = job.coordinator()
    tell(stopped_pid, signal.SIGSTOP)
    wait_until("another coordinator", lambda: job.coordinator() not in (None, stopped_pid) or job.ended())


def launcher_stopped(run, job):
    """For less time than workers wait for it; without a supervisor it is the coordinator."""
    pid = job.launcher()
    tell(pid, signal.SIGSTOP)
    time.sleep(run.rng.uniform(0.1, 3) * LOST_AFTER)
    tell(pid, signal.SIGCONT)


def connections_reset(run, job):
    reset_connections(True)
    time.sleep(run.rng.uniform(0.02, 0.8) * LOST_AFTER)
    reset_connections(False)


def disk_full(run, job):
    if os.path.exists(run.disk.ballast):
        return run.disk.free()
    run.disk.fill()


def port_taken(run, job):
    """By another program, where rank 0 does not have it; or it is free again."""
    if run.port.listener.fileno() >= 0:
        return run.port.close()
    try:
        run.port.take()
    except OSError:  # rank 0 has it
        pass


def data_changed(run, job):
    """A replacement that reads other rows is refused; then the file is what it was. One that was about to join may have read the old ones. Rank 0 stays: a
    job that has nobody left who read the old ones, and no checkpoint of them, begins with the new ones."""
    job.await_progress()
    rows, mark = run.rows(), len(job.log())
    del rows[run.rng.randrange(len(rows))]
    run.write_table(rows)
    refused = lambda: job.said(r"(the data differ: data\.train|another training set:) .*number of samples: ", mark) or job.ended()
    try:
        for _ in range(5):  # where all places are taken those that are asked for are spares, which are not compared
            first = job.rank0()
            others_than_first = [pid for pid in job.await_workers() if pid != first]
            if others_than_first:
                tell(run.rng.choice(others_than_first), signal.SIGKILL)
            else:
                job.process.send_signal(signal.SIGUSR2)
            end = time.monotonic() + 4 * LOST_AFTER * SLOWDOWN
            wait_until("other data are refused", lambda: refused() or time.monotonic() > end)
            if refused():
                return
        raise AssertionError("no worker with other data was refused")
    finally:
        run.write_table(run.rows())


def checkpoints_removed(run, job):
    shutil.rmtree(run.runs.path("run") + "/checkpoints", ignore_errors=True)


def second_job(run, job):
    """The same command again, also one that would begin anew: refused, with nothing changed."""
    sets = {**job.sets, "checkpoint__resume": run.rng.choice(["auto", "never"])}
    said = run.runs.call(run.runs.command("run", 2, **sets) + ["--min-n", "1"], status=2).stderr
    assert "belongs to a run that goes on: process " in said, said


def may_lose_coordinator(run):
    recent = [at for at in run.coordinator_ends if time.monotonic() - at < WITHIN]
    return run.supervised and len(recent) < MOST_COORDINATORS


# Name: how often, beside the others; what; when it may be.
FAULTS = {
    "a worker is killed": (4, worker_killed, None),
    "rank 0 is killed": (3, rank0_killed, None),
    "all but one are killed": (2, several_killed, None),
    "all are killed": (1, all_killed, None),
    "a worker is paused": (2, paused, None),
    "a worker is stopped and resumed": (2, stopped, None),
    "a worker is preempted": (2, preempted, None),
    "one more": (3, one_more, None),
    "the coordinator is killed": (3, coordinator_killed, may_lose_coordinator),
    "the coordinator is stopped": (1, coordinator_stopped, may_lose_coordinator),
    "the launcher is stopped and resumed": (1, launcher_stopped, lambda run: not run.supervised),
    "connections are reset": (3, connections_reset, None),
    "the disk is full, or has room": (4, disk_full, None),
    "the metrics port is taken, or free": (2, port_taken, None),
    "data change": (1, data_changed, None),
    "checkpoints/ is removed": (1, checkpoints_removed, None),
    "a second job": (1, second_job, None),
}


def draw(run):
    """The next fault of a run."""
    names = [name for name, (_, _, may) in FAULTS.items() if may is None or may(run)]
    return run.rng.choices(names, [FAULTS[name][0] for name in names])[0]


def end_lasting_faults(run, job):
    """Everything that lasts has an end."""
    reset_connections(False)
    run.disk.free()
    for pid in others():
        tell(pid, signal.SIGCONT)
