"""A storm of random faults: storm.py <programs> <out.jsonl> [--minutes n] [--seed n] [--job n] [--faults n] [--keep folder]

Elastic jobs of `cohort train`, one after the other, each with faults drawn from its seed (storm_faults.py), some while the one before still lasts. Each ends
in one of several ways and is then launched again to an end (storm_run.py). Judged are histories (P1, P2, P3, P6), checkpoints, exit statuses, and that
nothing is left: processes, shared memory, sockets, temporary files. It runs in namespaces of its own, so that nothing else can be what is left.
Every fault and every job is a JSON object, written at once; a table ends it. A job's faults follow from --seed and its number: --job runs one again
(what hits which moment of a step differs). --keep: logs and histories of jobs that failed are copied there.
"""
import argparse
import json
import os
import shutil
import sys
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE] + [os.path.join(HERE, "..", folder) for folder in ("elastic", "train")]
from chaos import percentile  # noqa: E402
from isolated import in_namespaces, quiet_machine, reset_connections  # noqa: E402
from jobs import LIMIT  # noqa: E402
from left_behind import MachineState, await_no_process, end_all  # noqa: E402
from storm_faults import FAULTS, draw, end_lasting_faults  # noqa: E402
from storm_run import RANKS, Run  # noqa: E402

OVERLAPS = 0.35  # of faults: the next one comes before the job has made a step


class Storm:
    def __init__(self, asked, out):
        self.programs, self.asked, self.out, self.begun = os.path.abspath(asked.programs), asked, out, time.monotonic()
        self.faults, self.jobs = [], []

    def say(self, text):
        print(f"[{time.monotonic() - self.begun:7.1f} s] {text}", flush=True)

    def write(self, into, line):
        into.append(line)
        self.out.write(json.dumps(line) + "\n")
        self.out.flush()

    def strike(self, run, job, number):
        name = draw(run)
        waits, at = run.rng.random() >= OVERLAPS, time.monotonic()
        done = {"job": number, "seed": self.asked.seed, "fault": name, "at_s": round(at - self.begun, 3), "recover_s": None, "ok": False}
        try:
            FAULTS[name][1](run, job)
            if waits:
                job.await_progress()
                done["recover_s"] = round(time.monotonic() - at, 3)
            done["ok"] = True
        finally:
            self.write(self.faults, done)

    def course(self, run, number):
        """Faults, the end of the first launch, and a second one."""
        job = run.launch()
        job.await_progress()
        for _ in range(run.rng.randrange(self.asked.faults // 2, self.asked.faults + 1)):
            self.strike(run, job, number)
        end_lasting_faults(run, job)
        job.await_progress(RANKS)
        getattr(run, run.end.replace(" ", "_"))(job)
        run.finish_up()
        run.judge()

    def job(self, number):
        seed, quiet, why, left = f"{self.asked.seed}:{number}", MachineState(), "", ""
        run = Run(self.programs, f"/tmp/storm-{number}", seed)
        try:
            self.course(run, number)
            await_no_process(LIMIT)
        except Exception as broken:  # of any kind: nothing was proven
            why = f"{broken}" if isinstance(broken, AssertionError) else traceback.format_exc()
            why = why + "\n" + "".join(traceback.format_tb(broken.__traceback__)[-2:])
            self.keep(run, number, why)
        reset_connections(False)
        end_all(LIMIT)
        steps = max((job.step() for job in run.launches), default=0)
        run.close()
        if not why and (left := quiet.left()):
            why = f"left behind: {left}"
        self.write(self.jobs, {"job": number, "seed": self.asked.seed, **run.shape(), "steps": steps, "launches": len(run.launches),
                               "faults": sum(fault["job"] == number for fault in self.faults), "ok": not why, **({"why": why[-6000:]} if why else {})})
        self.say(f"job {number}: {', '.join(f'{key} {value}' for key, value in run.shape().items())}; {steps} steps"
                 + (f" - NOT OK, again with --seed {self.asked.seed} --job {number}: {why[-3000:]}" if why else ""))

    def keep(self, run, number, why):
        """Before the folder goes."""
        if not self.asked.keep:
            return
        to = os.path.join(self.asked.keep, f"seed-{self.asked.seed}-job-{number}")
        shutil.rmtree(to, ignore_errors=True)
        os.makedirs(to)
        for job in run.launches:
            shutil.copy(job.log_path, to)
            shutil.copytree(job.histories, os.path.join(to, os.path.basename(job.histories)))
        with open(os.path.join(to, "why"), "w") as file:
            file.write(why + "\n" + json.dumps([fault for fault in self.faults if fault["job"] == number], indent=1))

    def run(self):
        numbers = [self.asked.job] if self.asked.job is not None else range(10**9)
        for number in numbers:
            if number and self.asked.job is None and time.monotonic() - self.begun >= 60 * self.asked.minutes:
                break
            self.job(number)

    def table(self):
        print(f"\n{'times':>6} {'ok':>6} {'recover p50':>12} {'p99':>8}  fault")
        for name in FAULTS:
            these = [fault for fault in self.faults if fault["fault"] == name]
            seen = [fault["recover_s"] for fault in these if fault["recover_s"] is not None]
            print(f"{len(these):>6} {sum(fault['ok'] for fault in these):>6} {percentile(seen, .5):>12} {percentile(seen, .99):>8}  {name}")
        good = sum(job["ok"] for job in self.jobs)
        print(f"\nseed {self.asked.seed}: {len(self.jobs)} jobs, {good} of them kept every promise; {len(self.faults)} faults, "
              f"{sum(job['steps'] for job in self.jobs)} steps")
        return good == len(self.jobs)


def main():
    words = argparse.ArgumentParser()
    words.add_argument("programs")
    words.add_argument("out")
    words.add_argument("--minutes", type=float, default=60)
    words.add_argument("--seed", type=int, default=1)
    words.add_argument("--job", type=int)
    words.add_argument("--faults", type=int, default=14)
    words.add_argument("--keep")
    asked = words.parse_args()
    if not in_namespaces("COHORT_STORM_INSIDE"):
        sys.exit("the storm needs namespaces of its own (unshare --mount --net --ipc --pid), which this machine refuses")
    for path in (asked.programs, asked.out, HERE, asked.keep or asked.out):
        if os.path.abspath(path).startswith("/tmp/"):
            sys.exit(f"the storm has a /tmp of its own, in which there is no {path}: build and run it elsewhere")
    if not os.access(os.path.join(asked.programs, "cohort"), os.X_OK):
        sys.exit(f"there is no program {asked.programs}/cohort: build first, and name the folder of the programs")
    os.environ.pop("TMPDIR", None)
    quiet_machine()
    print(f"seed {asked.seed}", flush=True)
    with open(asked.out, "w") as out:
        storm = Storm(asked, out)
        storm.run()
    sys.exit(0 if storm.table() else 1)


if __name__ == "__main__":
    main()
