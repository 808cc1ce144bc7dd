"""Row 3 of the list of faults: the coordinator is killed at any moment of a `cohort train --supervised`, alone or together with a worker.

Training continues within 5 s and at most one step is computed again: none where the coordinator alone was killed, since it takes no part in a step. A job
takes four such faults (a supervisor gives up after the sixth within a minute); then its history is judged and its parameters are compared, bit for bit,
with a run without faults with the same numbers of ranks at the same steps. Every fifth job runs without a supervisor instead and its launcher is killed: its
workers must have ended within 10 s and have saved the last step.
"""
import os
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "elastic"))
from coordinators import SupervisedJob, alive, descendants  # noqa: E402
from jobs import FOR_EVER, wait_until  # noqa: E402

CONTINUES, ENDED = 5.0, 10.0
FAULTS_A_JOB = 4  # below what the supervisor allows within a minute


def scale(chaos):
    return getattr(chaos, "scale", 1.0)  # of limits in seconds, on a machine with other load


def outcome(chaos, fault, detect, recover, lost, ok):
    return {"fault": fault, "seed": chaos.seed, "detect_s": round(detect, 4), "recover_s": round(recover, 4), "steps_lost": lost, "ok": ok}


def kill_once(chaos, job, with_worker):
    job.await_size(3)
    job.await_step(job.step() + chaos.rng.randrange(1, 60))
    time.sleep(chaos.rng.random() * 0.02)  # anywhere in a step
    epoch, lost = job.epoch(), job.steps_lost()
    at, again = job.kill_coordinator([chaos.rng.choice(job.workers())] if with_worker else [])
    recover = (job.await_epoch_after(epoch) if with_worker else job.await_next_step()) - at
    lost = job.steps_lost() - lost
    fault = "3 coordinator and a worker killed" if with_worker else "3 coordinator killed"
    return outcome(chaos, fault, again - at, recover, lost, recover <= CONTINUES * scale(chaos) and lost <= (1 if with_worker else 0))


def supervised(chaos, faults):
    tries, why = [], ""
    with tempfile.TemporaryDirectory(prefix="cohort-chaos-") as folder:
        flags = ["--supervised", "--respawns", "100000"]
        with SupervisedJob(chaos.programs, folder, "coordinator", 3, 1, 3, flags, steps=FOR_EVER) as job:
            try:
                job.await_size(3)
                tries += [kill_once(chaos, job, chaos.rng.random() < 0.5) for _ in range(faults)]
                job.await_size(3)
                job.stops()
                job.judge()
                job.same_as_replay()
            except AssertionError as broken:
                why = str(broken)
    tries += [outcome(chaos, "3 coordinator killed", 0, 0, 0, False)] if why and not tries else []
    for t in tries:
        t.update({"ok": False, "why": why[-2000:]} if why else {})
    chaos.write(tries)


def launcher_lost(chaos):
    with tempfile.TemporaryDirectory(prefix="cohort-chaos-") as folder:
        with SupervisedJob(chaos.programs, folder, "launcher", 3, 1, 3, steps=FOR_EVER) as job:
            took, why = 0.0, ""
            try:
                job.await_size(3)
                job.await_step(job.step() + chaos.rng.randrange(10, 60))
                time.sleep(chaos.rng.random() * 0.02)
                processes_before = descendants(job.process.pid)
                at = job.kill(job.launcher())
                wait_until("no process is left", lambda: not alive(processes_before))
                took = time.monotonic() - at
                step = job.step()
                job.judge()
                again = job.runs.train("launcher", n=3, **{**job.sets, "steps": step + 5})
                assert f"goes on after update {step}\n" in again.stdout, f"step {step} was not saved: {again.stdout}"
            except AssertionError as broken:
                why = str(broken)
    done = outcome(chaos, "3 launcher killed, no supervisor", 0, took, 0, took <= ENDED * scale(chaos) and not why)
    chaos.write([{**done, "why": why[-2000:]} if why else done])


def row3(chaos, tries):
    while tries > 0 and chaos.in_time():
        faults = min(FAULTS_A_JOB, tries)
        supervised(chaos, faults)
        tries -= faults
        if tries > 0:
            launcher_lost(chaos)
            tries -= 1


ROWS = {"3": row3}
