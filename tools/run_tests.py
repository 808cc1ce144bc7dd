#!/usr/bin/env python3
"""Runs the tests that ctest knows of a build: `run_tests.py <build folder> [words for ctest, as -LE slow]`.

Every test has one of two labels and a longest time, or nothing is run (`run_tests.py <build folder> --check` only looks):
    unit     one try
    process  several processes, which a busy machine can fail: up to three tries, the later ones alone when all others are done. A test that
             passed in the end is listed at the end, and in flaky.txt with what its failed tries said: to be mended, but no failure
Limits inside tests are stretched by COHORT_TEST_SLOWDOWN, which is measured once, at the start (tools/machine.py). TIMEOUT is a test's longest
time on an idle machine, and stretched as much. Tests that need what this machine refuses, such as namespaces in a container, are skipped: that is
said before the first test, and the last line names them, with the reason; where the machine lacks what all of them need, nothing is run
(tools/test_needs.py). Results go to results/ctest.xml (JUnit), each test once; times to test_times.json, for the order of the next run. The
exit status is 0 only when something ran and nothing failed.
"""
import dataclasses
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import machine  # noqa: E402
from test_needs import idle_patterns, lacking, set_aside, tell_before, tell_skipped  # noqa: E402
from test_queue import run_all  # noqa: E402
from test_reports import failure_text, tell_flaky, write_junit  # noqa: E402

TRIES = {"unit": 1, "process": 3}
HOPELESS = 10  # tests that failed three times: that is no busy machine, and no other test is tried again
LABELS = set(TRIES) | {"slow", "tree"}


@dataclasses.dataclass
class Test:
    name: str
    command: list
    folder: str = "."
    env: dict = dataclasses.field(default_factory=dict)
    labels: list = dataclasses.field(default_factory=list)
    limit: float = 0    # seconds on an idle machine
    slots: int = 1
    seconds: float = 0  # that it will probably take
    skips: str = ""     # what it prints when it did not test anything
    failed: list = dataclasses.field(default_factory=list)  # what failed tries said
    passed: bool = False
    unmet: str = ""  # what it needs and the machine does not have: it is skipped
    took: float = 0

    @property
    def kind(self):
        return "process" if "process" in self.labels else "unit"

    def fault(self):
        """Why it cannot be run as it is declared."""
        if len(TRIES.keys() & self.labels) != 1 or not LABELS.issuperset(self.labels):
            return f"{self.name} has the labels {self.labels}: one of unit and process, and slow or tree where they apply"
        return None if self.limit > 0 else f"{self.name} has no TIMEOUT, its longest time"


def read_test(entry, times):
    of = {p["name"]: p["value"] for p in entry.get("properties", [])}
    return Test(entry["name"], entry.get("command", []), of.get("WORKING_DIRECTORY", "."), dict(word.split("=", 1) for word in of.get("ENVIRONMENT", [])),
                of.get("LABELS", []), of.get("TIMEOUT", 0), of.get("PROCESSORS", 1), times.get(entry["name"], of.get("COST", 0)),
                "|".join(of.get("SKIP_REGULAR_EXPRESSION", [])))


def read_tests(build, words):
    """The tests of the build that ctest would run with these words, longest first."""
    done = subprocess.run(["ctest", "--test-dir", str(build), "--show-only=json-v1", *words], stdout=subprocess.PIPE, text=True, check=True)
    known = build / "test_times.json"
    times = json.loads(known.read_text()) if known.exists() else {}
    tests = [read_test(entry, times) for entry in json.loads(done.stdout)["tests"]]
    return sorted(tests, key=lambda test: -test.seconds)


def judge(test, status, said, seconds):
    """Takes in how a try ended; a test that tested nothing did not pass."""
    test.took = seconds
    test.passed = status == 0 and not (test.skips and re.search(test.skips, said))
    if not test.passed:
        why = "nothing was tested" if status == 0 else f"ended with {status}" if isinstance(status, int) else status
        test.failed.append(f"{why} after {seconds:.1f} s\n{said}")
        print(failure_text(test, TRIES[test.kind]), flush=True)


def run(build, tests):
    slots, factor = machine.slots(), machine.factor()
    print(f"{len(tests)} tests in {slots} places; limits are stretched by {factor:g}, measured now (COHORT_TEST_SLOWDOWN sets it)", flush=True)
    scratch = build / "results" / "running"
    run_all(tests, slots, factor, scratch, judge)
    for _ in range(1, max(TRIES.values())):
        again = [test for test in tests if not test.passed and len(test.failed) < TRIES[test.kind]]
        for test in again:
            if sum(len(other.failed) == TRIES["process"] for other in tests) < HOPELESS:
                run_all([test], 1, factor, scratch, judge)
    scratch.rmdir()


def main(build, words):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that what runs is ended, too
    build = pathlib.Path(build).resolve()
    check = words == ["--check"]
    tests = read_tests(build, [] if check else words)
    faults = [fault for fault in map(Test.fault, tests) if fault]
    if check:
        faults += [f"tools/test_needs.py: no test is named like {pattern}" for pattern in idle_patterns(tests)]
    if faults or not tests or check:
        print(*faults or ["no tests here" if not tests else f"{len(tests)} tests have a label and a limit"], sep="\n")
        return 1 if faults or not tests else 0
    if missing := lacking():
        print(*(f"the tests cannot run on this machine, which lacks {what}" for what in missing), sep="\n")
        return 1
    shutil.rmtree(build / "results", ignore_errors=True)
    (build / "results" / "running").mkdir(parents=True)
    begin = time.monotonic()
    skipped = set_aside(tests)
    print(*tell_before(skipped), sep="\n", end="\n" if skipped else "")
    chosen, tests = tests, [test for test in tests if not test.unmet]
    run(build, tests)
    write_junit(build / "results" / "ctest.xml", chosen)
    known = build / "test_times.json"
    times = json.loads(known.read_text()) if known.exists() else {}
    known.write_text(json.dumps(times | {test.name: round(test.took, 2) for test in tests if test.passed}, indent=0))
    tell_flaky(build / "flaky.txt", [test for test in tests if test.passed and test.failed])
    failed = [test.name for test in tests if not test.passed]
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(*(f"failed: {name}" for name in failed), f"{len(tests) - len(failed)} of {len(tests)} tests passed in {time.monotonic() - begin:.0f} s, "
          f"with {used.ru_utime + used.ru_stime:.0f} s of processors" + tell_skipped(skipped), sep="\n")
    return 1 if failed or not tests else 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2:]))
