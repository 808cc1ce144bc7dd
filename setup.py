"""pip install . : the extension module, the programs and their plug-ins, built by CMake against the torch of the Python that runs this.

torch must be the one the package will run with, so pip's build isolation is off:  pip install --no-build-isolation .
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

ROOT = pathlib.Path(__file__).resolve().parent


class CMakeBuild(build_ext):
    """Configures and builds what the package has, and copies it there: cohort/_core*.so, and cohort/bin."""

    def run(self):
        folder = pathlib.Path(os.environ.get("COHORT_CMAKE_DIR") or pathlib.Path(self.build_temp, "cmake")).resolve()
        generator = ["-G", "Ninja"] if shutil.which("ninja") else []
        subprocess.run(["cmake", "-S", ROOT, "-B", folder, *generator, "-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DCOHORT_TORCH=ON",
                        f"-DCOHORT_PYTHON={sys.executable}"], check=True)
        jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or str(os.cpu_count() or 1)
        subprocess.run(["cmake", "--build", folder, "--target", "cohort_wheel", "-j", jobs], check=True)
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
    cmdclass={"build_ext": CMakeBuild},
    zip_safe=False,
)
