"""The long version: storms in periods at every kind of job. Called by check.py.

With enough cores the attacker has its own, and a step in a storm is compared with steps of the quiet periods around it. Where it shares them with
the job, the same attacks go to a decoy between two storms, a port of the attacker's own process, at the same rate: what a step then takes includes
the attacker's own work, and the difference is the cost to the job itself. Quiet periods at both ends show the sum. First as many connections as
requested, as fast as two cores allow; then for a while at the rate for which step times are promised. Elastic jobs then lose workers, in a storm
and among idle connections at every port.
"""
import json
import math
import os
import random
import statistics
import time

import attack
import changes
import exposed
from attacked_jobs import Attackers, OneHost, TrainingHosts, wait_until
from hosts_net import Net
from job import Job, Nodes
from jobs import FOR_EVER, SLOWDOWN

CONNECTIONS = int(os.environ.get("HOSTILE_CONNECTIONS", "1000000"))
RATE = float(os.environ.get("HOSTILE_RATE", "4000"))
PROMISED_RATE = 1000.0
# of each kind of job: its part of the connections, and seconds at the promised rate
SHARES = {"fixed": (0.7, 60.0), "elastic": (0.15, 24.0), "hosts": (0.1, 24.0), "nodes": (0.05, 16.0)}
JOBS = os.environ.get("HOSTILE_JOBS", ",".join(SHARES)).split(",")
OUT = os.environ.get("HOSTILE_OUT", "build/hostile.jsonl")
NICE = int(os.environ.get("HOSTILE_NICE", "0"))
ENDLESS = 10**9  # steps
STORM_S, DECOY_S = 8.0, 4.0          # seconds of a period ..
SHORT_S = 3.0                        # .. and at the promised rate, where many short ones are more precise on a noisy machine
SLEEP_S, UPDATE_S = 0.002, 1.0  # between two polls of the storm, and of the job's ports
SEED = int(os.environ.get("HOSTILE_SEED", "1"))
LARGER = {"model": "mlp(in=784, hidden=512x512, out=10)", "data.batch": 128, "data.train": "synthetic(samples=16384)",
          "observe.every_steps": 4,
          "optim.schedule": "constant"}  # fewer and longer steps: the memory of a run's own curves is not due to the attack
GROWTH_KIB = 8 << 10
SLOWER = 1.05 if SLOWDOWN <= 1 else 1.5  # where tests are told that the machine may be busy, only what is far off counts
LOSSES = int(os.environ.get("HOSTILE_LOSSES", "6"))  # of workers, half of them among idle connections
CALM_S = 2.0  # between two faults
CORES = sorted(os.sched_getaffinity(0))
APART = len(CORES) >= 4 and os.environ.get("HOSTILE_APART", "1") == "1"
CALM = "quiet" if APART else "decoy"  # what storms are compared with
AFTER_WORKER, AFTER_OTHERS = 3.0 * SLOWDOWN, 5.0 * SLOWDOWN  # seconds until the next step counts: rows 1, 3 and 4 of docs/reliability.md


def median_step(job, begin, end):
    """Seconds of a step between two moments, by the run's own lines (wall time)."""
    lines = [(line["time"], line["step"]) for line in job.curve() if "loss" in line and begin <= line["time"] <= end]
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


