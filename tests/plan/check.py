#!/usr/bin/env python3
"""Plans as people do and checks what is printed: check.py <folder of programs> <source folder> <claim>. Exit status 0 when the claim holds."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

PROGRAMS, SOURCE, CLAIM = sys.argv[1:4]
LIMIT = 150  # seconds for one command
SMALL = ["--set", "model=gpt(vocab=64, context=32, d=32, heads=2, layers=4)",
         "--set", "data.train=synthetic(task=tokens, shape=32, classes=64, samples=100)", "--set", "data.test=", "--set", "data.batch=4",
         "--set", "optimizer=adam(lr=1e-3)"]
PICTURES = ["--ranks", "1", "--set", "data.train=synthetic(shape=1x8x8, classes=10, samples=100)", "--set", "data.test="]
CLASSES = {"parameters", "gradients", "optimizer", "master", "activations", "buckets", "temporaries"}


def run(*args, status=0, cwd=None):
    done = subprocess.run([f"{PROGRAMS}/cohort", *args], capture_output=True, text=True, timeout=LIMIT, cwd=cwd)
    assert done.returncode == status, f"{args} ended with {done.returncode}, not {status}:\n{done.stdout}{done.stderr}"
    return done


def plans(*args):
    return [json.loads(line) for line in run("plan", *args, "--json").stdout.splitlines()]


def preset():
    """A preset is planned without its data, and says so; the table ends with a verdict."""
    said = run("plan", f"{SOURCE}/configs/text_gpt.yaml", "--ranks", "2", "--memory", "8GB").stdout
    for word in ("stage", "recompute", "activations", "every(2)", "12 of 12 fit", "fastest: stage"):
        assert word in said, f"'{word}' is not in:\n{said}"
    assert "text.txt" in said, f"the missing data is not named:\n{said}"


def choices():
    """Four stages times three ways of recomputing; memory falls with the stage and with what is recomputed; one rank has one stage."""
    found = plans(*SMALL, "--ranks", "4")
    assert len(found) == 12, found
    for line in found:
        assert set(line["bytes"]) == CLASSES, line
        assert line["total_bytes"] == sum(line["bytes"].values()) or abs(line["total_bytes"] - sum(line["bytes"].values())) < 10, line
        assert line["step_s"] > 0 and abs(line["step_s"] - line["compute_s"] - line["exposed_s"]) < 1e-9, line
    states = [sum(line["bytes"][k] for k in ("parameters", "gradients", "optimizer")) for line in found[:4]]
    assert states == sorted(states, reverse=True) and states[0] == 4 * states[3], states
    kept = {line["recompute"]: line["bytes"]["activations"] for line in found}
    assert kept["every(1)"] < kept["every(2)"] < kept["none"], kept
    assert len(plans(*SMALL)) == 3


def settings():
    """Precision and recomputation are those of the settings: 16 bits keep less, and a run's own way of recomputing has rows of its own."""
    wide, narrow = (plans(*SMALL, "--set", f"precision={p}", "--ranks", "2") for p in ("fp32", "bf16"))
    assert len(wide) == len(narrow) == 12, narrow
    for a, b in zip(wide, narrow, strict=True):
        assert b["bytes"]["activations"] <= a["bytes"]["activations"] and b["total_bytes"] < a["total_bytes"], (a, b)
        assert all(a["bytes"][k] == b["bytes"][k] for k in ("parameters", "gradients", "optimizer", "master")), (a, b)
    own = plans(*SMALL, "--set", "recompute=names(h.1)", "--ranks", "2")
    assert len(own) == 16 and own[-1]["recompute"] == "names(h.1)", own
    assert own[8]["bytes"]["activations"] < own[-1]["bytes"]["activations"] < own[0]["bytes"]["activations"], own


def as_it_is_set():
    """`train --plan` forecasts the run as its settings have it: its recomputation, its precision, its buddy copies."""
    for ways in (["recompute=every(1)", "precision=bf16"], ["recompute=names(h.1, h.2)"], ["sync=zero(stage=1, op=sum, buddy=true)"]):
        with tempfile.TemporaryDirectory() as folder:
            sets = [word for way in ways for word in ("--set", way)]
            run("train", "-n", "2", "--plan", "--out", f"{folder}/run", *SMALL, *sets, "--set", "steps=10", "--set", "epochs=0")
            found = json.loads(pathlib.Path(folder, "run", "plan.json").read_text())
            wanted = ways[0].split("=", 1)[1] if ways[0].startswith("recompute") else "none"
            assert found["predicted"]["recompute"] == wanted, found
            assert abs(found["memory_ratio"] - 1) < 0.10, f"{ways}: {found}"


def elsewhere():
    """With a link, a device and a memory of their own, faster links shorten the step and nothing else."""
    device = ["--flops", "1T", "--membw", "100GB", "--memory", "1MB", "--latency", "5us"]
    slow, fast = (plans(*SMALL, "--ranks", "8", "--link", link, *device)[0] for link in ("1Gbit", "100Gbit"))
    assert slow["exposed_s"] + slow["hidden_s"] > 10 * (fast["exposed_s"] + fast["hidden_s"]) > 0, (slow, fast)
    assert slow["compute_s"] == fast["compute_s"] and slow["bytes"] == fast["bytes"], (slow, fast)
    assert slow["fits"] == (slow["total_bytes"] <= 1e6), slow


