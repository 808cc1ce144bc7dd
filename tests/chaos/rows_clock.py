"""22: the wall clock jumps by an hour, on all processes or on every second one. No worker is evicted, no step is lost, nothing waits for it."""
import tempfile
import time

from jobs import Job
from rows_elastic import RANKS, SETTINGS
from shim import Shim

LOST_AFTER, WATCHED = 1.0, 1.6  # seconds; a jump is watched for longer than heartbeats may be missing


class ShimmedJob(Job):
    def __init__(self, programs, folder, shim, *rest, **sets):
        self.shim = shim
        super().__init__(programs, folder, *rest, **sets)

    def words(self, n, limits):
        self.runs.env.update(self.shim.env)
        return super().words(n, limits)

    def wall(self):
        lines = self.runs.metrics(self.name)
        return lines[-1]["time"] if lines else 0


def row22(chaos, tries):
    for first in range(0, tries, 10):
        if chaos.in_time():
            one_job(chaos, min(10, tries - first))


def one_job(chaos, jumps):
    with tempfile.TemporaryDirectory(prefix="cohort-chaos-") as folder:
        shim, tries, why = Shim(folder), [], ""
        with ShimmedJob(chaos.programs, folder, shim, "clock", RANKS, 1, RANKS, ["--lost-after", f"{LOST_AFTER}s"], **SETTINGS) as job:
            try:
                job.await_size(RANKS)
                moved = False
                for _ in range(jumps):
                    if not chaos.in_time():
                        break
                    offset, skew = chaos.rng.choice([3600, -3600]), chaos.rng.randrange(2)
                    epoch, lost, mark, before = job.epoch(), job.steps_lost(), len(job.log()), job.step()
                    shim.set(clock_offset_s=offset, only_odd=skew)
                    time.sleep(WATCHED)
                    moved = moved or abs(job.wall() - time.time()) > 3000
                    shim.set(clock_offset_s=0)
                    job.await_step(before + 10)
                    bad = job.epoch() != epoch or job.said("is lost|evict", mark) or job.steps_lost() != lost
                    tries.append(chaos.tried(f"22 {offset:+} s{' on some' if skew else ''}", not bad, why=job.log()[mark:]))
                    chaos.progress(tries[-1])
                assert moved or all("on some" in t["fault"] for t in tries), "no clock was ever moved"
                job.stops()
                job.judge()
            except Exception as broken:
                why = f"{type(broken).__name__}: {broken}"
                tries = tries or [chaos.tried("22 clock", False)]
        for t in tries:
            t.update({"ok": False, "why": why[-3000:]} if why else {})
        chaos.write(tries)


row22.most = 30
ROWS = {"22": row22}
