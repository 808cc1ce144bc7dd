"""The long version: a storm in periods. Called by check.py.

The attacker shares the machine with the job, so between two storms the same strangers knock at a decoy, a port of their own process, at the same
rate: what a step then takes includes the attacker's own work, and the difference is what the job itself has to do about them. Quiet periods at
both ends show the sum. First as many as asked for, as fast as two cores allow; then a minute at the rate for which step times are promised.
"""
import json
import math
import os
import statistics
import time

import attack
from job import Job

CONNECTIONS = int(os.environ.get("HOSTILE_CONNECTIONS", "1000000"))
RATE = float(os.environ.get("HOSTILE_RATE", "4000"))
PROMISED_RATE, PROMISED_S = 1000.0, 60.0
OUT = os.environ.get("HOSTILE_OUT", "build/hostile.jsonl")
NICE = int(os.environ.get("HOSTILE_NICE", "0"))
ENDLESS = 10**9  # steps
STORM_S, DECOY_S = 8.0, 4.0  # seconds of a period
NAP_S = 0.002  # between two looks
SEED = int(os.environ.get("HOSTILE_SEED", "1"))
LARGER = {"model": "mlp(in=784, hidden=512x512, out=10)", "data.batch": 128, "data.train": "synthetic(samples=16384)",
          "observe.every_steps": 4,
          "optim.schedule": "constant"}  # fewer and longer steps: what a run remembers of its own curves is not the strangers' doing
GROWTH_KIB = 8 << 10
SLOWER = 1.05


def median_step(job, begin, end):
    """Seconds of a step between two moments, by the run's own lines (wall time)."""
    lines = [(line["time"], line["step"]) for line in job.lines() if "loss" in line and begin <= line["time"] <= end]
    assert len(lines) > 8, f"only {len(lines)} lines of metrics in {end - begin:.1f} s"
    return statistics.median((t1 - t0) / (s1 - s0) for (t0, s0), (t1, s1) in zip(lines, lines[1:]))


class Report:
    def __init__(self):
        os.makedirs(os.path.dirname(OUT) or ".", exist_ok=True)
        self.file = open(OUT, "w")

    def add(self, **what):
        self.file.write(json.dumps(what) + "\n")
        self.file.flush()
        print(json.dumps(what), flush=True)


class Weather:
    """Periods one after the other, each with its median step."""

    def __init__(self, job, report, rate, memory):
        self.job, self.report, self.rate, self.memory, self.medians = job, report, rate, memory, {"quiet": [], "decoy": [], "storm": []}
        self.growth = 0
        self.strangers = attack.Storm(job.targets(), rate, seed=SEED)
        self.decoy = attack.Decoy()
        self.elsewhere = attack.Storm(self.decoy.targets(self.strangers.targets), rate, seed=SEED)

    def period(self, kind, count=0):
        who = self.elsewhere if kind == "decoy" else self.strangers
        begin, clock, most = time.time(), time.monotonic(), who.begun + count
        who.resume()
        while who.begun < most or (kind == "quiet" and time.monotonic() - clock < DECOY_S):
            who.poll(most)
            if kind == "decoy":
                self.decoy.sweep()
            assert self.job.running(), "the job ended in the storm:\n" + self.job.text()[-2000:]
            assert time.monotonic() - clock < 20 * STORM_S, f"only {who.begun} of {most} connections could be made"
            time.sleep(NAP_S)
        self.medians[kind].append(median_step(self.job, begin, time.time()))
        now = self.job.memory()
        self.growth = max(now[pid] - self.memory[pid] for pid in now if pid in self.memory)
        self.report.add(kind=kind, rate=self.rate, seconds=round(time.time() - begin, 1), connections=count,
                        step_ms=round(1e3 * self.medians[kind][-1], 3), growth_kib=self.growth)

    def run(self, connections):
        storms = math.ceil(connections / (self.rate * STORM_S))
        self.period("quiet")
        self.period("decoy", int(self.rate * DECOY_S))
        for number in range(storms):
            self.period("storm", connections * (number + 1) // storms - connections * number // storms)
            self.period("decoy", int(self.rate * DECOY_S))
        while self.strangers.poll(self.strangers.begun):
            time.sleep(0.01)
        self.period("quiet")

    def slowdown(self):
        """Median over the storms: a step in it over a step in the two periods around it."""
        calm = self.medians["decoy"]
        return statistics.median(storm / statistics.mean(calm[i:i + 2]) for i, storm in enumerate(self.medians["storm"]))

    def slowdown_with_attacker(self):
        return statistics.median(self.medians["storm"]) / statistics.mean(self.medians["quiet"])


def calm_run(programs, folder, steps):
    """What the same steps come to when nobody attacks; over shared memory, which gives the same bits in less time."""
    job = Job(programs, folder + "/calm", steps, transport="shm", settings=LARGER)
    try:
        job.finish(steps * 1.0)
    finally:
        job.stop()
    return job.losses()


def storm(programs, folder):
    report = Report()
    job = Job(programs, folder + "/attacked", ENDLESS, settings=LARGER)
    os.nice(NICE)
    try:
        job.wait_until("some steps", lambda: len(job.losses()) >= 10)
        memory = job.memory()
        fast, promised = Weather(job, report, RATE, memory), Weather(job, report, PROMISED_RATE, memory)
        fast.run(CONNECTIONS)
        promised.run(int(PROMISED_RATE * PROMISED_S))
        insiders, running, losses = job.insiders(), job.running(), job.losses()
    finally:
        job.stop()
    ratio, most = promised.slowdown(), max(fast.growth, promised.growth)
    counts, accepted = fast.strangers.counts + promised.strangers.counts, fast.strangers.accepted + promised.strangers.accepted
    same = calm_run(programs, folder, losses[-1][0]) == losses
    for (speaks, kind, outcome), count in sorted(counts.items()):
        report.add(port=speaks, kind=kind, outcome=outcome, count=count)
    ok = not accepted and running and most <= GROWTH_KIB and ratio < SLOWER and same and insiders == 4
    report.add(connections=fast.strangers.begun + promised.strangers.begun, accepted=len(accepted), growth_kib=most, step_ratio=round(ratio, 4),
               step_ratio_at_full_rate=round(fast.slowdown(), 4), step_ratio_with_attacker=round(promised.slowdown_with_attacker(), 4), steps=losses[-1][0], same_losses=same, insiders_cut=insiders, ok=ok)
    assert ok, "see " + OUT
