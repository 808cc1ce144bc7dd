"""Points of a training step at which a process can be killed, found from outside: by the history that workers write, by a worker's answer to
SIGQUIT, by /proc and by the folder of checkpoints. Each function waits for its point and returns the process to kill, which is stopped there (or
waits for one that is), and what to do once it has ended."""
import glob
import os
import signal
import time

from runs import LIMIT

TRIES = 400  # to find a point that passes quickly


def state(pid):
    """R, S, T .. of a process, and the system call that its first thread is in; -1: none, it computes."""
    try:
        with open(f"/proc/{pid}/stat") as stat, open(f"/proc/{pid}/syscall") as call:
            return stat.read().rsplit(")", 1)[1].split()[0], call.read().split()[0]
    except OSError:
        return "X", ""


def hold(pid):
    os.kill(pid, signal.SIGSTOP)
    end = time.monotonic() + LIMIT
    while state(pid)[0] not in "TX":
        assert time.monotonic() < end, f"process {pid} cannot be stopped"


def anywhere(chaos, job):
    job.await_step(job.step() + 1)
    end = time.monotonic() + chaos.rng.random() * 0.03
    while time.monotonic() < end:
        pass
    return chaos.rng.choice(job.members()), lambda: None


def begins_a_step(job, pid):
    """Waits for it; returns when."""
    begun, end = job.step_of(pid), time.monotonic() + LIMIT
    while job.step_of(pid) == begun:
        assert time.monotonic() < end, job.log()
    return time.monotonic()


def computing(chaos, job):
    """Between the beginning of a step and the first message to the others: forward or backward."""
    pid = chaos.rng.choice(job.members())
    for _ in range(TRIES):
        begins_a_step(job, pid)
        hold(pid)
        if state(pid)[1] == "-1" and job.last_event(pid) == "start":
            return pid, lambda: None
        os.kill(pid, signal.SIGCONT)
    raise AssertionError(f"process {pid} was never seen to compute")


def waiting_in(chaos, job, words, earliest, latest):
    """One rank is stopped in this part of a step, so that another waits in this operation, and logs so."""
    for _ in range(TRIES):
        held, pid = chaos.rng.sample(job.members(), 2)
        a_step = -begins_a_step(job, held) + begins_a_step(job, held)
        time.sleep(chaos.rng.uniform(earliest, latest) * a_step)
        hold(held)
        mark = len(job.log())
        os.kill(pid, signal.SIGQUIT)
        end = time.monotonic() + 0.3  # well before heartbeats are missed
        while not (answer := job.said(r"info: step .*", mark)) and time.monotonic() < end:
            time.sleep(0.002)
        if answer and words in answer[0]:
            return pid, lambda: os.kill(held, signal.SIGCONT)
        os.kill(held, signal.SIGCONT)
    raise AssertionError(f"no process was ever seen in {words}:\n{job.log()[-2000:]}")


def all_reducing(chaos, job):
    return waiting_in(chaos, job, "in all_reduce 'bucket", 0, 0.8)


def voting(chaos, job):
    """All gradients are reduced, and the step is being voted on."""
    return waiting_in(chaos, job, "in all_reduce 'the vote for this step'", 0.5, 1.0)


def saving(chaos, job):
    """Rank 0, while a checkpoint is incomplete."""
    unfinished = lambda: glob.glob(job.runs.path(job.name) + "/checkpoints/.tmp-*")
    for _ in range(TRIES):
        pid, end = job.pid_of(0), time.monotonic() + LIMIT
        while not unfinished():
            assert time.monotonic() < end, "no checkpoint begins:\n" + job.log()
        hold(pid)
        if unfinished():
            return pid, lambda: None
        os.kill(pid, signal.SIGCONT)
    raise AssertionError("no checkpoint was ever seen incomplete")


MOMENTS = {"anywhere": anywhere, "computing": computing, "in an all-reduce": all_reducing, "voting": voting, "saving": saving}
