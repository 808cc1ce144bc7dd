"""Data that are not what the job began with: 38 copies that differ, files that change; 39 a run that is resumed with another order of its samples."""
import glob
import os
import random
import re
import struct
import subprocess
import tempfile
import time
import zlib

from folder_jobs import FLAGS, SETTINGS, await_checkpoint
from histories import judge_launches
from jobs import PLAIN, Job, Runs, wait_until
from rows_disk import newest_loads
from rows_elastic import Watched
from runs import LIMIT, TINY
from suites import run_claim, run_suite

ROWS_OF_A_TABLE, RANKS = 100, 3
TABLE = {"model": "mlp(in=4, hidden=3, out=2)", "data__batch": 8, "data__test": ""}


def table():
    return [f"{i % 2},{i % 256},7,9,{200 - i % 100}\n" for i in range(ROWS_OF_A_TABLE)]


def other_table(rng):
    """What it is called, and a table that is not the same by one row."""
    rows, at = table(), rng.randrange(ROWS_OF_A_TABLE - 1)
    kind = rng.choice(["a row more", "a row less", "another label", "another value", "another order"])
    if kind == "a row more":
        rows.insert(at, rows[at])
    elif kind == "a row less":
        del rows[at]
    elif kind == "another label":
        rows[at] = f"{1 - at % 2}" + rows[at][1:]
    elif kind == "another value":
        rows[at] = rows[at].replace(",7,", ",8,")
    else:
        rows[at], rows[at + 1] = rows[at + 1], rows[at]
    return kind, rows


def write(path, rows):
    """A reader has the one or the other."""
    with open(path + ".new", "w") as file:
        file.writelines(rows)
    os.rename(path + ".new", path)


def hosts_differ(chaos, kind, rows, victim):
    """A job whose ranks read copies of their own: refused by file and rank before anything is trained, and nothing is left behind."""
    with tempfile.TemporaryDirectory(prefix="cohort-chaos-") as folder:
        runs = Runs(chaos.programs, folder)
        for rank in range(RANKS):
            os.mkdir(runs.path(f"host{rank}"))
            write(runs.path(f"host{rank}") + "/train.csv", rows if rank == victim else table())
        sets = {**TINY, **TABLE, "data.train": "csv(file=train.csv, shape=1x2x2)", "out": runs.path("run")}
        words = [runs.cohort, "run", "-n", str(RANKS), "--", "sh", "-c", 'cd host$COHORT_RANK && exec "$@"', "sh",
                 os.path.join(os.path.dirname(runs.cohort), "cohort-worker"), "train"]
        at = time.monotonic()
        said = runs.call(words + [word for key, value in sets.items() for word in ("--set", f"{key.replace('__', '.')}={value}")], 2).stderr
        other = victim or r"\d"
        assert re.search(rf"data.train 'csv\(file=train.csv, shape=1x2x2\)': .* on rank 0 but .* on rank {other}", said), f"{kind}: {said}"
        assert not os.path.exists(runs.path("run")), "a folder was left"
        return {"recover": time.monotonic() - at}


def replacement_differs(chaos, tries):
    """The file is another one when a replacement reads it: that worker ends and says which file and ranks. Those that train have what they read before."""
    done, why = [], ""
    with tempfile.TemporaryDirectory(prefix="cohort-chaos-") as folder:
        path = os.path.join(folder, "train.csv")
        write(path, table())
        try:
            with Watched(chaos.programs, folder, "run", RANKS, 1, RANKS, FLAGS, **{**SETTINGS, **TABLE, "data__train": f"csv(file={path}, shape=1x2x2)"}) as job:
                for _ in range(tries):
                    kind, rows = other_table(chaos.rng)
                    done.append(refuse_a_replacement(chaos, job, path, kind, rows))
                job.await_size(RANKS)
                job.stops()
                job.judge()
                job.same_as_replay()
        except Exception as broken:  # of any kind: nothing was proven
            why = f"{type(broken).__name__}: {broken}"
            done = done or [chaos.tried("38 a replacement with other data", False)]
    for t in done:
        t.update({"ok": False, "why": t.get("why", "") + why[-3000:]} if why else {})
    chaos.write(done)


