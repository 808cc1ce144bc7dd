#!/usr/bin/env python3
"""tools/can_build_wheels.py names what is missing, and nothing where nothing is."""
import can_build_wheels as tool

assert tool.lacking((70, 1), None) == ""
assert tool.lacking((80, 9), None) == ""
assert tool.lacking((65, 5), (0, 40)) == ""
assert "setuptools 65.5 without wheel" in tool.lacking((65, 5), None)
assert "no setuptools" in tool.lacking(None, (0, 40))
assert "-m pip install -U setuptools" in tool.lacking(None, None)
