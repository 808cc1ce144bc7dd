#!/usr/bin/env python3
"""Claims about `cohort verify`: check.py <folder of programs> <claim>. Exit status 0 when the claim holds."""
import json
import os
import re
import subprocess
import sys

COHORT = os.path.join(os.path.abspath(sys.argv[1]), "cohort")
LIMIT = 90  # seconds for one command on a busy machine
SETTINGS = {"model": "mlp(in=784, hidden=32x32, out=10)", "data.train": "synthetic(samples=600)", "data.test": "", "data.batch": 8,
            "optimizer": "sgd(lr=0.05, momentum=0.9, weight_decay=1e-3)"}
WHAT = ["start", "loss", "gradient", "norm", "update"]


def verify(*args, status=0, **sets):
    words = [COHORT, "verify"]
    for key, value in {**SETTINGS, **{k.replace("__", "."): v for k, v in sets.items()}}.items():
        words += ["--set", f"{key}={value}"]
    env = {k: v for k, v in os.environ.items() if not k.startswith("COHORT_")}
    done = subprocess.run(words + list(args), capture_output=True, text=True, timeout=LIMIT, env=env)
    assert done.returncode == status, f"{args} ended with {done.returncode}, not {status}:\n{done.stdout}{done.stderr}"
    return done


def lines(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


def agrees():
    """Two and three ranks do what one does: the same start bit for bit, the rest within 1e-5; one rank with another op has the same bits.
    With clipping and accumulation too."""
    found = lines(verify("--ranks", "1,2,3", "--sync", "all_reduce(op=sum), all_reduce", "--json"))
    assert [(l["ranks"], l["sync"]) for l in found[::5]] == [(n, s) for s in ("all_reduce(op=sum)", "all_reduce") for n in (1, 2, 3)], found
    for line in found:
        assert line["within"] and line["relative"] <= 1e-5 and "first" not in line, line
        if line["what"] == "start" or line["ranks"] == 1:
            assert line["bit_equal"] == line["tensors"], line
    assert [line["what"] for line in found[:5]] == WHAT and found[2]["tensors"] == 6 and found[2]["scale"] > 0, found
    frozen = lines(verify("--ranks", "2", "--steps", "3", "--json", engine__clip_norm=0.5, data__accumulate=2, optim__frozen="*.bias"))
    assert frozen[2]["tensors"] == 3 and frozen[4]["tensors"] == 6, "what is frozen has no gradient, and stays"
    verify("--ranks", "2", "--change", "engine.bucket=4KiB", "--change", "engine.first_bucket=4KiB", "--change", "engine.lanes=2")


CNN = {"model": "asl_cnn(size=12, classes=10)", "data__train": "synthetic(shape=1x12x12, samples=600)"}


def float64():
    """In double precision only rounding of another order is left; also of a model with dropout and batch norm, and of a rule that makes
    full steps of gradients that are nearly zero."""
    for rule in ("sgd(lr=0.05, momentum=0.9, weight_decay=1e-3)", "adamw"):
        found = lines(verify("--ranks", "2", "--float64", "--json", optimizer=rule, **CNN))
        assert all(line["within"] and line["tolerance"] == 1e-12 for line in found), found


def meshes():
    """Ranks that share layers out do what one rank does: the same start bit for bit, in double precision the rest to 1e-12, whatever runs
    along dp. A wrong gradient on one of them is found."""
    mesh = {"model": "tp_mlp(in=784, hidden=32, out=10)", "mesh": "dp,tp=2", "engine__clip_norm": 0.5}
    found = lines(verify("--ranks", "2,4", "--sync", "all_reduce(op=sum), all_reduce, zero(stage=2, op=sum)", "--float64", "--json", **mesh))
    assert len(found) == 30 and all(line["within"] for line in found), found
    assert all(line["bit_equal"] == line["tensors"] for line in found if line["what"] == "start"), found
    assert all(line["within"] for line in lines(verify("--ranks", "4", "--json", **{**mesh, "mesh": "dp=1,tp=4"})))
    planted = lines(verify("--ranks", "4", "--plant-error", "3", "--json", status=1, **mesh))
    assert not planted[2]["within"] and planted[2]["first"]["tensor"] == "fc1.weight", planted[2]


def rules():
    """Every rule on two models, 2 and 4 ranks, one step and several: gradients within the tolerance lead to no update that is called
    different, however much the rule amplifies them; where it did, the entries are counted."""
    amplified = 0
    for rule in ("sgd", "adam", "adamw", "rmsprop", "adagrad", "lars", "lamb"):
        for model in ({}, CNN):
            found = lines(verify("--ranks", "2,4", "--json", optimizer=rule, **model))
            assert all(line["within"] for line in found), (rule, found)
            assert all(line["amplified"] == 0 for line in found if line["what"] in ("start", "gradient")), found
            amplified += sum(line["amplified"] for line in found)
    assert amplified > 0, "the case that this is about did not come up"
    for rule in ("adam", "rmsprop(momentum=0.9)"):
        assert all(line["within"] for line in lines(verify("--ranks", "2", "--steps", "3", "--json", optimizer=rule, **CNN))), rule


def planted():
    """A rank that computes one gradient wrongly is found for every rule, and the gradient is named; so is another rate, by the update."""
    for rule in ("sgd", "adam", "adamw", "rmsprop", "adagrad"):
        found = lines(verify("--ranks", "2", "--json", "--plant-error", "1", optimizer=rule, status=1))
        assert found[0]["within"] and not found[2]["within"] and not found[3]["within"], (rule, found)
        assert found[2]["first"]["tensor"] == "fc1.weight", found[2]
    rate = lines(verify("--ranks", "2", "--json", "--change", "optimizer=adam(lr=0.0501)", optimizer="adam(lr=0.05)", status=1))
    assert [line["within"] for line in rate] == [True, True, True, True, False], rate
    assert "no such rank" in verify("--ranks", "1,2", "--plant-error", "1", status=2).stderr


def finds():
    """A run that is another one is found out: its seed at the start, its rate in the update, its samples in the gradient; the first
    difference is named with index, both values and ulps, and the exit status is 1."""
    seed = lines(verify("--ranks", "2", "--json", "--change", "seed=2", status=1))
    assert not seed[0]["within"] and seed[0]["first"]["tensor"] and seed[0]["first"]["reference"] != seed[0]["first"]["value"], seed
    rate = lines(verify("--ranks", "2", "--json", "--change", "optimizer=sgd(lr=0.0501, momentum=0.9, weight_decay=1e-3)", status=1))
    assert [line["within"] for line in rate] == [True, True, True, True, False], rate
    first = rate[4]["first"]
    assert first["value"] != first["reference"] and first["ulps"] > 0 and len(first["index"]) in (1, 2), first
    assert abs(rate[4]["relative"] - 0.002) < 1e-4, rate[4]
    sums = verify("--ranks", "2", "--change", "data.batch=4", status=1)
    assert re.search(r"first difference of gradient: \S+\[\d+(, \d+)?\]: \S+ with one rank, \S+ here, \S+ apart \(\d+ ulps\)", sums.stdout), sums.stdout
    assert "DIFFERS" in sums.stdout
    loose = lines(verify("--ranks", "1", "--json", "--tolerance", "0.01", "--change", "optimizer=sgd(lr=0.0501, momentum=0.9, weight_decay=1e-3)"))
    assert loose[4]["within"] and loose[4]["bit_equal"] < loose[4]["tensors"], loose


def refuses():
    """Wrong options: one line, which names the strategies there are where one is unknown."""
    unknown = verify("--ranks", "2", "--sync", "telepathy", status=2)
    assert re.fullmatch(r"cohort verify: unknown strategy 'telepathy'; known: all_reduce, .*\n", unknown.stderr), unknown.stderr
    assert "take steps of their own" in verify("--ranks", "2", "--sync", "diloco", status=2).stderr
    assert "not shared out evenly among 3 ranks" in verify("--ranks", "2,3", "--global-batch", "16", status=2).stderr
    assert "numbers from 1 to" in verify("--ranks", "0", status=2).stderr
    assert "model" in verify("--ranks", "1", status=2, model="nosuch").stderr


{"agrees": agrees, "float64": float64, "meshes": meshes, "rules": rules, "planted": planted, "finds": finds, "refuses": refuses}[sys.argv[2]]()
