"""The `cohort` program that ships inside the package, as a console command."""
import os
import pathlib
import sys


def path():
    """Where the program lies: in the package, or beside it in a build folder."""
    here = pathlib.Path(__file__).parent
    for place in (here / "bin" / "cohort", here.parent.parent / "bin" / "cohort"):
        if place.exists():
            return str(place)
    raise FileNotFoundError(f"the program cohort is neither in {here / 'bin'} nor in a build folder; install the package: pip install .")


def main():
    os.execv(path(), [path(), *sys.argv[1:]])
