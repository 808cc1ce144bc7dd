"""The console commands `cohort` and `cohort-worker`: the programs inside the package, for the Python it is installed in.

A module of its own: importing the package `cohort` would import torch, which takes seconds. Neither is imported here.
"""
import importlib.util
import os
import pathlib
import sys


def _folder(package):
    spec = importlib.util.find_spec(package)
    return pathlib.Path(next(iter(spec.submodule_search_locations))) if spec and spec.submodule_search_locations else None


def _environment(programs):
    """What the programs are told of this Python: which it is, and where its libtorch lies when that is not beside the package."""
    environment = {**os.environ, "COHORT_INSTALLED_PYTHON": sys.executable}
    torch = _folder("torch")
    if torch and torch.parent != programs.parent.parent:  # else their own run path leads there
        paths = [str(torch / "lib"), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
        environment["LD_LIBRARY_PATH"] = os.pathsep.join(paths)
    return environment


def _run(name):
    programs = _folder("cohort") / "bin"
    program = programs / name
    if not program.exists():
        sys.exit(f"{name}: {program} is missing: the package is not installed whole; install it again: pip install --no-build-isolation . "
                 "(in Cohort's source folder)")
    os.execve(program, [str(program), *sys.argv[1:]], _environment(programs))


def cohort():
    _run("cohort")


def worker():
    _run("cohort-worker")
