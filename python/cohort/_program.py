"""The `cohort` program that ships inside the package (cohort_commands.py is the console command)."""
import pathlib


def path():
    """Where the program lies: in the package, or beside it in a build folder."""
    here = pathlib.Path(__file__).parent
    for place in (here / "bin" / "cohort", here.parent.parent / "bin" / "cohort"):
        if place.exists():
            return str(place)
    raise FileNotFoundError(f"the program cohort is neither in {here / 'bin'} nor in a build folder; install the package: pip install .")
