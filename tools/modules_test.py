"""tools/modules.py catches what it is there to catch."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).with_name("modules.py")


class Modules(unittest.TestCase):
    def check(self, include, inside, links="cohort_low", more=()):
        """Runs the check on a tree of three modules where `inside` includes `include`; more: further (included, inside)."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for module, layer in {"low": 0, "left": 1, "right": 1}.items():
                (root / "cohort" / module).mkdir(parents=True)
                words = f"LINKS {links}" if module == "left" else ""
                (root / "cohort" / module / "CMakeLists.txt").write_text(f"cohort_module({module} LAYER {layer} {words})\n")
            for included, file in [(include, inside), *more]:
                (root / "cohort" / file).parent.mkdir(exist_ok=True)
                (root / "cohort" / file).write_text(f'#pragma once\n#include "cohort/{included}"\n')
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

    def test_no_module_uses_the_public_header(self):
        code, text = self.check("cohort.h", inside="left/b.h")
        self.assertEqual(code, 1)
        self.assertIn("for outside programs", text)

    def test_an_unknown_module_fails(self):
        self.assertEqual(self.check("attic/d.h", inside="left/b.h")[0], 1)

    def test_links_point_down_too(self):
        code, text = self.check("low/a.h", inside="left/b.h", links="cohort_low cohort_right")
        self.assertEqual(code, 1)
        self.assertIn("cohort_left (layer 1) links cohort_right of layer 1", text)

    def test_what_is_included_is_linked(self):
        code, text = self.check("low/a.h", inside="left/b.h", links="")
        self.assertEqual(code, 1)
        self.assertIn("left includes low, but its LINKS do not lead there: name cohort_low", text)

    def test_a_folder_may_include_another(self):
        self.assertEqual(self.check("left/x/a.h", inside="left/y/b.h"), (0, ""))

    def test_folders_may_not_go_in_a_circle(self):
        code, text = self.check("left/x/a.h", inside="left/y/b.h", more=[("left/c.h", "left/x/a.h"), ("left/y/b.h", "left/c.h")])
        self.assertEqual(code, 1)
        self.assertIn("folders of left go in a circle: . -> y (cohort/left/c.h:2), y -> x", text)


if __name__ == "__main__":
    unittest.main()
