"""Claims about the last words of runs that fail, of a fixed job and of an elastic one: for check.py, and tests/plugin/check.py."""
import os
import re
import struct
import subprocess
import zlib

from runs import LIMIT

JOBS = ([], ["--min-n", "1"])
TABLE = {"data__test": "", "model": "mlp(hidden=8)", "data__batch": 8}


def ends_with(stderr, cause):
    """The cause is the last line, it is the only one that the launcher repeats of the rank that failed first, and nowhere is a list of frames."""
    head, told, tail = stderr.rpartition("  its last lines on stderr:\n")
    assert told and re.search(r"failed first: exit status 1 .*\n$", head), stderr
    assert re.fullmatch(rf"    cohort train: {cause}\n", tail), stderr
    assert "frame #" not in stderr and "Exception raised from" not in stderr, stderr


def fails(runs, cause, **sets):
    for i, elastic in enumerate(JOBS):
        done = subprocess.run(runs.command(f"run{i}", **sets) + elastic, capture_output=True, text=True, timeout=LIMIT, env=runs.env, cwd=runs.folder)
        assert done.returncode == 1, f"{done.returncode}\n{done.stdout}{done.stderr}"
        ends_with(done.stderr, cause)


def bad_row(runs):
    """A row of a table that holds a word for a number: file, line and column come last."""
    with open(runs.path("bad.csv"), "w") as table:
        table.write("x,y,side\n")
        table.writelines(f"{i},{2 * i if i != 150 else 'oops'},{'ab'[i % 2]}\n" for i in range(200))
    fails(runs, r"\S+/bad\.csv, line 152, byte \d+: column 1 \('y'\) holds 'oops', expected a number; .*",
          data__train=f"csv(file={runs.path('bad.csv')}, label=side)", **TABLE)


def diverges(runs):
    """A learning rate far too high: the run ends by itself with status 1 and says what is the matter, an elastic one for the whole job."""
    cause = (r"training has diverged: 20 steps in a row \(max_skipped_steps\), \d+ to \d+, had a loss or gradients that are not finite; .*"
             r"learning rate that is too high.*")
    for i, elastic in enumerate(JOBS):
        words = runs.command(f"run{i}", optimizer="sgd(lr=1e6)", epochs=0, steps=1000) + elastic
        said = runs.call(words, status=1).stderr
        if not elastic:
            ends_with(said, cause)
        assert "frame #" not in said and re.search(rf"gives up: {cause}\n" if elastic else rf"cohort train: {cause}\n", said), said


def write_picture(path, i, flip):
    """A grey PNG of 8x8, all of them different. flip: one bit of its pixels is another."""
    chunk = lambda kind, body: struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    pixels = zlib.compress(b"".join(b"\0" + bytes((i * 7 + x * y) % 256 for x in range(8)) for y in range(8)))
    if flip:
        pixels = pixels[:-1] + bytes([pixels[-1] ^ 1])
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 0, 0, 0, 0)) + chunk(b"IDAT", pixels) + chunk(b"IEND", b""))


def bad_picture(runs):
    """A picture that is damaged, found by one rank in the middle of an epoch: its file comes last, not that the other rank lost this one."""
    for name in "cat", "dog":
        os.makedirs(runs.path(f"pictures/{name}"))
        for i in range(300):
            write_picture(runs.path(f"pictures/{name}/{i:03}.png"), i, flip=(name, i) == ("dog", 101))
    fails(runs, r"epoch \d+, step \d+: sample 401: \S+/pictures/dog/101\.png: \d+ bytes of broken PNG \(IDAT: incorrect data check\); .*",
          data__train=f"folder(dir={runs.path('pictures')}, size=8x8, channels=1)", data__transforms="", **TABLE)
