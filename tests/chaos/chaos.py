"""Faults against elastic training jobs of real processes, again and again: chaos.py <programs> <out.jsonl> [--tries n] [--seed n] [--rows 1,2,6,7,28]

One JSON object a try: fault, seed, detect_s, recover_s, steps_lost, ok (and why, where it is not). A job takes several faults; at its end its history is
judged and its parameters are compared, bit for bit, with a run without faults whose ranks came and went at the same steps. A job that fails there makes
all its tries fail. Rows are those of the list of faults: 1 one worker killed, 2 all but one killed, 6 preempted, 7 stopped and woken up, 28 more and fewer.
"""
import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "elastic"))
from jobs import FOR_EVER, Job, wait_until  # noqa: E402

FAULTS_A_JOB = 10
DETECT, RECOVER, LOST_AFTER = 0.2, 3.0, 1.0


class Chaos:
    def __init__(self, programs, out, seed):
        self.programs, self.out, self.dice, self.seed, self.bad = programs, out, random.Random(seed), seed, 0

    def write(self, tries):
        for t in tries:
            self.bad += not t["ok"]
            self.out.write(json.dumps(t) + "\n")
            self.out.flush()
            print(json.dumps(t), flush=True)

    # One fault on a job that runs with all its workers; how fast it was seen and got over.
    def strike(self, job, fault, whom, number, seen, limit):
        job.await_step(job.step() + self.dice.randrange(1, 60))
        time.sleep(self.dice.random() * 0.02)  # anywhere in a step
        mark, epoch, lost = len(job.log()), job.epoch(), job.steps_lost()
        at = time.monotonic()
        for pid in whom(job):
            os.kill(pid, number)
        wait_until(seen, lambda: job.said(seen, mark))
        detect = time.monotonic() - at
        recover = job.await_epoch_after(epoch) - at
        again = job.steps_lost() - lost
        ok = detect <= limit and recover <= limit + RECOVER and again <= 1
        return {"fault": fault, "seed": self.seed, "detect_s": round(detect, 4), "recover_s": round(recover, 4), "steps_lost": again, "ok": ok}

    def job(self, name, faults, n, least, most, one, flags=()):
        with tempfile.TemporaryDirectory(prefix="cohort-chaos-") as folder:
            tries = []
            with Job(self.programs, folder, name, n, least, most, ["--respawns", "100000", *flags], steps=FOR_EVER) as job:
                job.await_size(n)
                for i in range(faults):
                    tries += one(job, i)
                why = ""
                try:
                    job.stops()
                    job.judge()
                    job.same_as_replay()
                except AssertionError as broken:
                    why = str(broken)
            for t in tries:
                t.update({"ok": False, "why": why[-2000:]} if why else {})
            self.write(tries)

    def in_jobs(self, tries, make):
        for first in range(0, tries, FAULTS_A_JOB):
            make(min(FAULTS_A_JOB, tries - first))

    def row1(self, tries):
        def one(job, _):
            job.await_size(3)
            return [self.strike(job, "1 one worker killed", lambda j: [self.dice.choice(j.workers())], signal.SIGKILL, "is lost: ", DETECT)]
        self.in_jobs(tries, lambda faults: self.job("killed", faults, 3, 1, 3, one))

    def row2(self, tries):
        def one(job, _):
            job.await_size(3)
            return [self.strike(job, "2 all but one killed", lambda j: self.dice.sample(j.workers(), 2), signal.SIGKILL, "is lost: ", DETECT)]
        self.in_jobs(tries, lambda faults: self.job("most-killed", faults, 3, 1, 3, one))

    def row6(self, tries):
        def one(job, _):
            job.await_size(3)
            done = self.strike(job, "6 preempted", lambda j: [self.dice.choice(j.workers())], self.dice.choice([signal.SIGTERM, signal.SIGUSR1]),
                               "leaves: SIG", DETECT)
            done["ok"] = done["ok"] and done["steps_lost"] == 0
            job.process.send_signal(signal.SIGUSR2)  # one for the one that left
            return [done]
        self.in_jobs(tries, lambda faults: self.job("preempted", faults, 3, 1, 3, one))

    def row7(self, tries):
        def one(job, _):
            job.await_size(3)
            asleep = job.pid_of(self.dice.randrange(3))
            done = self.strike(job, "7 stopped and woken up", lambda j: [asleep], signal.SIGSTOP, "nothing heard for", LOST_AFTER + 0.7)
            mark = len(job.log())
            os.kill(asleep, signal.SIGCONT)
            wait_until("it is told", lambda: job.said("may join as new", mark))
            return [done]  # it stands by, since its replacement is there
        self.in_jobs(tries, lambda faults: self.job("stopped", faults, 3, 1, 3, one, ["--lost-after", f"{LOST_AFTER}s"]))

    def row28(self, tries):
        def one(job, _):
            done = []
            for size in self.dice.sample([1, 2, 3, 4], 3):
                while job.size() > size:
                    done.append(self.strike(job, "28 fewer", lambda j: [self.dice.choice(j.workers())], signal.SIGUSR1, "leaves: SIG", DETECT))
                if job.size() < size:
                    mark, epoch, lost, before = len(job.log()), job.epoch(), job.steps_lost(), job.size()
                    for _ in range(size - before):
                        job.process.send_signal(signal.SIGUSR2)
                        time.sleep(0.05)  # equal signals that wait together become one
                    wait_until("they are in", lambda: job.size() == size)
                    first = min(line["step"] for line in job.commits() if line["epoch"] > epoch)
                    done.append({"fault": "28 more", "seed": self.seed, "detect_s": 0, "recover_s": 0, "steps_lost": job.steps_lost() - lost,
                                 "ok": job.steps_lost() == lost and first > 0 and mark > 0})
            return done
        self.in_jobs(tries, lambda faults: self.job("scaled", faults, 2, 1, 4, one))


words = argparse.ArgumentParser()
words.add_argument("programs")
words.add_argument("out")
words.add_argument("--tries", type=int, default=200)
words.add_argument("--seed", type=int, default=1)
words.add_argument("--rows", default="1,2,6,7,28")
asked = words.parse_args()
with open(asked.out, "w") as out:
    chaos = Chaos(os.path.abspath(asked.programs), out, asked.seed)
    for row in asked.rows.split(","):
        getattr(chaos, f"row{row}")(asked.tries)
sys.exit(1 if chaos.bad else 0)
