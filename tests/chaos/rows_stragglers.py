"""Row 8: one rank of four computes at a half, at a fifth of its speed. It is reported within 20 steps, no other rank is, and it is reported again when it has recovered.
Fixed and elastic jobs alternate; before, all are equal for a while, and none is reported."""
import os
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "elastic"), os.path.join(HERE, "..", "train")]
from jobs import FOR_EVER, Job  # noqa: E402
from runs import LIMIT, Runs, wait_until, workers  # noqa: E402
from slowing import LONG_STEPS, Slowed, namings  # noqa: E402

STEPS, EQUAL, RANKS = 20, 24, 4  # to report it; of equal ranks before. With other load on the machine ranks are not equal


class Fixed:
    """A fixed job with the few methods of jobs.Job that are needed here."""

    def __init__(self, programs, folder):
        self.runs, self.name = Runs(programs, folder), "run"
        self.process = self.runs.start(self.name, n=RANKS, steps=FOR_EVER, **LONG_STEPS)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(LIMIT)

    def pid_of(self, rank):
        return workers(self.process.pid)[rank]


def step(job):
    return max((m["step"] for m in job.runs.metrics(job.name)), default=0)


def one(job, factor, rank, scale):
    wait_until(f"{EQUAL} steps", lambda: step(job) >= EQUAL)
    false = namings(job.runs.metrics(job.name))
    pid, start, at = job.pid_of(rank), step(job), time.monotonic()
    with Slowed(pid, factor):
        wait_until("it is named", lambda: [n for n in namings(job.runs.metrics(job.name), rank) if n[2]])
        detect = time.monotonic() - at
        named = [n for n in namings(job.runs.metrics(job.name), rank) if n[2]][0][0]
    at = time.monotonic()
    wait_until("it is back", lambda: not namings(job.runs.metrics(job.name), rank)[-1][2])
    others = [n for n in namings(job.runs.metrics(job.name)) if n[1] != rank]
    why = [] if named - start <= STEPS * max(1, scale) else [f"named after {named - start} steps"]
    why += [f"named although all were equal: {false}"] if false and scale <= 1 else []
    why += [f"others were named: {others}"] if others and scale <= 1 else []
    return {"detect": detect, "recover": time.monotonic() - at, "steps": named - start, "ok": not why, "why": "; ".join(why)}


def row8(chaos, tries):
    for i in range(tries):
        if not chaos.in_time():
            return
        factor, rank, elastic = (2, 5)[i % 2], chaos.rng.randrange(RANKS), i % 4 > 1
        with tempfile.TemporaryDirectory(prefix="cohort-chaos-") as folder:
            start = (lambda: Job(chaos.programs, folder, "run", RANKS, 2, steps=FOR_EVER, **LONG_STEPS)) if elastic else (
                lambda: Fixed(chaos.programs, folder))
            with start() as job:
                done = chaos.tried(f"8 {'elastic' if elastic else 'fixed'}, {factor} times slower", **one(job, factor, rank, chaos.scale))
        chaos.progress(done)
        chaos.write([done])


ROWS = {"8": row8}