def refuse_a_replacement(chaos, job, path, kind, rows):
    job.await_size(RANKS)
    job.await_step(job.step() + chaos.rng.randrange(1, 40))
    mark, lost = len(job.log()), job.steps_lost()
    write(path, rows)
    at = time.monotonic()
    job.kill(chaos.rng.choice(job.members()))
    said = rf"the data differ: data.train 'csv\(file={re.escape(path)}.* on rank 0 but .* on rank \d; this worker cannot take part"
    wait_until("a worker with other data ends", lambda: job.said(said, mark) or job.process.poll() is not None)
    assert job.process.poll() is None, job.log()
    took = time.monotonic() - at
    job.await_step(job.step() + 20)  # the others, meanwhile
    write(path, table())
    job.await_size(RANKS)
    again = job.steps_lost() - lost
    done = chaos.tried(f"38 a replacement's file has {kind}", again <= 1, detect=took, lost=again, why=job.log()[-1500:])
    chaos.progress(done)
    return done


def png(grey):
    """4 x 4 pixels."""
    chunk = lambda kind, body: struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    rows = b"".join(b"\0" + bytes([grey, 255 - grey, grey, (7 * grey) % 256]) for _ in range(4))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 4, 4, 8, 0, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows, 0)) + chunk(b"IEND", b"")


def write_pictures(folder):
    for i in range(60):
        path = os.path.join(folder, "pictures", f"class{i % 2}", f"{i:02d}.png")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(png(4 * i))
    return sorted(glob.glob(os.path.join(folder, "pictures", "*", "*.png")))


def picture_changes(chaos):
    """A picture is written again while the job runs: whichever rank reads it next stops the job and names it. Written as it was before the run goes
    on, and every sample has come once an epoch."""
    with tempfile.TemporaryDirectory(prefix="cohort-chaos-") as folder:
        changed = chaos.rng.choice(write_pictures(folder))
        settings = {**TABLE, **SETTINGS, "model": "mlp(in=16, hidden=3, out=2)",
                    "data__train": f"folder(dir={folder}/pictures, size=4x4, channels=1)", "checkpoint__every_steps": 5}
        with Job(chaos.programs, folder, "run", 2, 1, 2, ["--respawns", "10"], **settings) as job:
            await_checkpoint(job)
            at = time.monotonic()
            with open(changed, "r+b") as file:
                content = file.read()
                file.seek(0)
                file.write(png(1))
            assert job.process.wait(chaos.limit(60)) not in (0, None), job.log()
            took, step = time.monotonic() - at, job.step()
            assert job.said(rf"{re.escape(changed)} changed since .*start the run again"), job.log()
            kept = newest_loads(job.runs, "run")
            assert 0 < kept <= step and (not job.said("saved update") or kept == step), job.log()
            with open(changed, "wb") as file:
                file.write(content)
            histories = job.histories + "-again"
            os.mkdir(histories)
            env = {**job.runs.env, "COHORT_HISTORY": histories}
            done = subprocess.run(job.runs.command("run", 2, **{**job.sets, "steps": kept + 40}) + ["--min-n", "1"], capture_output=True, text=True,
                                  timeout=LIMIT, env=env)
            assert done.returncode == 0 and f"goes on after update {kept}\n" in done.stdout, done.stdout + done.stderr
            broken = judge_launches(chaos.programs, [job.histories, histories])
            assert not broken, broken + job.log() + done.stdout
        return {"detect": took}


