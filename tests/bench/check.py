#!/usr/bin/env python3
"""Runs the bench as people do and checks what it prints: check.py <cohort> <claim>. Exit status 0 when the claim holds."""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

COHORT = sys.argv[1]
KEYS = {"who", "collective", "algorithm", "ranks", "bytes", "dtype", "median_us", "low_us", "high_us", "repeats", "limit_share"}
STEP_KEYS = {"who", "model", "ranks", "batch", "samples_per_s", "low", "high", "compute_share", "wait_share", "comm_share"}
SHORT = ["--rounds", "1", "--seconds", "0.005", "--no-void-check"]
SLOWDOWN = float(os.environ.get("COHORT_TEST_SLOWDOWN", "1"))
LIMIT = max(90, 50 * SLOWDOWN)  # seconds for one command


def run(*args, status=0, env=None):
    done = subprocess.run([COHORT, *args], capture_output=True, text=True, timeout=LIMIT, env=env)
    assert done.returncode == status, f"{args} ended with {done.returncode}, not {status}:\n{done.stdout}{done.stderr}"
    return done


def rows(*args, **how):
    lines = [json.loads(line) for line in run("bench", *args, *SHORT, "--json", **how).stdout.splitlines()]
    for line in lines:
        assert KEYS <= line.keys(), f"missing {KEYS - line.keys()} in {line}"
        assert line["median_us"] > 0 and line["low_us"] <= line["median_us"] <= line["high_us"], line
    return lines


def rounds():
    """Every baseline that is here answers every size with the same checksum, ours first, and the memory limit is known."""
    found = rows("all_reduce", "-n", "2", "--size", "4,256KiB", "--against", "openmpi,openmpi-tuned,gloo")
    for size in (4, 262144):
        same = [r for r in found if r["bytes"] == size]
        assert same and same[0]["who"] == "cohort", same
        assert len({r["checksum"] for r in same}) == 1, same
        assert all(r["limit_share"] > 0 for r in same), same


def collectives():
    """Every collective runs, is verified and is reported."""
    found = rows("all", "-n", "3", "--size", "10KiB", "--buffers", "any")
    assert len({r["collective"] for r in found}) == 10, found
    assert [r["limit_share"] for r in found if r["collective"] == "barrier"] == [None], found


def algorithms():
    """Rows can be forced, and the report names them."""
    names = ["zero_copy", "staged", "ring", "recursive_doubling", "halving_doubling", "tree"]
    found = rows("all_reduce", "-n", "2", "--size", "64KiB", "--algorithm", ",".join(names))
    assert [r["algorithm"] for r in found] == names, found
    refused = run("bench", "all_reduce", "--algorithm", "rign", "--size", "4", *SHORT, status=1).stderr
    assert "ring" in refused, refused


def tcp():
    """Over sockets, with a congestion control of one's choice."""
    found = rows("all_reduce", "-n", "2", "--size", "64KiB", "--transport", "tcp", "--congestion", "reno")
    assert [r["transport"] for r in found] == ["tcp"], found


def explain():
    """What the selector would choose, with the cost of every row."""
    text = run("bench", "all_reduce", "-n", "2", "--size", "1MiB", "--explain").stdout
    for row in ("zero_copy", "staged", "ring", "tree", "us", "constants: "):
        assert row in text, text


def calibrate():
    """Measured constants go into a file, and the selector reads it."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/some/where/k.json"
        text = run("bench", "--calibrate", "--calibration", path, "--seconds", "0.01").stdout
        assert path in text, text
        constants = json.load(open(path))
        assert constants.pop("machine"), constants
        assert len(constants) >= 7 and all(v > 0 for v in constants.values()), constants
        assert path in run("bench", "--explain", "--calibration", path, "--size", "1MiB").stdout
        env = dict(os.environ, XDG_CACHE_HOME=folder)
        env.pop("COHORT_CALIBRATION", None)
        usual = f"{folder}/cohort/calibration-shm.json"
        assert "constants: built in" in run("bench", "--explain", "--size", "1MiB", env=env).stdout
        assert usual in run("bench", "--calibrate", "--seconds", "0.01", env=env).stdout
        assert f"constants: {usual}" in run("bench", "--explain", "--size", "1MiB", env=env).stdout
        assert "constants: built in" in run("bench", "--explain", "--size", "1MiB", "--calibration", "none", env=env).stdout


def missing():
    """A baseline that is not here is named and skipped."""
    env = dict(os.environ, PATH="/nowhere", COHORT_PYTHON="/nowhere/python")
    env.pop("VIRTUAL_ENV", None)
    done = run("bench", "all_reduce", "--size", "4", "--against", "openmpi", "--json", *SHORT, env=env)
    assert "openmpi does not take part: mpirun" in done.stderr, done.stderr
    assert [json.loads(line)["who"] for line in done.stdout.splitlines()] == ["cohort"], done.stdout


ENDING = """
import os, sys, time
import local_ranks

