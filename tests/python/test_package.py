"""The package as users see it: names, help, the torch it was built against, the wheel."""
import inspect
import os
import pathlib
import re
import subprocess
import sys
import venv

import pytest
import setuptools
import torch

import cohort
import cohort.torch as hvd
from launch import BUILD, environment, stretched

SOURCE = pathlib.Path(__file__).resolve().parents[2]
NAMES = """poll synchronize init shutdown is_initialized start_timeline stop_timeline size local_size cross_size rank local_rank cross_rank
mpi_threads_supported mpi_enabled mpi_built gloo_enabled gloo_built nccl_built ddl_built ccl_built cuda_built rocm_built ProcessSet
global_process_set add_process_set remove_process_set Average Sum Adasum Min Max Product HorovodInternalError
allreduce allreduce_async allreduce_ allreduce_async_ grouped_allreduce grouped_allreduce_async grouped_allreduce_ grouped_allreduce_async_
sparse_allreduce_async allgather allgather_async grouped_allgather grouped_allgather_async broadcast broadcast_async broadcast_
broadcast_async_ alltoall alltoall_async reducescatter reducescatter_async grouped_reducescatter grouped_reducescatter_async join
barrier""".split()


def test_every_name_is_there_and_has_help():
    for name in NAMES:
        value = getattr(hvd, name)
        if inspect.isroutine(value) or inspect.isclass(value):
            assert value.__doc__ and value.__doc__.strip(), name
    assert (hvd.Average, hvd.Sum, hvd.Adasum, hvd.Min, hvd.Max, hvd.Product) == tuple(range(6))
    assert issubclass(hvd.HorovodInternalError, RuntimeError)


def test_another_torch_is_refused_with_what_to_do():
    assert cohort._core.torch_version == torch.__version__
    with pytest.raises(ImportError, match="built against torch 2.11.0, but this Python has torch 2.13.0.*pip install --no-build-isolation"):
        cohort._check_torch("2.11.0", "2.13.0")


def test_the_stubs_name_what_the_module_has():
    stubs = pathlib.Path(cohort.__file__).with_name("_core.pyi").read_text()
    for name in vars(cohort._core):
        assert name.startswith("_") or name in stubs, f"_core.pyi does not mention {name}"


FAKE_CMAKE = """#!/bin/sh
for word; do case $word in -DCOHORT_PYTHON=*) exec "${word#*=}" -c "import importlib.util as u; print('cmake finds', u.find_spec('torch').origin)";; esac; done
"""
HIDES_TORCH = "import sys\nsys.path = [path for path in sys.path if path != {!r}]\n"


def link_setuptools(folder):
    site = pathlib.Path(setuptools.__file__).parents[1]
    for part in [*site.glob("setuptools*"), site / "_distutils_hack"]:
        (folder / part.name).symlink_to(part)


def build_in_isolation(tmp_path):
    """What `pip wheel .` runs, in an environment as pip makes it: with setuptools, without the site-packages in which torch is. cmake is a fake that
    says which torch it finds."""
    for name, text in (("bin/cmake", FAKE_CMAKE), ("overlay/sitecustomize.py", HIDES_TORCH.format(str(pathlib.Path(torch.__file__).parents[1])))):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "bin/cmake").chmod(0o755)
    link_setuptools(tmp_path / "overlay")
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "overlay"), "PYTHONNOUSERSITE": "1", "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    return subprocess.run([sys.executable, "setup.py", "-q", "build_ext", "--build-temp", tmp_path, "--build-lib", tmp_path], cwd=SOURCE, env=env,
                          text=True, capture_output=True, timeout=stretched(60))


def test_pips_build_isolation_finds_the_torch_of_this_python(tmp_path):
    done = build_in_isolation(tmp_path)
    assert done.returncode == 0 and f"cmake finds {torch.__file__}" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("version, sentence", [
    (None, "cohort is built against the torch that it will run with, and .* has none: install one first .* --no-build-isolation"),
    ("2.4.1", "cohort needs torch 2.11 or newer, and .* has 2.4.1: pip install -U torch")])
