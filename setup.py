"""pip install . : the extension module, the programs and their plug-ins, built by CMake against the torch of the Python that runs this.

torch must be the one the package will run with. pip's build isolation hides it, so that is looked past; where no torch is found nothing is built.
COHORT_CMAKE_DIR=build takes that CMake folder (of the same Python) instead of a fresh one.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.dist_info import dist_info

ROOT = pathlib.Path(__file__).resolve().parent
OLDEST = (2, 11)
TORCH = "import importlib.util as u, pathlib as p; s = u.find_spec('torch'); print(p.Path(s.submodule_search_locations[0], 'version.py').read_text())"


def torch_version(environment):
    """Of the torch that this Python imports with these variables; None without."""
    done = subprocess.run([sys.executable, "-c", TORCH], env=environment, capture_output=True, text=True)
    found = re.search(r"__version__ = '((\d+)\.(\d+)[^']*)'", done.stdout)
    return found and (found[1], (int(found[2]), int(found[3])))


def environment_with_torch():
    """Variables with which this Python finds the torch that the package will run with: those it has, or, in pip's isolation, none of its paths."""
    outside = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONNOUSERSITE")}
    for environment in (dict(os.environ), outside):
        if version := torch_version(environment):
            break
    else:
        sys.exit(f"cohort is built against the torch that it will run with, and {sys.executable} has none: install one first (pip install torch), "
                 "then this again; where a build environment hides it (uv, python -m build), switch that off: --no-build-isolation, --no-isolation")
    if version[1] < OLDEST:
        sys.exit(f"cohort needs torch {OLDEST[0]}.{OLDEST[1]} or newer, and {sys.executable} has {version[0]}: pip install -U torch, then this again")
    return environment


class EarlyCheck(dist_info):
    """Before pip fetches what the package depends on: another torch, that the one here would be replaced by after the build."""

    def run(self):
        environment_with_torch()
        super().run()


class CMakeBuild(build_ext):
    """Configures and builds what the package has, and copies it there: cohort/_core*.so, and cohort/bin."""

    def run(self):
        environment = environment_with_torch()
        folder = pathlib.Path(os.environ.get("COHORT_CMAKE_DIR") or pathlib.Path(self.build_temp, "cmake")).resolve()
        generator = ["-G", "Ninja"] if shutil.which("ninja") else []
        subprocess.run(["cmake", "-S", ROOT, "-B", folder, *generator, "-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DCOHORT_TORCH=ON",
                        f"-DCOHORT_PYTHON={sys.executable}"], check=True, env=environment)
        jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or str(os.cpu_count() or 1)
        subprocess.run(["cmake", "--build", folder, "--target", "cohort_wheel", "-j", jobs], check=True, env=environment)
        package = pathlib.Path(self.get_ext_fullpath("cohort._core")).parent
        programs = package / "bin"
        programs.mkdir(parents=True, exist_ok=True)
        for module in folder.glob("python/cohort/_core*.so"):
            shutil.copy2(module, package / module.name)
        for name in ("cohort", "cohort-worker", "libcohort_backend_*.so", "*.py"):  # the last: baselines of `cohort bench`
            for file in folder.glob(f"bin/{name}"):
                ship(file, programs / file.name)


def ship(file, place):
    """Copies a program or library, without its line tables, and lets it find the torch that is installed beside this package."""
    shutil.copy2(file, place)
    if place.suffix == ".py":
        return
    if shutil.which("strip"):
        subprocess.run(["strip", "--strip-debug", place], check=True)
    if b"\0libtorch_cpu.so\0" in place.read_bytes():  # among the names of what it is linked with
        with tempfile.NamedTemporaryFile("w", suffix=".cmake") as script:
            script.write(f'file(RPATH_SET FILE "{place}" NEW_RPATH "$ORIGIN/../../torch/lib")\n')
            script.flush()
            subprocess.run(["cmake", "-P", script.name], check=True, stdout=subprocess.DEVNULL)


def version():
    return re.search(r"project\(Cohort VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())[1]


setup(
    version=version(),
    package_dir={"": "python"},
    packages=find_packages("python"),
    py_modules=["cohort_autoload", "cohort_commands"],
    package_data={"cohort": ["*.pyi", "py.typed"]},
    ext_modules=[Extension("cohort._core", sources=[])],
    cmdclass={"build_ext": CMakeBuild, "dist_info": EarlyCheck},
    zip_safe=False,
)