class Group:  # in the place of torch.distributed
    barrier = destroy_process_group = staticmethod(lambda: None)
    get_rank = staticmethod(lambda: int(os.environ["RANK"]))

def work(how):
    if Group.get_rank() == 1 and how == "before":
        os.abort()
    if how != "never":
        local_ranks.leave(Group)
    if Group.get_rank() == 1 and how == "after":
        os.abort()
    time.sleep(0 if how != "before" else 60)
    return 7 if how == "never" and Group.get_rank() == 1 else 0

sys.exit(work(sys.argv[1]) if local_ranks.is_rank() else local_ranks.launch(3))
"""


def ends():
    """A baseline's rank that breaks fails at once, one that breaks when its work is done does not: gloo's own threads do that."""
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/ending.py", "w") as file:
            file.write(ENDING)
        env = dict(os.environ, PYTHONPATH=os.path.dirname(COHORT), TMPDIR=folder)
        for how, status in (("well", 0), ("after", 0), ("before", -signal.SIGABRT), ("never", 7)):
            begin = time.monotonic()
            done = subprocess.run([sys.executable, f"{folder}/ending.py", how], env=env, timeout=LIMIT, check=False)
            assert done.returncode == status % 256, f"{how}: {done.returncode}"
            assert time.monotonic() - begin < 30, how
        assert os.listdir(folder) == ["ending.py"], os.listdir(folder)


def full():
    """What a full disk swallowed was not printed: no success, and the reason."""
    for words in (["--version"], ["--help"], ["doctor"], ["bench", "--explain", "--size", "4"], ["bench", "--size", "4", "--json", *SHORT]):
        with open("/dev/full", "w") as disk:
            done = subprocess.run([COHORT, *words], stdout=disk, stderr=subprocess.PIPE, text=True, timeout=LIMIT, check=False)
        assert done.returncode == 1 and "No space left on device" in done.stderr, f"{words}: {done.returncode} {done.stderr}"


def alive(marker):
    """Processes whose command line carries the marker, zombies left out."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = open(f"/proc/{pid}/cmdline", "rb").read().split(b"\0")
        except OSError:
            continue
        if marker.encode() in words and int(pid) != os.getpid():
            found.append(int(pid))
    return found


