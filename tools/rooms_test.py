"""tools/rooms.py catches what it is there to catch."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).with_name("rooms.py")


class Rooms(unittest.TestCase):
    def check(self, include, inside):
        """Runs the check on a house of three rooms where `inside` includes `include`."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for room, layer in {"low": 0, "left": 1, "right": 1}.items():
                (root / "cohort" / room).mkdir(parents=True)
                (root / "cohort" / room / "CMakeLists.txt").write_text(f"cohort_room({room} LAYER {layer})\n")
            (root / "cohort" / inside).write_text(f'#pragma once\n#include "cohort/{include}"\n')
            run = [sys.executable, TOOL, "--root", root]
            subprocess.run([*run, "--draw"], check=True, capture_output=True, timeout=20)
            done = subprocess.run([*run, "--check"], capture_output=True, text=True, timeout=20)
            return done.returncode, done.stderr

    def test_an_arrow_down_is_fine(self):
        self.assertEqual(self.check("low/a.h", inside="left/b.h"), (0, ""))

    def test_an_arrow_up_fails_and_names_the_line(self):
        code, text = self.check("left/b.h", inside="low/a.h")
        self.assertEqual(code, 1)
        self.assertIn("cohort/low/a.h:2: low (layer 0) points up at left (layer 1)", text)

    def test_an_arrow_sideways_fails(self):
        code, text = self.check("right/c.h", inside="left/b.cc")
        self.assertEqual(code, 1)
        self.assertIn("left points sideways at right", text)

    def test_tests_obey_too(self):
        self.assertEqual(self.check("left/b.h", inside="low/a_test.cc")[0], 1)

    def test_no_room_uses_the_front_door(self):
        code, text = self.check("cohort.h", inside="left/b.h")
        self.assertEqual(code, 1)
        self.assertIn("for outside programs", text)

    def test_an_unknown_room_fails(self):
        self.assertEqual(self.check("attic/d.h", inside="left/b.h")[0], 1)


if __name__ == "__main__":
    unittest.main()
