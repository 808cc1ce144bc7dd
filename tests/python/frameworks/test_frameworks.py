"""Scripts for the field's frameworks on two ranks: under the backend "cohort" they print the digits that they print under gloo.

`make test-python-all` runs them, `make test` does not: the frameworks come from PyPI, into a virtual environment in the build folder that
sees the torch of this Python.
"""
import pathlib
import subprocess
import sys
import sysconfig

import pytest
import torch

from installed import environment_in
from launch import BUILD, launch, stretched

HERE = pathlib.Path(__file__).parent
FRAMEWORKS = ["lightning>=2.5", "transformers>=5", "accelerate>=1.10"]
PRINTED = ("loss", "accuracy", "evaluation", "product")


@pytest.fixture(scope="session")
def frameworks():
    """(its Python, variables with which it has the package)"""
    folder = BUILD.resolve() / "frameworks"
    python, installed = folder / "venv/bin/python", folder / "installed.txt"
    wanted = "\n".join([*FRAMEWORKS, f"torch=={torch.__version__}", ""])
    if not installed.exists() or installed.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder / "venv"], check=True, timeout=stretched(120))
        (site,) = (folder / "venv").glob("lib/python*/site-packages")
        (site / "torch_is_there.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
        (folder / "constraints.txt").write_text(f"torch=={torch.__version__}\n")
        pip = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "-c", folder / "constraints.txt", *FRAMEWORKS]
        done = subprocess.run(pip, text=True, capture_output=True, timeout=stretched(900))
        assert done.returncode == 0, f"the frameworks could not be installed into {folder}:\n{done.stderr[-3000:]}"
        installed.write_text(wanted)
    return python, environment_in(folder / "cohort")


def digits(frameworks, script, count, *arguments):
    python, env = frameworks
    done = launch(count, HERE / script, *arguments, timeout=180, env={**env, "TOKENIZERS_PARALLELISM": "false"}, python=python)
    lines = [line for line in done.stdout.splitlines() if line.startswith(PRINTED)]
    gloo_at_its_end = "gloo" in arguments and "terminate called without an active exception" in done.stderr  # torch's, after dtensor.py
    assert (done.returncode == 0 or gloo_at_its_end) and lines, done.stdout[-3000:] + done.stderr[-5000:]
    return lines


@pytest.mark.parametrize("script", ["lightning_trainer.py", "transformers_trainer.py", "fsdp2.py", "dtensor.py"])
def test_the_digits_are_those_of_gloo(frameworks, script):
    assert digits(frameworks, script, 2, "cohort") == digits(frameworks, script, 2, "gloo")


@pytest.mark.parametrize("saved_by", ["cohort", "gloo"])
def test_a_checkpoint_is_loaded_by_any_number_of_ranks(frameworks, saved_by, tmp_path):
    """Saved by two ranks over either backend; what follows is what followed there."""
    script = "distributed_checkpoint.py"
    went_on = digits(frameworks, script, 2, saved_by, tmp_path / "state", "save")[4:]
    assert [line.split()[1] for line in went_on] == ["4", "5", "6", "7"]
    for count in (1, 2, 3):  # the checkpoint, and the one that was saved in the background
        assert digits(frameworks, script, count, "cohort", tmp_path / "state", "load") == went_on * 2