def interrupted():
    """A killed bench leaves no rank behind."""
    marker = f"0.{os.getpid()}1"  # a --seconds nobody else uses, without a last zero; it is on every rank's command line
    bench = subprocess.Popen([COHORT, "bench", "--size", "4,1MiB", "--rounds", "1000", "--seconds", marker, "--json"], stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 20 * SLOWDOWN
        while len(alive(marker)) < 3:  # the bench, and ranks
            assert time.monotonic() < deadline, "no rank was started"
            time.sleep(0.02)
    finally:
        bench.send_signal(signal.SIGKILL)
        bench.wait()
    deadline = time.monotonic() + 5 * SLOWDOWN
    while alive(marker):
        assert time.monotonic() < deadline, f"left behind: {alive(marker)}"
        time.sleep(0.02)


def step():
    """Whole training steps: ours and ranks that do not communicate train alike, any model of the zoo, and the shares add up."""
    short = ["--rounds", "1", "--warm", "2", "--no-void-check", "--json"]
    done = run("bench", "step", "--model", "mlp", "-n", "2", "--batch", "16", "--steps", "60", "--against", "unsynced", *short)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [r["who"] for r in found] == ["cohort", "unsynced"], done
    for r in found:
        assert STEP_KEYS <= r.keys() and r["model"] == "mlp" and r["ranks"] == 2 and r["batch"] == 16, r
        assert 0 < r["low"] <= r["samples_per_s"] <= r["high"], r
        assert abs(r["compute_share"] + r["wait_share"] + r["comm_share"] - 1) < 1e-3, r
        assert r["last_loss"] < 0.8 * r["first_loss"], r
    assert 0.8 < found[0]["last_loss"] / found[1]["last_loss"] < 1.25, found
    tokens = run("bench", "step", "--model", "gpt(vocab=16, context=8, d=16, heads=2, layers=1)", "-n", "2", "--batch", "2", "--steps", "3", *short)
    assert "gpt" in json.loads(tokens.stdout)["model"], tokens
    # AdamW decays every parameter by torch's default in both: their losses part within a few steps where only one does.
    worker = [f"{COHORT}-worker", "bench-step", "--model", "mlp(in=16, hidden=16, out=4)", "--optimizer", "adamw", "--lr", "0.05",
              "--batch", "16", "--warm", "1", "--steps", "100", "--implementation"]
    alone = [json.loads(subprocess.run([*worker, who], capture_output=True, text=True, timeout=LIMIT, check=True).stdout) for who in ("cohort", "unsynced")]
    assert abs(alone[0]["last_loss"] - alone[1]["last_loss"]) < 1e-4, alone
    assert "ended with status" in run("bench", "step", "--model", "no_such_model", "--steps", "1", *short, status=1).stderr


def previous():
    """Another build takes part as `previous`: this one, which trains the same bits; what is slower than required ends with status 1."""
    asked = ["bench", "step", "--model", "mlp(in=16, hidden=16, out=4)", "-n", "2", "--batch", "4", "--steps", "20", "--rounds", "6", "--json",
             "--against", "previous", "--previous"]
    folder = os.path.dirname(COHORT)
    found = [json.loads(line) for line in run(*asked, folder).stdout.splitlines()]
    assert [r["who"] for r in found] == ["cohort", "previous"], found
    assert found[0]["last_loss"] == found[1]["last_loss"] and found[0]["moved_bytes"] == found[1]["moved_bytes"], found
    assert 0 < found[1]["ratio_low"] <= found[1]["ratio"] <= found[1]["ratio_high"], found
    assert "SLOWER: the median of 6 pairs is" in run(*asked, folder, "--require", "1000", status=1).stderr
    assert "/nowhere/cohort is no program" in run(*asked, "/nowhere", status=2).stderr


def sharded():
    """torch's own sharded ways take part with the Transformer, and start from the same loss."""
    done = run("bench", "step", "--model", "gpt-50m", "-n", "2", "--batch", "1", "--tokens", "4", "--warm", "1", "--steps", "1", "--rounds", "1",
               "--against", "torch-zero1,torch-fsdp2", "--no-void-check", "--json")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["who"] for row in rows] == ["cohort", "torch-zero1", "torch-fsdp2"], done
    assert all(row["peak_bytes"] > 200e6 and abs(row["first_loss"] - rows[0]["first_loss"]) < 0.5 for row in rows), rows


def demo():
    """The demo ends with a table, words, and two files."""
    with tempfile.TemporaryDirectory() as folder:
        text = run("demo", "--out", folder, "--rounds", "1", "--seconds", "0.01").stdout
        assert "all_reduce" in text and "What the numbers mean" in text, text
        assert open(f"{folder}/bandwidth.svg").read().startswith("<svg")
        lines = [json.loads(line) for line in open(f"{folder}/results.jsonl")]
        assert {r["collective"] for r in lines} >= {"all_reduce", "barrier"}, lines


def doctor():
    """The doctor finds this machine fit, in words and in JSON."""
    assert "failures" in run("doctor").stdout
    findings = [json.loads(line) for line in run("doctor", "--json").stdout.splitlines()]
    assert all({"level", "topic", "text", "advice"} == f.keys() for f in findings), findings
    assert not [f for f in findings if f["level"] == "FAIL"], findings
    assert "[X] shared memory" in run("doctor", "--check-build").stdout
    assert "did you mean" in run("bench", "al_reduce", status=2).stderr


if __name__ == "__main__":
    globals()[sys.argv[2]]()
