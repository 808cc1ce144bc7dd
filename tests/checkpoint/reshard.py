#!/usr/bin/env python3
"""Claims about `cohort reshard`: reshard.py <folder of programs> <safetensors_exchange> <claim>. Exit status 0 when the claim holds."""
import glob
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile

COHORT, EXCHANGE = os.path.join(os.path.abspath(sys.argv[1]), "cohort"), sys.argv[2]
LIMIT = max(60, 20 * float(os.environ.get("COHORT_TEST_SLOWDOWN", "1")))  # seconds for one command


def cohort(*args, status=0, **more):
    done = subprocess.run([COHORT, "reshard", *args], capture_output=True, text=True, timeout=LIMIT, **more)
    assert done.returncode == status, f"{args} ended with {done.returncode}, not {status}:\n{done.stdout}{done.stderr}"
    return done


def contents(folder):
    return {name: open(os.path.join(folder, name), "rb").read() for name in os.listdir(folder)}


def source(folder):
    """A checkpoint of one rank, by hand: a model with every type, and an optimizer's state."""
    path = os.path.join(folder, "from", "step-00000007")
    subprocess.run([EXCHANGE, "checkpoint", path], check=True, timeout=LIMIT)
    return path


def there_and_back(folder):
    """Cut for any number of ranks and stage, and put together again, a checkpoint has the bytes it had."""
    path, before = source(folder), contents(source(folder))
    for ranks, stage in (1, 1), (2, 3), (3, 2), (5, 3), (9, 3):
        cut, back = os.path.join(folder, f"cut{ranks}"), os.path.join(folder, f"back{ranks}")
        done = cohort(path, cut, "--ranks", str(ranks), "--stage", str(stage), "--json")
        said = json.loads(done.stdout)
        assert said["to"] == f"{cut}/step-00000007" and said["files"] == (2 * ranks if stage == 3 else 1 + ranks), said
        cohort(cut, back, "--stage", "0", "-n", "4")
        assert contents(f"{back}/step-00000007") == before, f"other bytes by way of {ranks} ranks at stage {stage}"


def plain(folder):
    """One file, which Python's package reads: the same tensors, bit for bit."""
    import numpy
    import safetensors
    path = source(folder)
    cohort(path, f"{folder}/cut", "-n", "3", "-s", "3")
    cohort(f"{folder}/cut", f"{folder}/plain.safetensors", "--consolidate")
    cohort(f"{folder}/cut", f"{folder}/all.safetensors", "--consolidate", "--optimizer")
    wanted = dict(safetensors.deserialize(contents(path)["model.safetensors"]))
    for name in "plain", "all":
        with open(f"{folder}/{name}.safetensors", "rb") as file:
            found = dict(safetensors.deserialize(file.read()))
        assert set(wanted) <= set(found) and (name == "all") == ("F32/momentum" in found), sorted(found)
        for tensor in wanted:
            assert found[tensor] == wanted[tensor], tensor
    with safetensors.safe_open(f"{folder}/plain.safetensors", framework="np") as file:
        assert file.get_tensor("F32").dtype == numpy.float32 and file.metadata() == {"format": "pt"}, file.metadata()
    with safetensors.safe_open(glob.glob(f"{folder}/cut/*/model-00001-of-00003.safetensors")[0], framework="np") as file:
        assert file.keys(), "a rank's file is a safetensors file too"


def refused(folder):
    """Damage, wrong options and what is there already: one line that says which, and nothing written."""
    path = source(folder)
    cohort(path, f"{folder}/cut", "-n", "2", "-s", "3")
    again = cohort(path, f"{folder}/cut", "-n", "3", "-s", "3", status=2)
    assert again.stderr == f"cohort reshard: {folder}/cut/step-00000007 is there already, and nothing is overwritten: name another, or move it\n", again.stderr
    assert "say what to write" in cohort(path, f"{folder}/x", status=2).stderr
    assert "stage 4" in cohort(path, f"{folder}/x", "-n", "2", "-s", "4", status=2).stderr
    assert "excludes" in cohort(path, f"{folder}/x", "-n", "2", "--consolidate", status=2).stderr
    assert "holds no checkpoint" in cohort(folder, f"{folder}/x", "-s", "0", status=2).stderr
    with open(f"{folder}/cut/step-00000007/manifest.json") as file:
        piece = max(json.load(file)["pieces"], key=lambda p: p["count"])
    with open(f"{folder}/cut/step-00000007/{piece['file']}", "r+b") as file:
        file.seek(piece["offset"])
        byte = file.read(1)
        file.seek(piece["offset"])
        file.write(bytes([byte[0] ^ 1]))
    bad = cohort(f"{folder}/cut", f"{folder}/x", "-s", "0", status=1).stderr
    assert len(bad.splitlines()) == 1 and piece["sha256"] in bad and piece["file"] in bad and f"offset {piece['offset']}" in bad, bad
    assert os.listdir(f"{folder}/x") == [], "something is left"


def file_limit(folder):
    """Files that may not grow: which one, at which offset, and nothing is left."""
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    path = source(folder)
    for words in ([f"{folder}/x", "-s", "0"], [f"{folder}/x/one.safetensors", "--consolidate"]):
        os.makedirs(f"{folder}/x", exist_ok=True)
        done = cohort(path, *words, status=1, preexec_fn=limit)
        assert ".safetensors at offset" in done.stderr and "File too large" in done.stderr, done.stderr
        assert os.listdir(f"{folder}/x") == [], "something is left"


def full_disk(folder):
    """A full disk is called one, and nothing is left. Needs the right to mount (tools/test_needs.py)."""
    path = source(folder)
    os.makedirs(f"{folder}/x")
    script = 'mount -t tmpfs -o size=4k none "$0" && "$@"; code=$?; ls -A "$0"; exit $code'
    small = subprocess.run(["unshare", "-rm", "sh", "-c", script, f"{folder}/x", COHORT, "reshard", path, f"{folder}/x", "-s", "0"],
                           capture_output=True, text=True, timeout=LIMIT)
    assert small.returncode == 1 and "full disk" in small.stderr and small.stdout == "", small


with tempfile.TemporaryDirectory(prefix="cohort-reshard-") as scratch:
    {"there_and_back": there_and_back, "plain": plain, "refused": refused, "file_limit": file_limit, "full_disk": full_disk}[sys.argv[3]](scratch)
