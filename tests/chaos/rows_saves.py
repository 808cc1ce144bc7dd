"""Checkpoints: 15 a crash or a power cut in the middle of a save, 16 damage."""
import glob
import os
import re
import shutil
import subprocess
import tempfile

from rows_disk import SMALL, Shimmed, newest_loads
from runs import LIMIT, Runs
from suites import run_suite


def drop_unsynced(chaos, journal):
    """What a power cut does: bytes that were not synced are gone or torn, names that were not synced may be the old ones. Returns how many were."""
    dirty, moved, damaged = {}, [], 0
    for what, path, other in journal:
        if what in ("create", "write"):
            dirty[path] = True
        elif what == "sync":
            dirty.pop(path, None)
            moved = [m for m in moved if os.path.dirname(m[1]) != path]
        elif what in ("rename", "exchange"):
            moved.append((path, other, what))
            dirty = {p.replace(path, other, 1) if p.startswith(path) else p: True for p in dirty}
    for path in dirty:
        if os.path.isfile(path):
            os.truncate(path, chaos.rng.randrange(os.path.getsize(path) + 1))
            damaged += 1
    for source, target, what in reversed(moved):
        if what == "rename" and os.path.exists(target) and not os.path.exists(source) and chaos.rng.randrange(2):
            os.rename(target, source)
            damaged += 1
    return damaged