class Periods:
    """Periods one after the other, each with its median step."""

    def __init__(self, job, kind, report, rate, memory, holders):
        self.job, self.kind, self.report, self.rate, self.memory, self.medians = job, kind, report, rate, memory, {"quiet": [], "decoy": [], "storm": []}
        self.growth, short = 0, rate == PROMISED_RATE
        self.storm_s, self.calm_s = (SHORT_S, SHORT_S) if short else (STORM_S, DECOY_S)
        self.attackers = attack.Storm([], rate, seed=SEED, holders=holders)
        self.watch = exposed.Watch(job, self.attackers, every=UPDATE_S)
        self.watch.update()
        self.decoy, self.decoy_storm = attack.Decoy(), None
        self.holders = holders

    def period(self, kind, count=0):
        if kind == "decoy" and not self.decoy_storm:  # by now the protocol of each port is known
            self.decoy_storm = attack.Storm(self.decoy.targets(self.attackers.targets), self.rate, seed=SEED, holders=self.holders)
        who = self.decoy_storm if kind == "decoy" else self.attackers
        begin, clock, most = time.time(), time.monotonic(), who.begun + count
        who.resume()
        while who.begun < most or (kind == "quiet" and time.monotonic() - clock < self.calm_s):
            who.poll(most)
            self.watch.update()
            if kind == "decoy":
                self.decoy.sweep()
            assert self.job.running(), "the job ended in the storm:\n" + self.job.text()[-2000:]
            assert time.monotonic() - clock < 20 * STORM_S, f"only {who.begun} of {most} connections could be made"
            time.sleep(SLEEP_S)
        self.medians[kind].append(median_step(self.job, begin, time.time()))
        now = self.job.memory()
        self.growth = max(now[pid] - self.memory[pid] for pid in now if pid in self.memory)
        self.report.add(job=self.kind, kind=kind, rate=self.rate, seconds=round(time.time() - begin, 1), connections=count,
                        step_ms=round(1e3 * self.medians[kind][-1], 3), growth_kib=self.growth)

    def run(self, connections):
        storms = math.ceil(connections / (self.rate * self.storm_s))
        decoys = 0 if APART else int(self.rate * self.calm_s)
        self.period("quiet")
        if not APART:
            self.period(CALM, decoys)
        for number in range(storms):
            self.period("storm", connections * (number + 1) // storms - connections * number // storms)
            self.period(CALM, decoys)
        while self.attackers.poll(self.attackers.begun):
            time.sleep(0.01)
        self.period("quiet")

    def slowdown(self):
        """Median over the storms: a step in it over a step in the two periods around it."""
        calm = self.medians[CALM]
        return statistics.median(storm / statistics.mean(calm[i:i + 2]) for i, storm in enumerate(self.medians["storm"]))

    def slowdown_with_attacker(self):
        return statistics.median(self.medians["storm"]) / statistics.mean(self.medians["quiet"])


def calm_run(programs, folder, steps):
    """What the same steps come to when nobody attacks; over shared memory, which gives the same bits in less time."""
    job = Job(programs, folder + "-calm", steps, transport="shm", settings=LARGER)
    try:
        job.finish(steps * 1.0)
    finally:
        job.stop()
    return job.losses()


def set_priority(nice, cores):
    """Of the attacker, not of the jobs that it starts."""
    os.sched_setaffinity(0, cores)
    try:
        os.setpriority(os.PRIO_PROCESS, 0, nice)
    except PermissionError:
        pass


class Trial:
    """One kind of job under attack, and the results."""

    def __init__(self, kind, job, report):
        self.kind, self.job, self.report = kind, job, report
        self.share, self.promised_s = SHARES[kind]
        self.storms, self.recoveries, self.checks, self.ports = [], [], {}, 0

    def attack(self):
        """With its step times; no worker is replaced."""
        set_priority(NICE, CORES[2:] if APART else CORES)
        memory = self.job.memory()
        # A holder of the secret makes both sides compute a whole handshake: step times are promised without those.
        fast, promised = (Periods(self.job, self.kind, self.report, rate, memory, holders=rate != PROMISED_RATE) for rate in (RATE, PROMISED_RATE))
        fast.run(max(math.ceil(self.share * CONNECTIONS), int(RATE * STORM_S / 2)))
        promised.run(int(PROMISED_RATE * self.promised_s))
        self.checks["insiders_cut"] = self.job.insiders()
        missed = [port for port in fast.watch.missed() if port in promised.watch.missed()]
        self.checks["every_port"] = not missed
        self.storms += [fast.attackers, promised.attackers]
        self.growth, self.ports = max(fast.growth, promised.growth), self.ports + len(fast.watch.seen)
        self.ratio, self.at_full_rate, self.with_attacker = promised.slowdown(), fast.slowdown(), promised.slowdown_with_attacker()
        self.checks["steps"] = self.ratio < SLOWER

    def recovers(self, attackers, what, limit, fault):
        with attackers.change():
            self.goes_on_after(what, limit, fault)
        attackers.await_begun(attackers.storm.begun + int(PROMISED_RATE * CALM_S))

    def goes_on_after(self, what, limit, fault):
        """Seconds from a fault until a step that began after it is committed; then waits until all workers are back."""
        size, at = self.job.size(), time.monotonic()
        fault()
        step = self.job.step()
        wait_until(f"a step after {what}", lambda: self.job.step() > step + 1 or not self.job.running())
        took = time.monotonic() - at
        self.job.await_size(size)
        self.recoveries.append((what, round(took, 3)))
        self.report.add(job=self.kind, fault=what, recover_s=round(took, 3), all_back_s=round(time.monotonic() - at, 3), ok=took < limit)
        self.checks[what] = self.checks.get(what, True) and took < limit

    def changes(self, others):
        """Workers are killed in the storm and among idle connections; others: further faults by name."""
        dice, job = random.Random(SEED), self.job

        def lose_one():
            before = job.epoch()
            job.kill(dice.choice(job.workers()))
            job.await_epoch_after(before)

        with Attackers(job, PROMISED_RATE, SEED) as attackers:
            for idle in (0, changes.IDLE):
                if idle:
                    attackers.fill(idle)
                for _ in range(max(1, LOSSES // 2)):
                    self.recovers(attackers, "worker among idle connections" if idle else "worker", AFTER_WORKER, lose_one)
                for name, fault in others.items():
                    self.recovers(attackers, name + (" among idle connections" if idle else ""), AFTER_OTHERS, fault)
            attackers.idle_number = 0
            self.ports += attackers.all_attacked()
        attackers.judge()
        self.checks["attack_seen"] = bool(job.said(changes.ATTACK_SEEN))
        self.growth = max(self.growth, attackers.watch.growth)
        self.storms += [attackers.storm, attackers.idle]

    def report_results(self, steps, same):
        counts, accepted = sum((s.counts for s in self.storms if hasattr(s, "counts")), attack.collections.Counter()), []
        for one in self.storms:
            accepted += one.accepted
        for (protocol, kind, outcome), count in sorted(counts.items()):
            self.report.add(job=self.kind, port=protocol, kind=kind, outcome=outcome, count=count)
        self.checks.update(accepted=not accepted, memory=self.growth <= GROWTH_KIB, same=same)
        made = sum(one.begun for one in self.storms)
        self.report.add(job=self.kind, connections=made, accepted=len(accepted), ports=self.ports, growth_kib=self.growth, step_ratio=round(self.ratio, 4),
                        step_ratio_at_full_rate=round(self.at_full_rate, 4), step_ratio_with_attacker=round(self.with_attacker, 4), steps=steps,
                        same_result=same, recover_s=max((took for _, took in self.recoveries), default=None),
                        failed=sorted(name for name, fine in self.checks.items() if not fine), ok=all(self.checks.values()))
        set_priority(0, CORES[:2] if APART else CORES)
        return made, len(accepted), self.growth, all(self.checks.values())


def fixed(programs, folder, report):
    return same_losses(programs, folder, Job(programs, folder + "/fixed", ENDLESS, settings=LARGER), "fixed", report)


def same_losses(programs, folder, job, kind, report, begin=lambda trial: None):
    trial = Trial(kind, job, report)
    try:
        begin(trial)
        job.wait_until("some steps", lambda: len(job.losses()) >= 10)
        trial.attack()
        trial.checks["running"], losses = job.running(), job.losses()
    finally:
        job.stop()
    return trial.report_results(losses[-1][0], calm_run(programs, folder + "/" + kind, losses[-1][0]) == losses)


def nodes(programs, folder, report):
    job = Nodes(programs, folder + "/nodes", ENDLESS, settings=LARGER)

    def begin(trial):
        job.wait_until("rank 0 and its launcher's port", lambda: 0 in job.ranks() and job.ports())
        with Attackers(job, PROMISED_RATE, SEED) as attackers:
            attackers.fill(changes.IDLE)
            job.node(1)
            job.wait_until("some steps", lambda: len(job.losses()) >= 10)
            attackers.idle_number = 0
            attackers.watch.reset_growth()
            trial.ports += attackers.all_attacked()
        attackers.judge()
        trial.storms += [attackers.storm, attackers.idle]

    return same_losses(programs, folder, job, "nodes", report, begin)


def same_bits(job, kind, report, others):
    trial = Trial(kind, job, report)
    job.await_size(2)
    wait_until("some lines", lambda: len(job.curve()) >= 10)
    trial.attack()
    trial.changes(others)
    job.stops()
    job.judge()
    return trial.report_results(job.step(), job.runs.tensors(job.name) == job.replay())


ELASTIC = {**{name.replace(".", "__"): value for name, value in LARGER.items()}, "observe__prometheus_port": 0}


def elastic(programs, folder, report):
    with OneHost(programs, folder, "elastic", 2, 1, 2, flags=["--supervised", "--respawns", "1000"], steps=FOR_EVER, **ELASTIC) as job:
        return same_bits(job, "elastic", report, {"coordinator": job.kill_coordinator})


def hosts(programs, folder, report):
    flags = ["--host-cool-down", "300ms", "--respawns", "1000"]
    with Net(programs, 2) as net, TrainingHosts(net, programs, folder, "hosts", ["-H", "h1:1,h2:1"], 1, 2, flags=flags, steps=FOR_EVER, **ELASTIC) as job:

        def lose_host():
            before = job.epoch()
            net.kill_host(2)
            job.await_epoch_after(before)

        return same_bits(job, "hosts", report, {"host": lose_host})


def storm(programs, folder):
    report, results = Report(), {}
    set_priority(0, CORES[:2] if APART else CORES)
    for trial in (fixed, elastic, hosts, nodes):
        if trial.__name__ in JOBS:
            results[trial.__name__] = trial(programs, folder, report)
    ok = all(fine for _, _, _, fine in results.values())
    report.add(jobs=list(results), connections=sum(made for made, _, _, _ in results.values()), accepted=sum(came for _, came, _, _ in results.values()),
               growth_kib=max(growth for _, _, growth, _ in results.values()), ok=ok)
    assert ok, "see " + OUT
