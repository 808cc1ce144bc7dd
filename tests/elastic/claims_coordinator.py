"""Elastic jobs whose coordinator, supervisor or launcher is killed."""
import random
import re
import signal
import time

from coordinators import SupervisedJob, SupervisedVectorJob, alive, descendants
from jobs import FOR_EVER, SLOWDOWN, Runs, wait_until


def coordinated(programs, scratch):
    """--supervised, kill -9 of the coordinator: it is restarted, and the epoch continues undisturbed. Together with a worker: the others continue
    and one replacement joins. A worker that left of its own will before is not replaced by the restarted coordinator."""
    rng = random.Random(3)
    with SupervisedVectorJob(programs, scratch, "run", n=3, least=1, flags=["--supervised"], steps=FOR_EVER) as job:
        job.await_step(20)
        for _ in range(2):
            job.await_step(job.step() + rng.randrange(1, 60))
            at, again = job.kill_coordinator()
            print(f"another coordinator after {again - at:.3f} s, a step after {job.await_next_step() - at:.3f} s")
            wait_until("all are back", lambda: job.said("all 3 workers of membership epoch 1 are back: training continues"))
        assert job.epoch() == 1 and job.steps_lost() == 0, job.log()
        at, _ = job.kill_coordinator([rng.choice(job.workers())])
        print(f"with a worker: the next epoch after {job.await_epoch_after(1) - at:.3f} s, {job.steps_lost()} steps again")
        assert job.steps_lost() <= 1, job.log()
        job.await_size(3)
        job.kill(job.workers()[0], signal.SIGUSR1)
        job.await_size(2)
        before = job.epoch()
        job.kill_coordinator()
        wait_until("both are back", lambda: job.said(f"all 2 workers of membership epoch {before} are back"))
        job.await_step(job.step() + 50)
        assert job.epoch() == before and len(job.workers()) == 2, job.log()
        job.process.send_signal(signal.SIGTERM)
        job.ends()
        assert job.said(r"the coordinator \(process \d+\) ended: killed by SIGKILL; it is started again \(1 of at most 5 times"), job.log()
        job.judge()


def given_up(programs, scratch):
    """A coordinator that dies repeatedly is given up, which is logged; its workers end by themselves, and no process is left."""
    with SupervisedVectorJob(programs, scratch, "run", n=2, least=1, flags=["--supervised"], steps=FOR_EVER) as job:
        job.await_step(20)
        processes_before = descendants(job.process.pid)
        for _ in range(5):
            job.kill_coordinator()
        job.kill(job.coordinator())
        at = time.monotonic()
        job.ends(status=1)
        print(f"over after {time.monotonic() - at:.2f} s")
        assert job.said("the coordinator ended 6 times within 60 s, the last time killed by SIGKILL: it is given up"), job.log()
        assert not alive(processes_before), job.log()


def unsupervised_end(job, pid, limit):
    """Kills it, and waits until no process of the job is left; returns how long that took."""
    processes_before = descendants(job.process.pid) + [job.process.pid]
    at = job.kill(pid)
    job.process.poll()
    wait_until("no process is left", lambda: (job.process.poll(), not alive(processes_before))[1])
    took = time.monotonic() - at
    assert took < limit * SLOWDOWN, f"{took} s\n{job.log()}"
    return took


def cleared(programs, scratch):
    """kill -9 of the supervisor, or of the front process: no process is left within two seconds. Without --supervised the same, of workers that
    are programs of one's own."""
    for name, flags, front in (("a", ["--supervised"], False), ("b", ["--supervised"], True), ("c", [], False), ("d", [], True)):
        with SupervisedVectorJob(programs, scratch, name, n=2, least=1, flags=flags, steps=FOR_EVER) as job:
            job.await_step(20)
            took = unsupervised_end(job, job.process.pid if front else job.launcher(), 2)
            print(f"{'front' if front else 'launcher'} {' '.join(flags)}: no process left after {took:.2f} s")


def supervised(programs, scratch):
    """`cohort train --supervised`: the coordinator killed at random moments, and once with a worker: the bits of a run without faults."""
    rng = random.Random(4)
    with SupervisedJob(programs, scratch, "run", n=3, least=2, flags=["--supervised"], steps=FOR_EVER, optimizer="adam(lr=1e-3)") as job:
        job.await_step(20)
        for kill in range(2):
            job.await_size(3)
            job.await_step(job.step() + rng.randrange(1, 30))
            epoch, lost = job.epoch(), job.steps_lost()
            at, _ = job.kill_coordinator([rng.choice(job.workers())] if kill else [])
            took = (job.await_epoch_after(epoch) if kill else job.await_next_step()) - at
            print(f"coordinator{' and worker' if kill else ''}: next step after {took:.2f} s, {job.steps_lost() - lost} steps again")
            assert took <= 5 * SLOWDOWN and job.steps_lost() - lost <= kill, job.log()
        job.await_size(3)
        job.await_step(job.step() + 20)
        job.stops()
        job.judge()
        job.same_as_replay()
    runs = Runs(programs, scratch)
    done = runs.call(runs.command("fixed", 2) + ["--supervised"], status=2)
    assert "--supervised without --min-n" in done.stderr, done.stderr


def silent(programs, scratch):
    """The launcher is stopped: workers train on, and after --wait-limit they stop after the same step, rank 0 saves and all end with 1. Resumed before that
    it goes on as if nothing had been; resumed later it ends, and the next run continues after the step that was saved."""
    with SupervisedJob(programs, scratch, "run", n=2, least=1, flags=["--wait-limit", "3s", "--respawns", "0"], steps=FOR_EVER) as job:
        job.await_step(20)
        launcher = job.launcher()
        job.kill(launcher, signal.SIGSTOP)
        job.await_step(job.step() + 20)
        job.kill(launcher, signal.SIGCONT)
        job.await_step(job.step() + 20)
        assert job.epoch() == 1, job.log()
        workers = job.workers()
        job.kill(launcher, signal.SIGSTOP)
        wait_until("the workers end", lambda: not alive(workers))
        job.kill(launcher, signal.SIGCONT)
        job.ends(status=1)
        step = job.step()
        assert job.said(rf"saved update {step} in "), job.log()
        assert job.said(r"worker [01] \(rank [01]\) warning: the coordinator of .* has not answered for 3 s: it is stopped, or hangs"), job.log()
        assert len(set(re.findall(r"worker (\d) \(rank \d\) \(process \d+\) ended: exit status 1", job.log()))) == 2, job.log()
        assert job.epoch() == 1 and job.steps_lost() == 0, job.log()
        job.judge()
        again = job.runs.train("run", n=2, **{**job.sets, "steps": step + 5})
        assert f"goes on after update {step}\n" in again.stdout, again.stdout


def orphaned(programs, scratch):
    """Without --supervised, kill -9 of the launcher or of the front process: workers finish their step, one saves it, all have ended within ten seconds; started
    again the run continues after that step."""
    for name, front in (("launcher", False), ("front", True)):
        with SupervisedJob(programs, scratch, name, n=3, least=1, steps=FOR_EVER) as job:
            job.await_step(50)
            took = unsupervised_end(job, job.process.pid if front else job.launcher(), 10)
            step = job.step()
            print(f"{name} killed: no process left after {took:.2f} s, step {step}")
            job.judge()
            again = job.runs.train(name, n=3, **{**job.sets, "steps": step + 5})
            assert f"goes on after update {step}\n" in again.stdout, again.stdout