def test_without_a_torch_to_build_against_nothing_is_built(tmp_path, version, sentence):
    venv.create(tmp_path / "venv", with_pip=False)  # a Python of its own, as uv and `python -m build` make one
    (site,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    link_setuptools(site)
    if version:
        (site / "torch").mkdir()
        (site / "torch/__init__.py").write_text("")
        (site / "torch/version.py").write_text(f"__version__ = '{version}'\n")
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for command in "dist_info", "build_ext":
        done = subprocess.run([tmp_path / "venv/bin/python", "setup.py", "-q", command], cwd=SOURCE, env=env, text=True, capture_output=True,
                              timeout=stretched(60))
        assert done.returncode == 1 and re.search(sentence, done.stderr), done.stdout + done.stderr


@pytest.mark.long
def test_a_wheel_installs_and_runs(tmp_path):
    env = {**os.environ, "COHORT_CMAKE_DIR": str(BUILD)}
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "-q", "--no-build-isolation", "--no-deps", "-w", tmp_path, SOURCE], check=True, env=env, timeout=stretched(1500))
    (wheel,) = tmp_path.glob("cohort-*.whl")
    subprocess.run([*pip, "install", "-q", "--no-deps", "--no-index", "--target", tmp_path / "site", wheel], check=True, timeout=stretched(300))
    script = "import torch, cohort.torch as hvd; hvd.init(); print(hvd.allreduce(torch.ones(1), op=hvd.Sum).item(), hvd.__file__)"
    done = subprocess.run([tmp_path / "site/cohort/bin/cohort", "run", "-n", "2", "--", sys.executable, "-c", script], text=True,
                          capture_output=True, timeout=stretched(60), env={**os.environ, "PYTHONPATH": str(tmp_path / "site")})
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("2.0 " + str(tmp_path / "site")) == 2, done.stdout
    commands_work_from_any_folder(wheel, tmp_path)


def commands_work_from_any_folder(wheel, tmp_path):
    """Its commands in a fresh environment that sees this one's torch, where PATH leads to another Python without torch."""
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv/bin/python"
    (site,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    (site / "torch_is_there.pth").write_text(str(pathlib.Path(torch.__file__).parents[1]) + "\n")
    subprocess.run([sys.executable, "-m", "pip", "--python", python, "install", "-q", "--disable-pip-version-check", "--no-deps", "--no-index",
                    wheel], check=True, timeout=stretched(300))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/who.py").write_text("import sys, torch, cohort; print(sys.executable, cohort.__file__)\n")
    (tmp_path / "elsewhere/bare.py").write_text("import torch.distributed as d; d.init_process_group('cohort'); print(d.get_backend())\n")
    (tmp_path / "elsewhere/where.py").write_text("import sys; print(sys.executable)\n")
    hidden = ("LD_LIBRARY_PATH", "PYTHONPATH", "COHORT_PYTHON", "PYTHON_EXEC", "COHORT_BUILD", "COHORT_BINARY")
    env = {**{name: value for name, value in os.environ.items() if name not in hidden}, "PATH": "/usr/bin:/bin"}

    def said(command, *arguments):
        done = subprocess.run([tmp_path / "venv/bin" / command, *arguments], cwd=tmp_path / "elsewhere", env=env, text=True, capture_output=True,
                              timeout=stretched(120))
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert said("cohort", "run", "-n", "2", "--no-prefix", "who.py").count(f"{python} {site}/cohort/") == 2
    assert said("cohort", "run", "-n", "2", "--no-prefix", "bare.py") == "cohort\n" * 2  # by its entry point (test_autoload.py)
    assert said("cohort", "run", "--no-prefix", "--python", sys.executable, "where.py") == sys.executable + "\n"
    assert re.search(f"^OK *worker .*{site}/cohort/bin/cohort-worker starts", said("cohort", "doctor"), re.MULTILINE)
    assert "task" in said("cohort-worker", "--help")
    said("cohort", "train", "-n", "2", "--set", "model=mlp(in=784, hidden=16, out=10)", "--set", "data.test=", "--set", "data.batch=10",
         "--set", "data.train=synthetic(shape=1x28x28, classes=10, samples=200)", "--set", "epochs=0", "--set", "steps=3", "--out", "run")
    assert (tmp_path / "elsewhere/run/metrics.jsonl").exists()
