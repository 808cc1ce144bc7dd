"""pip install . : the extension module and the launcher, built by CMake against the torch of the Python that runs this.

torch must be the one the package will run with, so pip's build isolation is off:  pip install --no-build-isolation .
COHORT_CMAKE_DIR=build takes that CMake folder (of the same Python) instead of a fresh one.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext

ROOT = pathlib.Path(__file__).resolve().parent


class CMakeBuild(build_ext):
    """Configures and builds the targets cohort_python and cohort, and copies both into the package."""

    def run(self):
        folder = pathlib.Path(os.environ.get("COHORT_CMAKE_DIR") or pathlib.Path(self.build_temp, "cmake")).resolve()
        generator = ["-G", "Ninja"] if shutil.which("ninja") else []
        subprocess.run(["cmake", "-S", ROOT, "-B", folder, *generator, "-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DCOHORT_TORCH=ON",
                        f"-DCOHORT_PYTHON={sys.executable}"], check=True)
        jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or str(os.cpu_count() or 1)
        subprocess.run(["cmake", "--build", folder, "--target", "cohort_python", "cohort", "-j", jobs], check=True)
        package = pathlib.Path(self.get_ext_fullpath("cohort._core")).parent
        (package / "bin").mkdir(parents=True, exist_ok=True)
        for module in folder.glob("python/cohort/_core*.so"):
            shutil.copy2(module, package / module.name)
        shutil.copy2(folder / "bin" / "cohort", package / "bin" / "cohort")


def version():
    return re.search(r"project\(Cohort VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())[1]


setup(
    version=version(),
    package_dir={"": "python"},
    packages=find_packages("python"),
    package_data={"cohort": ["*.pyi", "py.typed"]},
    ext_modules=[Extension("cohort._core", sources=[])],
    cmdclass={"build_ext": CMakeBuild},
    zip_safe=False,
)