def row38(chaos, tries):
    hosts = (tries + 1) // 3
    for _ in range(hosts):
        kind, rows = other_table(chaos.rng)
        victim = chaos.rng.randrange(RANKS)
        if chaos.in_time():
            chaos.attempt(f"38 on host {victim} of {RANKS} {kind}", lambda: hosts_differ(chaos, kind, rows, victim))
    if chaos.in_time():
        replacement_differs(chaos, min(4, tries - hosts) or 1)
    for _ in range(max(1, tries // 3)):
        if chaos.in_time():
            chaos.attempt("38 a picture is written again while the job runs", lambda: picture_changes(chaos))
    run_claim(chaos, "train/check.py", "other_data")
    run_claim(chaos, "elastic/check.py", "unfit")
    run_suite(chaos, "data_test", "Input.*WrittenWhile*:Fingerprint.*")


class Resumed:
    """A run of two workers in parts, with one history."""

    def __init__(self, chaos, folder):
        self.runs = Runs(chaos.programs, folder)
        self.programs, self.histories, self.file = chaos.programs, [], os.path.join(folder, "train.csv")
        self.sets = {**PLAIN, **TABLE, "data__train": f"csv(file={self.file}, shape=1x2x2)", "checkpoint__keep": 9}
        write(self.file, table())

    def part(self, steps, status=0, **sets):
        self.histories.append(self.runs.path(f"history{len(self.histories)}"))
        os.mkdir(self.histories[-1])
        self.runs.env["COHORT_HISTORY"] = self.histories[-1]
        return self.runs.call(self.runs.command("run", 2, **{**self.sets, "steps": steps, **sets}) + ["--min-n", "1"], status)

    def judge(self):
        broken = judge_launches(self.programs, self.histories)
        assert not broken, broken


STEPS_OF_AN_EPOCH = -(-ROWS_OF_A_TABLE // 16)
# What changes, and what is said of it in the middle of an epoch.
ORDERS = {
    "seed": ({"seed": 2}, "seed: 1 -> 2: it is in the middle of epoch {epoch} "),
    "sampler": ({"data__sampler": "in_order"}, r"data\.sampler: partition -> in_order: it is in the middle of epoch {epoch} "),
    "size": ({"checkpoint__allow": "data"}, r"samples of the training set: 100 -> 101: it is in the middle of epoch {epoch} "),
}


def resumed_with(chaos, what, rng):
    sets, words = ORDERS[what]
    with tempfile.TemporaryDirectory(prefix="cohort-chaos-") as folder:
        run = Resumed(chaos, folder)
        epoch = rng.randrange(1, 3)
        middle = (epoch - 1) * STEPS_OF_AN_EPOCH + rng.randrange(1, STEPS_OF_AN_EPOCH)
        run.part(middle)
        before = run.runs.tensors("run")
        if what == "size":
            write(run.file, table() + table()[:1])
            said = run.part(middle + 20, 2).stderr
            assert re.search(r"another training set: number of samples: 100 in the checkpoint but 101 now; .*checkpoint.allow=data", said), said
        at = time.monotonic()
        said = run.part(middle + 20, 2, **sets).stderr
        took = time.monotonic() - at
        assert re.search(words.format(epoch=epoch), said) and "checkpoint.allow=restart_epoch" in said, said
        assert run.runs.tensors("run") == before, "what was refused left another checkpoint"
        write(run.file, table())
        run.part(epoch * STEPS_OF_AN_EPOCH)
        if what == "size":
            write(run.file, table() + table()[:1])
        done = run.part((epoch + 2) * STEPS_OF_AN_EPOCH, **sets)
        assert f"goes on after update {epoch * STEPS_OF_AN_EPOCH}\n" in done.stdout and "from the next epoch on" in done.stdout + done.stderr, done.stdout + done.stderr
        run.judge()
        return {"detect": took}


def row39(chaos, tries):
    """In the middle of an epoch refused by name, with the checkpoint as it was; at its end taken; every sample once an epoch."""
    for i in range(tries):
        what, rng = list(ORDERS)[i % len(ORDERS)], random.Random(chaos.rng.random())
        if chaos.in_time():
            chaos.attempt(f"39 resumed with another {what}", lambda what=what, rng=rng: resumed_with(chaos, what, rng))
    run_suite(chaos, "train_test", "Resuming.*")
    run_suite(chaos, "trainer_test", "ResumedRun.*Seed*:ResumedRun.*TrainingSet*")


for limited in (row38, row39):
    limited.most = 20
ROWS = {"38": row38, "39": row39}
