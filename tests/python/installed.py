"""Makes the build folder's package look installed: a folder with the metadata that pip would write, the entry points of pyproject.toml."""
import pathlib

from launch import BUILD

ROOT = pathlib.Path(__file__).resolve().parents[2]


def environment_in(folder):
    """Variables with which a Python has the package, as from a wheel. The metadata is written into `folder`."""
    lines = (ROOT / "pyproject.toml").read_text().splitlines()
    first = lines.index('[project.entry-points."torch.backends"]') + 1
    entries = [line.replace('"', "") for line in lines[first:] if " = " in line]
    info = folder / "cohort-0.0.0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: cohort\nVersion: 0.0.0\n")
    (info / "entry_points.txt").write_text("\n".join(["[torch.backends]", *entries, ""]))
    return {"PYTHONPATH": f"{BUILD.resolve() / 'python'}:{folder.resolve()}"}
