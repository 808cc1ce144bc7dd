"""Workers of an elastic training run that are lost, leave, stop and join. A job takes several faults; at its end its history is checked and its
parameters are compared, bit for bit, with a run without faults with the same numbers of ranks at the same steps. A job that fails there makes all
its tries fail. 1 one worker killed, 2 all but one killed, 6 preempted, 7 stopped and resumed, 28 more and fewer."""
import os
import signal
import tempfile
import time

from jobs import FOR_EVER, Job, wait_until
from moments import MOMENTS

RANKS = 4
FAULTS_A_JOB = 5
DETECT, DETECT_A_GIB, RECOVER, REJOIN, LOST_AFTER = 0.2, 0.15, 3.0, 5.0, 1.0
# Steps of some milliseconds, so that a fault can hit each of their parts; a checkpoint of some megabytes every few of them.
SETTINGS = {"model": "mlp(in=784, hidden=256x256, out=10)", "data__train": "synthetic(samples=8192)", "data__batch": 32, "steps": FOR_EVER,
            "checkpoint__every_steps": 25, "checkpoint__keep": 1}


class Watched(Job):
    """A job of which single processes are watched."""

    def members(self):
        found = []

        def all_have_written():
            lines = self.newest_lines()
            newest = [line for line in lines.values() if line["epoch"] == max(other["epoch"] for other in lines.values())]
            found[:] = [pid for pid, line in lines.items() if line in newest and os.path.exists(f"/proc/{pid}")]
            return newest and len(found) == newest[0]["size"]
        wait_until("all of the newest epoch have written", all_have_written)
        return found

    def newest_lines(self):
        return {pid: line for pid, line in self.history()}

    def step_of(self, pid):
        """The step that it has begun."""
        return max((line["step"] for of, line in self.history()[-40 * RANKS:] if of == pid and line["event"] == "start"), default=0)

    def last_event(self, pid):
        return next((line["event"] for of, line in reversed(self.history()) if of == pid), None)

    def replay(self):
        self.sets["checkpoint__every_steps"] = 0
        return super().replay()


def resident_gib(pids):
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/statm") as statm:
            total += int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")
    return total / 2**30


def inject(chaos, job, fault, pids, number, seen, limit, then=lambda: None, recover_in=RECOVER):
    """Signals the processes; how fast that was seen, how fast the next step was committed without them, what was computed again."""
    mark, epoch, lost = len(job.log()), job.epoch(), job.steps_lost()
    limit = chaos.limit(limit)
    at = time.monotonic()
    for pid in pids:
        os.kill(pid, number)
    then()
    wait_until(f"{seen} of {pids}", lambda: all(job.said(seen.format(pid), mark) for pid in pids))
    detect = time.monotonic() - at
    recover = job.await_epoch_after(epoch) - at
    again = job.steps_lost() - lost
    why = [word for word, bad in (("late to be seen", detect > limit), ("late to continue", recover > chaos.limit(recover_in)),
                                  (f"{again} steps again", again > 1)) if bad]
    done = chaos.tried(fault, not why, detect, recover, again, ", ".join(why))
    chaos.progress(done)
    return done


def job_with(chaos, name, faults, n, least, most, one, flags=()):
    """Runs a job, injects faults, checks it, logs its tries."""
    with tempfile.TemporaryDirectory(prefix="cohort-chaos-") as folder:
        tries, why = [], ""
        try:
            with Watched(chaos.programs, folder, name, n, least, most, ["--respawns", "100000", *flags], **SETTINGS) as job:
                job.await_size(n)
                for i in range(faults):
                    if chaos.in_time():
                        tries += one(job, i)
                job.await_step(job.step() + 5)
                job.stops()
                job.judge()
                job.same_as_replay()
        except Exception as broken:  # of any kind: nothing was proven
            why = f"{type(broken).__name__}: {broken}"
            tries = tries or [chaos.tried(f"{chaos.row} {name}", False)]
        for t in tries:
            t.update({"ok": False, "why": t.get("why", "") + why[-3000:]} if why else {})
        chaos.write(tries)


def in_jobs(chaos, tries, make):
    for first in range(0, tries, FAULTS_A_JOB):
        if chaos.in_time():
            make(min(FAULTS_A_JOB, tries - first))


