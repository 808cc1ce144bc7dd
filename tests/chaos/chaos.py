"""Faults against real jobs, again and again: chaos.py <programs> <out.jsonl> [--rows 1,2,16] [--tries n] [--seed n] [--minutes n]
         [--scale x] [--no-suites]

Rows are those of the table of faults in docs/reliability.md. Each file rows_<subject>.py beside this one holds some and ends in
    ROWS = {"1": row1, "2": row2}                # function(chaos, tries)
Every try becomes one JSON object, written as soon as it is checked: fault, seed, detect_s, recover_s, steps_lost, ok (and why, where it is not).
A row that cannot be tried often has a limit (`row.most`); one whose cases are fixed tries them all, whatever --tries is.
--minutes    no try begins later than that
--scale      limits in seconds are that much larger, for machines with other load; correctness checks are the same at any scale.
             COHORT_TEST_SLOWDOWN is another factor
--no-suites  without the tests that `make test` runs under other names
A table of all rows ends it; the exit status is 0 when every try was ok and every row asked for was tried.
"""
import argparse
import glob
import importlib
import json
import os
import random
import sys
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE] + [os.path.join(HERE, "..", folder) for folder in ("elastic", "hostile", "train")]


def all_rows():
    rows = {}
    for path in sorted(glob.glob(os.path.join(HERE, "rows_*.py"))):
        found = importlib.import_module(os.path.basename(path)[:-3]).ROWS
        assert not rows.keys() & found.keys(), f"{path}: rows {sorted(rows.keys() & found.keys())} are in another file too"
        rows.update(found)
    return dict(sorted(rows.items(), key=lambda row: int(row[0])))


def percentile(values, share):
    return f"{sorted(values)[min(len(values) - 1, int(share * len(values)))]:.3f}" if values else "-"


class Chaos:
    def __init__(self, programs, out, seed, minutes=None, scale=1.0, suites=True):
        self.programs, self.out, self.seed, self.scale, self.suites = os.path.abspath(programs), out, seed, scale, suites
        self.rng = random.Random(seed)
        self.end = time.monotonic() + 60 * minutes if minutes else None
        self.begun, self.row, self.results = time.monotonic(), "", {}  # tries by row

    def limit(self, seconds):
        """A limit in seconds, on this machine."""
        return seconds * self.scale

    def share(self, mark):
        """A limit that is a fraction: on a machine with other load, only what is far off counts."""
        return mark if self.scale <= 1 else max(mark, 0.5)

    def in_time(self):
        """Whether another try may begin."""
        return self.end is None or time.monotonic() < self.end

    def say(self, text):
        print(f"[{time.monotonic() - self.begun:7.1f} s] row {self.row}: {text}", flush=True)

    def progress(self, done):
        """A try is over, but not checked yet."""
        self.say(f"{done['fault']}: detect {done['detect_s']} s, recover {done['recover_s']} s, lost {done['steps_lost']}"
                 + ("" if done["ok"] else f" - NOT OK {done.get('why', '')}"))

    def write(self, tries):
        for t in tries:
            self.results.setdefault(self.row, []).append(t)
            self.out.write(json.dumps(t) + "\n")
            self.out.flush()
            if not t["ok"]:
                self.say(f"not ok: {json.dumps(t)}")

    def tried(self, fault, ok=True, detect=0.0, recover=0.0, lost=0, why="", **more):
        """A try as it is logged."""
        done = {"fault": fault, "seed": self.seed, "detect_s": round(detect, 4), "recover_s": round(recover, 4), "steps_lost": lost, "ok": bool(ok), **more}
        return done | ({"why": str(why)[-3000:]} if why and not ok else {})

    def attempt(self, fault, body):
        """One try: body() returns what is to be logged beside `ok`, a dict, and raises AssertionError where a limit was missed."""
        try:
            done = self.tried(fault, **(body() or {}))
        except Exception as broken:  # a try that cannot be made is no success
            done = self.tried(fault, ok=False, why=broken if isinstance(broken, AssertionError) else traceback.format_exc())
        self.progress(done)
        self.write([done])

    def run(self, row, function, tries):
        self.row, before = row, time.monotonic()
        self.rng = random.Random(f"{self.seed}:{row}")  # the same random numbers for a row alone and among others
        try:
            function(self, min(tries, getattr(function, "most", tries)))
        except Exception:
            self.write([self.tried(f"{row} could not be tried", ok=False, why=traceback.format_exc())])
        self.say(f"{len(self.results.get(row, []))} tries in {time.monotonic() - before:.1f} s")

    def table(self):
        print(f"\n{'row':>4} {'tries':>6} {'ok':>6} {'detect p50':>11} {'p99':>8} {'recover p50':>12} {'p99':>8} {'lost max':>9}")
        for row, tries in self.results.items():
            seen = [[t[key] for t in tries if t[key]] for key in ("detect_s", "recover_s")]
            print(f"{row:>4} {len(tries):>6} {sum(t['ok'] for t in tries):>6} {percentile(seen[0], .5):>11} {percentile(seen[0], .99):>8} "
                  f"{percentile(seen[1], .5):>12} {percentile(seen[1], .99):>8} {max(t['steps_lost'] for t in tries):>9}")

    def all_ok(self, asked):
        missing = [row for row in asked if not self.results.get(row)]
        if missing:
            print(f"rows {', '.join(missing)} were not tried: there was no time left")
        return not missing and all(t["ok"] for tries in self.results.values() for t in tries)


def main():
    words = argparse.ArgumentParser()
    words.add_argument("programs")
    words.add_argument("out")
    words.add_argument("--tries", type=int, default=200)
    words.add_argument("--seed", type=int, default=1)
    words.add_argument("--rows", default="all")
    words.add_argument("--minutes", type=float)
    words.add_argument("--scale", type=float, default=1.0)
    words.add_argument("--no-suites", action="store_true")
    asked = words.parse_args()
    rows = all_rows()
    chosen = list(rows) if asked.rows == "all" else asked.rows.split(",")
    unknown = [row for row in chosen if row not in rows]
    if unknown:
        sys.exit(f"no row {', '.join(unknown)}; there are {', '.join(rows)}")
    with open(asked.out, "w") as out:
        slowdown = float(os.environ.get("COHORT_TEST_SLOWDOWN", "1"))
        chaos = Chaos(asked.programs, out, asked.seed, asked.minutes, asked.scale * slowdown, not asked.no_suites)
        for row in chosen:
            if chaos.in_time():
                chaos.run(row, rows[row], asked.tries)
    chaos.table()
    sys.exit(0 if chaos.all_ok(chosen) else 1)


if __name__ == "__main__":
    main()
