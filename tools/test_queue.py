"""Runs tests side by side (for run_tests.py): run_all(tests, slots, factor, scratch, judge) returns when all had one try.

A test takes test.slots of the places. Those of several processes, which wait a lot, and the others, which compute, share the places by halves
while there are both: beside a test that waits there is one that uses the core. A first test that does not fit yet is waited for: nothing overtakes it.
Each test is a session of its own with its output in a file; what is left of the session when the test ends, or its time is over, is killed, and
when the run is interrupted, all of them are.
"""
import os
import signal
import subprocess
import time

LAST_BYTES = 1 << 16  # of what a test said
LOOK_S = 0.005        # between two looks at those that run
NEWS_S = 30           # between two lines about how far it is


def heed_interrupts():
    """A shell without job control starts what runs in the background with these ignored, which every program would inherit."""
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


class Running:
    def __init__(self, test, factor, path):
        self.test, self.path, self.begun = test, path, time.monotonic()
        self.limit = test.limit * max(1.0, factor / 3)  # 3 is the factor of an idle machine (tools/machine.py)
        env = {**os.environ, "COHORT_TEST_SLOWDOWN": f"{factor:g}", **test.env}
        with open(path, "wb") as out:
            self.process = subprocess.Popen(test.command, cwd=test.folder, env=env, stdin=subprocess.DEVNULL, stdout=out,
                                            stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=heed_interrupts)

    def end(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        return self.process.wait()

    def result(self):
        """(exit status or why there is none, output, seconds) when it is over, else None."""
        seconds, status = time.monotonic() - self.begun, self.process.poll()
        if status is None and seconds < self.limit:
            return None
        if status is None:
            status = f"killed: it may take {self.limit:g} s"
        self.end()
        with open(self.path, "rb") as out:
            out.seek(max(0, os.path.getsize(self.path) - LAST_BYTES))
            said = out.read().decode(errors="replace")
        os.unlink(self.path)
        return status, said, seconds


def choose(waiting, running, slots):
    """The test to start next, or None: of the kind that has fewer places now, its first one, when there is room for it."""
    used = {kind: sum(r.test.slots for r in running if r.test.kind == kind) for kind in waiting if waiting[kind]}
    if not used:
        return None
    test = waiting[min(used, key=used.get)][0]
    taken = sum(r.test.slots for r in running)
    return test if not running or taken + test.slots <= slots else None


def run_all(tests, slots, factor, scratch, judge):
    waiting = {kind: [test for test in tests if test.kind == kind] for kind in ("process", "unit")}
    running, done, number, news = [], 0, 0, time.monotonic()
    try:
        while running or any(waiting.values()):
            while test := choose(waiting, running, slots):
                waiting[test.kind].remove(test)
                number += 1
                try:
                    running.append(Running(test, factor, scratch / str(number)))
                except (OSError, IndexError) as reason:
                    judge(test, f"could not be started ({reason})", "", 0.0)
            for one in list(running):
                if (result := one.result()) is not None:
                    running.remove(one)
                    judge(one.test, *result)
                    done += 1
            if time.monotonic() - news > NEWS_S:
                news = time.monotonic()
                print(f"{done} of {len(tests)} are done; running: {' '.join(one.test.name for one in running)}", flush=True)
            time.sleep(LOOK_S)
    finally:
        for one in running:
            one.end()