def row1(chaos, tries):
    """Every other kill at a named point of a step, the others anywhere."""
    named = [name for name in MOMENTS if name != "anywhere"]
    count = iter(range(tries))

    def one(job, _):
        job.await_size(RANKS)
        i = next(count)
        moment = named[i // 2 % len(named)] if i % 2 else "anywhere"
        pid, then = MOMENTS[moment](chaos, job)
        return [inject(chaos, job, f"1 one worker killed, {moment}", [pid], signal.SIGKILL, r"process {} on \S+\) is lost: ",
                       DETECT + DETECT_A_GIB * resident_gib([pid]), then)]
    in_jobs(chaos, tries, lambda faults: job_with(chaos, "killed", faults, RANKS, 1, RANKS, one))


def row2(chaos, tries):
    """Fewer than --min-n are left: the job logs that it waits, and continues once the replacements have joined."""
    def one(job, _):
        job.await_size(RANKS)
        pids = chaos.rng.sample(job.members(), RANKS - 1)
        mark, came = len(job.log()), []

        def joined():  # the limit counts from when enough processes run again
            wait_until("replacements start", lambda: len(job.workers()) >= 2)
            came.append(time.monotonic())

        at = time.monotonic()
        done = inject(chaos, job, "2 all but one killed", pids, signal.SIGKILL, r"process {} on \S+\) is lost: ",
                      DETECT + DETECT_A_GIB * resident_gib(pids), joined, REJOIN + RECOVER)
        after = at + done["recover_s"] - came[0]
        if after > chaos.limit(REJOIN) or not job.said(r"waiting \(.*\): 1 of at least 2 workers", mark):
            done.update(ok=False, why=done.get("why", "") + f" {after:.2f} s after a replacement started; {job.log()[mark:][-1500:]}")
        return [done]
    in_jobs(chaos, tries, lambda faults: job_with(chaos, "most-killed", faults, RANKS, 2, RANKS, one))


def row6(chaos, tries):
    def one(job, _):
        job.await_size(RANKS)
        job.await_step(job.step() + chaos.rng.randrange(1, 20))
        pid, number = chaos.rng.choice(job.members()), chaos.rng.choice([signal.SIGTERM, signal.SIGUSR1])
        done = inject(chaos, job, f"6 preempted by {number.name}", [pid], number, r"process {} on \S+\) leaves: SIG", DETECT, recover_in=2.0)
        if done["steps_lost"]:
            done.update(ok=False, why="a step was lost")
        wait_until("it ends", lambda: not os.path.exists(f"/proc/{pid}"))
        job.process.send_signal(signal.SIGUSR2)  # one for the one that left
        return [done]
    in_jobs(chaos, tries, lambda faults: job_with(chaos, "preempted", faults, RANKS, 1, RANKS, one))


def row7(chaos, tries):
    """A short stop is waited for; a long one ends in eviction, and the resumed worker writes nothing: the history would show it."""
    def one(job, _):
        job.await_size(RANKS)
        job.await_step(job.step() + chaos.rng.randrange(1, 20))
        stopped_pid = chaos.rng.choice(job.members())
        if chaos.rng.randrange(2):
            epoch, pause = job.epoch(), chaos.rng.uniform(0.1, 0.3) * LOST_AFTER
            os.kill(stopped_pid, signal.SIGSTOP)
            time.sleep(pause)
            os.kill(stopped_pid, signal.SIGCONT)
            at = time.monotonic()
            job.await_step(job.step() + 3)
            done = chaos.tried("7 stopped for a short time", job.epoch() == epoch, 0, time.monotonic() - at, 0, "it was evicted: " + job.log()[-1500:])
            chaos.progress(done)
            return [done]
        done = inject(chaos, job, "7 stopped and resumed", [stopped_pid], signal.SIGSTOP, r"process {} on \S+\) is lost: no heartbeat for",
                      LOST_AFTER + 0.7, recover_in=LOST_AFTER + 0.7 + RECOVER)
        mark = len(job.log())
        os.kill(stopped_pid, signal.SIGCONT)
        wait_until("it is evicted", lambda: job.said("may join as new", mark))
        return [done]  # it stays a spare, since its replacement has joined
    in_jobs(chaos, tries, lambda faults: job_with(chaos, "stopped", faults, RANKS, 1, RANKS, one, ["--lost-after", f"{LOST_AFTER}s"]))


def row28(chaos, tries):
    """A schedule of three sizes is a try. A newcomer costs the others the time to receive the state, no step."""
    def one(job, _):
        sizes = [size for size in chaos.rng.sample([1, 2, 3, 4], 4) if size != job.size()][:3]
        lost, worst, ok, why = job.steps_lost(), 0.0, True, ""
        for size in sizes:
            while job.size() > size:
                done = inject(chaos, job, "28 fewer", [chaos.rng.choice(job.members())], signal.SIGUSR1, r"process {} on \S+\) leaves: SIG", DETECT)
                ok, why, worst = ok and done["ok"], why + done.get("why", ""), max(worst, done["recover_s"])
            if job.size() < size:
                worst = max(worst, pause_of_growth(job, size))
        again = job.steps_lost() - lost
        if worst > chaos.limit(RECOVER) or again:
            ok, why = False, f"{why} paused {worst:.2f} s, {again} steps again"
        return [chaos.tried(f"28 {'-'.join(map(str, sizes))} ranks", ok, 0, worst, again, why)]
    in_jobs(chaos, tries, lambda faults: job_with(chaos, "scaled", faults, 2, 1, 4, one))


def pause_of_growth(job, size):
    """Seconds without a committed step around the last newcomer's entry."""
    for _ in range(size - job.size()):
        there = set(job.workers())
        job.process.send_signal(signal.SIGUSR2)
        wait_until("one more is started", lambda: set(job.workers()) - there)  # equal pending signals are merged
    step, since, longest = job.step(), time.monotonic(), 0.0

    def grown():
        nonlocal step, since, longest
        now = time.monotonic()
        if job.step() > step:
            step, since = job.step(), now
        longest = max(longest, now - since)
        return job.size() == size
    wait_until(f"{size} ranks", grown)
    return longest


ROWS = {"1": row1, "2": row2, "6": row6, "7": row7, "28": row28}
