#!/usr/bin/env python3
"""Training over a backend comes to what the native backend does: training.py <folder of programs> <claim> [mpirun]."""
import array
import json
import os
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "train"))
from runs import LIMIT, TINY, Runs  # noqa: E402

NEAR = 1e-5  # backends add in another order; ten steps of a small model do not make more of it
TEN_STEPS = {"epochs": 0, "steps": 10, "checkpoint__every_steps": 10, "data__test": ""}


def parameters(runs, name):
    """{tensor: its numbers} of the newest checkpoint."""
    with open(runs.checkpoints(name)[-1] + "/model.safetensors", "rb") as file:
        data = file.read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    found = {}
    for tensor, entry in header.items():
        if tensor != "__metadata__" and entry["dtype"] == "F32":
            first, last = entry["data_offsets"]
            found[tensor] = array.array("f", data[8 + size + first : 8 + size + last])
    return found


def expect_equal(runs, name, plain="native"):
    ours, theirs = parameters(runs, plain), parameters(runs, name)
    assert ours and ours.keys() == theirs.keys(), f"{plain} has {sorted(ours)}, {name} has {sorted(theirs)}"
    for tensor, values in ours.items():
        worst = max(abs(a - b) / max(1.0, abs(a)) for a, b in zip(values, theirs[tensor], strict=True))
        assert worst < NEAR, f"{name}: {tensor} differs by {worst}"


def gloo(runs):
    """All-reduce and ZeRO over gloo, with lanes and without."""
    runs.train("native", n=3, **TEN_STEPS)
    for i, sets in enumerate([{"engine__lanes": 0}, {"engine__lanes": 2, "engine__bucket": "8KiB"}, {"sync": "zero(stage=2, op=sum)"}]):
        done = runs.train(f"gloo{i}", n=3, backend="gloo", deterministic="false", **sets, **TEN_STEPS)
        assert "backend: gloo: gloo of torch" in done.stdout + done.stderr, done.stdout + done.stderr
        expect_equal(runs, f"gloo{i}")


def mpi(runs, mpirun):
    """The same over MPI, whose launcher starts the workers."""
    runs.train("native", n=3, **TEN_STEPS)
    for i, sets in enumerate([{"engine__lanes": 0}, {"engine__lanes": 2, "engine__bucket": "8KiB"}, {"sync": "zero(stage=2, op=sum)"}]):
        words = [mpirun, "--allow-run-as-root", "--oversubscribe", "-n", "3", os.path.join(os.path.dirname(runs.cohort), "cohort-worker"), "train"]
        for key, value in {**TINY, "backend": "mpi", "deterministic": "false", "out": runs.path(f"mpi{i}"), "threads": 1, **sets, **TEN_STEPS}.items():
            words += ["--set", f"{key.replace('__', '.')}={value}"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT, env=runs.env, cwd=runs.folder)
        assert done.returncode == 0, f"{words} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        assert "backend: mpi: " in done.stdout + done.stderr, done.stdout + done.stderr
        expect_equal(runs, f"mpi{i}")


def refusals(runs):
    """What cannot work is refused before anything starts, in one line with the next step."""
    for sets, text in [({"backend": "gloo"}, "say deterministic=false too, or backend=native"), ({"backend": "glo", "deterministic": "false"}, "did you mean 'gloo'")]:
        done = runs.train("never", n=2, status=2, **sets)
        assert text in done.stderr and not runs.checkpoints("never"), done.stderr
    done = runs.train("never", n=2, status=2, backend="mpi", deterministic="false")
    assert "mpirun -n N program" in done.stderr or "it needs MPI" in done.stderr, done.stderr


def main():
    programs, claim, *more = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        {"gloo": gloo, "mpi": mpi, "refusals": refusals}[claim](Runs(programs, folder), *more)


main()