def crash(chaos, runs, cut, at):
    """A run is killed before a call of a save; with `cut`, unsynced data is lost too. Its next start continues from a complete checkpoint, no older than the last
    complete one, and ends with the bits of a run that was never killed."""
    sets = {**SMALL, "checkpoint__every_steps": 7, "checkpoint__keep": 2}
    for path in (runs.path("run"), runs.path("run.log")):
        shutil.rmtree(path, ignore_errors=True)
    runs.shim.set(kill_at=0, calls=0)
    runs.shim.forget()
    runs.train("run", n=1, steps=14, **sets)
    calls = runs.shim.get("calls")  # of two saves; the next one removes an older checkpoint, too
    runs.shim.set(kill_at=calls + 1 + at % (calls // 2))
    job = runs.start("run", n=1, steps=42, **sets)
    status = job.wait(LIMIT)
    runs.shim.set(kill_at=0)
    assert status != 0, f"it was not killed: {runs.shim.get('calls')} calls"
    damaged = drop_unsynced(chaos, runs.shim.journal()) if cut else 0
    last = newest_loads(runs)
    assert last >= 14, f"the checkpoint of step 14 is lost, {last} is the newest"
    again = runs.train("run", n=1, steps=42, **sets)
    assert f"goes on after update {last}\n" in again.stdout, again.stdout
    assert not glob.glob(runs.saved + "/.tmp-*"), os.listdir(runs.saved)
    assert runs.tensors("run") == runs.tensors("whole"), f"other bits after a crash, continuing from step {last}"
    return {"lost": 0, "damaged": damaged}


def row15(chaos, tries):
    run_suite(chaos, "checkpoint_test", "StoreProcess.KilledAt*")
    with tempfile.TemporaryDirectory(prefix="cohort-chaos-") as folder:
        runs = Shimmed(chaos.programs, folder)
        runs.train("whole", n=1, steps=42, **{**SMALL, "checkpoint__every_steps": 7, "checkpoint__keep": 2})
        for i in range(tries):
            if chaos.in_time():
                cut = i % 2 == 1
                chaos.attempt(f"15 {'power cut' if cut else 'killed'} before call {i} of a save", lambda i=i, cut=cut: crash(chaos, runs, cut, i))


row15.most = 60


def damage(chaos, files):
    """One random change of one file: [(path, bytes before)], and what was done."""
    path = chaos.rng.choice(files)
    with open(path, "rb") as file:
        whole = file.read()
    kind = chaos.rng.choice(["byte", "byte", "byte", "byte", "bit", "cut", "longer", "swapped"])
    at = chaos.rng.randrange(len(whole))
    if kind == "swapped":
        other = chaos.rng.choice([f for f in files if f != path])
        with open(other, "rb") as file:
            theirs = file.read()
        changed = {path: theirs, other: whole}
        before = [(path, whole), (other, theirs)]
    else:
        new = {"byte": lambda: whole[:at] + bytes([whole[at] ^ chaos.rng.randrange(1, 256)]) + whole[at + 1:],
               "bit": lambda: whole[:at] + bytes([whole[at] ^ (1 << chaos.rng.randrange(8))]) + whole[at + 1:],
               "cut": lambda: whole[:at], "longer": lambda: whole + b"\0"}[kind]()
        changed, before = {path: new}, [(path, whole)]
    for name, content in changed.items():
        with open(name, "wb") as file:
            file.write(content)
    return before, f"{kind} at {at} of {os.path.basename(path)}"


def refused_and_named(runs, path):
    """`cohort reshard` of the damaged checkpoint: refused with a message that names it, no crash, nothing left."""
    out = runs.path("out.safetensors")
    done = subprocess.run([runs.cohort, "reshard", path, out, "--consolidate"], capture_output=True, text=True, timeout=LIMIT, env=runs.env)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, f"status {done.returncode}: {done.stdout}{done.stderr}"
    assert os.path.basename(path) in done.stderr or runs.folder in done.stderr, done.stderr
    assert not os.path.exists(out), "something was written of it"


def row16(chaos, tries):
    """Random damage of random files of a real checkpoint; then the real trainer on some of it, on another model, and on a later version."""
    with tempfile.TemporaryDirectory(prefix="cohort-chaos-") as folder:
        runs = Runs(chaos.programs, folder)
        runs.train("run", n=1, steps=20, checkpoint__every_steps=10, **SMALL)
        newest = runs.checkpoints("run")[-1]
        files = sorted(glob.glob(newest + "/*"))
        for i in range(max(tries, 20) * 5):
            if not chaos.in_time():
                return
            before, what = damage(chaos, files)
            try:
                refused_and_named(runs, newest)
                done = chaos.tried(f"16 {what}")
            except AssertionError as broken:
                done = chaos.tried(f"16 {what}", False, why=broken)
            for path, content in before:
                with open(path, "wb") as file:
                    file.write(content)
            chaos.write([done])
        chaos.attempt("16 skipped by the trainer", lambda: skipped(chaos, runs, files))
        chaos.attempt("16 another model", lambda: other_model(runs))
        chaos.attempt("16 a later version", lambda: later_version(runs, newest))
    run_suite(chaos, "checkpoint_test", "Store.EverySingleByte*:Store.AFileOfAnother*:Store.ADamaged*:SafetensorsHeader.*:Damaged.*:Manifest.*:Contents.*:*FollowsNoLink*:Store.Links*")
    run_suite(chaos, "trainer_test", "HostileManifest.*")


def skipped(chaos, runs, files):
    shutil.copytree(runs.path("run"), runs.path("damaged"))
    damage(chaos, [f.replace(runs.path("run"), runs.path("damaged")) for f in files])
    done = runs.train("damaged", n=1, steps=25, **SMALL)
    assert "is damaged and was passed over" in done.stderr and "goes on after update 10\n" in done.stdout, done.stdout + done.stderr


def other_model(runs):
    shutil.copytree(runs.path("run"), runs.path("other"))
    done = runs.train("other", n=1, status=2, steps=25, **{**SMALL, "model": "mlp(in=784, hidden=64x32, out=10)"})
    assert len(done.stderr.splitlines()) == 1 and "checkpoint" in done.stderr, done.stderr


def later_version(runs, newest):
    """A manifest of a later version, its digests valid: refused by both numbers."""
    path = newest + "/manifest.json"
    with open(path) as file:
        text = file.read()
    later = re.sub(r'("(?:format|version)": ?)(\d+)', lambda m: m[1] + str(int(m[2]) + 1), text, count=1)
    assert later != text, text[:300]
    with open(path, "w") as file:
        file.write(later)
    try:
        refused_and_named(runs, newest)
    finally:
        with open(path, "w") as file:
            file.write(text)


ROWS = {"15": row15, "16": row16}
