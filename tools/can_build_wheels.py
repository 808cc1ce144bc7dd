#!/usr/bin/env python3
"""Whether this Python can build the package (`make python`): says what to install where it cannot, which pip does not.

`pip install --no-build-isolation` builds with what the Python has: setuptools 70.1 or newer, or an older one beside `wheel`.
"""
import importlib.metadata
import sys

NEEDED = (70, 1)


def version(name):
    try:
        return tuple(int(part) for part in importlib.metadata.version(name).split(".")[:2] if part.isdigit())
    except importlib.metadata.PackageNotFoundError:
        return None


def lacking(setuptools, wheel):
    """What to say; empty when nothing is missing."""
    if setuptools is not None and (setuptools >= NEEDED or wheel is not None):
        return ""
    has = "no setuptools" if setuptools is None else "setuptools " + ".".join(map(str, setuptools)) + " without wheel"
    return f"{sys.executable} has {has}: the package is built with setuptools 70.1 or newer; `{sys.executable} -m pip install -U setuptools` brings it"


if __name__ == "__main__":
    sys.exit(lacking(version("setuptools"), version("wheel")) or 0)
