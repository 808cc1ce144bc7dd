#!/usr/bin/env python3
"""Exchanges safetensors files with the Python package: check.py <safetensors_exchange> <claim>. Exit status 0 when the claim holds."""
import json
import os
import random
import subprocess
import sys
import tempfile

import numpy
import safetensors
import safetensors.numpy

EXCHANGE = sys.argv[1]
NUMPY = {"U8": "u1", "I8": "i1", "I16": "i2", "U16": "u2", "F16": "f2", "I32": "i4", "U32": "u4", "F32": "f4", "I64": "i8", "U64": "u8",
         "F64": "f8", "BOOL": "?"}
LIMIT = max(60, 20 * float(os.environ.get("COHORT_TEST_SLOWDOWN", "1")))  # seconds for one command


def exchange(*args, status=0):
    done = subprocess.run([EXCHANGE, *args], capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == status, f"{args} ended with {done.returncode}, not {status}:\n{done.stdout}{done.stderr}"
    return done


def pattern(name, count):
    return bytes((7 * i + 1) % (2 if name.startswith("BOOL") else 256) for i in range(count))


def ours(folder):
    """The package accepts our file whole: every type raw, those that numpy has as arrays, and the metadata."""
    path = os.path.join(folder, "ours.safetensors")
    exchange("write", path)
    with open(path, "rb") as file:
        tensors = dict(safetensors.deserialize(file.read()))
    assert len(tensors) > 50, len(tensors)
    for name, tensor in tensors.items():
        assert tensor["dtype"] == name.split(".")[0], (name, tensor["dtype"])
        assert list(tensor["shape"]) == ([] if "single" in name else [0, 5] if "empty" in name else [3, 8]), (name, tensor["shape"])
        assert bytes(tensor["data"]) == pattern(name, len(tensor["data"])), name
    with safetensors.safe_open(path, framework="np") as file:
        assert file.metadata() == {"format": "pt", "größe": '"quoted"\n'}, file.metadata()
        for name, code in NUMPY.items():
            array = file.get_tensor(name)
            assert array.dtype == numpy.dtype(code) and array.shape == (3, 8), (name, array.dtype, array.shape)
            assert array.tobytes() == pattern(name, array.nbytes), name


def theirs(folder):
    """We read what the package writes, bit for bit."""
    path = os.path.join(folder, "theirs.safetensors")
    random_bytes = random.Random(1).randbytes
    arrays = {f"tensor.{name}": numpy.frombuffer(random_bytes(24 * numpy.dtype(code).itemsize), dtype="u1").view(code).reshape(2, 3, 4)
              for name, code in NUMPY.items() if name != "BOOL"}
    arrays["flags"] = numpy.array([True, False, True])
    arrays["empty"] = numpy.zeros((3, 0), dtype="f4")
    arrays["single"] = numpy.array(1.5, dtype="f8")
    arrays["schöner \"name\""] = numpy.arange(5, dtype="i4")
    safetensors.numpy.save_file(arrays, path, metadata={"who": "python"})
    lines = [json.loads(line) for line in exchange("read", path).stdout.splitlines()]
    assert lines.pop() == {"metadata": {"who": "python"}}
    assert {line["name"] for line in lines} == set(arrays), lines
    for line in lines:
        array = arrays[line["name"]]
        assert numpy.dtype(NUMPY[line["dtype"]]) == array.dtype and tuple(line["shape"]) == array.shape, line
        assert bytes.fromhex(line["hex"]) == array.tobytes(), line["name"]


def damaged(folder):
    """What the package refuses, we refuse: a header with one byte changed never passes here and fails there."""
    path = os.path.join(folder, "damaged.safetensors")
    good = safetensors.numpy.save({"a": numpy.arange(6, dtype="f4"), "b": numpy.arange(4, dtype="u1")}, metadata={"k": "v"})
    choose = random.Random(2)
    refused = 0
    for _ in range(200):
        bad = bytearray(good)
        bad[choose.randrange(8 + int.from_bytes(good[:8], "little"))] ^= 1 << choose.randrange(8)
        try:
            safetensors.deserialize(bytes(bad))
            continue
        except safetensors.SafetensorError:
            refused += 1
        with open(path, "wb") as file:
            file.write(bad)
        exchange("read", path, status=1)
    assert refused > 50, refused


with tempfile.TemporaryDirectory(prefix="cohort-safetensors-") as scratch:
    {"ours": ours, "theirs": theirs, "damaged": damaged}[sys.argv[2]](scratch)