def giant():
    """GPT-3's layout is planned on a machine that could not hold a hundredth of it."""
    spec = "gpt(vocab=8000, context=64, d=12288, heads=96, layers=96)"
    found = plans("--set", f"model={spec}", "--set", "data.train=synthetic(task=tokens, shape=64, classes=200, samples=10)", "--set",
                  "data.batch=1", "--set", "optimizer=adam(lr=1e-4)", "--ranks", "1024", "--link", "200Gbit", "--flops", "300T", "--membw", "2TB",
                  "--memory", "80GB")
    assert not found[0]["fits"] and found[3]["fits"], found[:4]
    parameters = found[0]["bytes"]["parameters"] / 4
    assert 174e9 < parameters < 176e9, parameters


def refused():
    """What cannot be is refused in one line that says what would do."""
    for args, words in (
        (["--ranks", "0"], "between 1 and a million"),
        (["--link", "fast"], "100Gbit"),
        (["--latency", "5us"], "--link"),
        (["--flops", "1T"], "--membw"),
        (["--memory", "0"], "above 0"),
        (["--memmory", "1GB"], "cohort plan --help"),
        (["nowhere.yaml"], "nowhere.yaml"),
        (["--set", "model=gtp"], "gpt"),
        (["--set", "data.btach=3"], "data.batch"),
        ([*PICTURES, "--set", "model=mlp(in=100)"], "takes samples of 100, the data set has 1x8x8: say in=64 in place of in=100, or leave it out"),
        ([*PICTURES, "--set", "model=gpt(vocab=64, context=32, d=32, heads=2, layers=1)"], "takes samples of 32, the data set has 1x8x8"),
    ):
        done = subprocess.run([f"{PROGRAMS}/cohort", "plan", *args], capture_output=True, text=True, timeout=LIMIT)
        assert done.returncode == 2, f"{args} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        assert words in done.stderr and not done.stdout, f"{args} says:\n{done.stdout}{done.stderr}"


def nothing_fits():
    """When no choice fits the status is 1, with one rank or more, and the last line says what to try; as JSON on stderr."""
    for args, words in ((["--memory", "1KB"], "try more ranks"), (["--memory", "900KB"], "try a smaller data.batch")):
        for ranks in ("1", "2"):
            done = run("plan", *SMALL, "--ranks", ranks, *args, status=1)
            assert done.stdout.splitlines()[-1].startswith(words) and not done.stderr, done.stdout + done.stderr
            lines = run("plan", *SMALL, "--ranks", ranks, *args, "--json", status=1)
            assert not any(json.loads(line)["fits"] for line in lines.stdout.splitlines()), lines.stdout
            assert lines.stderr.splitlines()[-1].startswith(words), lines.stderr


def against_measured():
    """`cohort train --plan` holds its forecast against the run. Bytes are promised here, seconds by bench/plan.py on a quiet machine."""
    with tempfile.TemporaryDirectory() as folder:
        said = run("train", "-n", "2", "--plan", "--out", f"{folder}/run", *SMALL, "--set", "steps=10", "--set", "epochs=0").stdout
        assert "predicted" in said and "measured" in said and "memory of a rank" in said, said
        found = json.loads(pathlib.Path(folder, "run", "plan.json").read_text())
        assert abs(found["memory_ratio"] - 1) < 0.10, found
        assert found["step_ratio"] > 0 and found["measured"]["quiet_step_s"] <= found["measured"]["step_s"], found


def memory():
    """Classes are on the books, byte for byte what the formula says but for padding; the sum is the kernel's."""
    done = run("bench", "memory", "-n", "2", "--stages", "0", "--model", "gpt(vocab=64, context=32, d=64, heads=2, layers=2)", "--json")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["class"] for line in found] == ["parameters", "gradients", "optimizer", "sum"], found
    for line in found:
        assert set(line) == {"stage", "ranks", "class", "formula_bytes", "measured_bytes"}, line
        if line["class"] != "sum":  # of so small a model the libraries' own pages are the larger part
            assert 1 <= line["measured_bytes"] / line["formula_bytes"] < 1.05, line
    # Eight buckets, and lanes as this machine has cores: two or more of them are in flight.
    done = run("bench", "memory", "-n", "2", "--stages", "2", "--model", "gpt(vocab=64, context=32, d=512, heads=4, layers=8)", "--json")
    for line in map(json.loads, done.stdout.splitlines()):
        assert 0.94 <= line["measured_bytes"] / line["formula_bytes"] < 1.05, line  # below: a bucket less than the most was in flight
    refused_by = run("bench", "memory", "--stages", "4", status=2).stderr
    assert "between 0 and 3" in refused_by, refused_by


if __name__ == "__main__":
    os.environ.setdefault("COHORT_CALIBRATION", "none")
    globals()[CLAIM]()
    print("holds:", CLAIM)
