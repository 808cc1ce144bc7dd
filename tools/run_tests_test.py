"""tools/run_tests.py tells a run as it was: what passed in a later try is no failure and no secret, what fails for good fails the run."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import test_needs  # noqa: E402

PASSES_IN_TRY = 'echo x >> {0}; test $(wc -l < {0}) -ge {1} || {{ echo not yet; exit 1; }}'


class Build:
    """A folder that ctest takes for a build: tests are lines of shell."""

    def __init__(self, folder):
        self.folder, self.lines = pathlib.Path(folder), []

    def add(self, name, shell, labels="unit", limit=20, more=""):
        properties = (f' LABELS "{labels}"' if labels else "") + (f" TIMEOUT {limit}" if limit else "") + more
        self.lines += [f"add_test({name} sh -c [==[{shell}]==])", f"set_tests_properties({name} PROPERTIES PROCESSORS 1{properties})"]

    def add_late(self, name, tries, labels):
        self.add(name, PASSES_IN_TRY.format(self.folder / name, tries), labels)

    def run(self, *words, unshare=None, before="", **more):
        """unshare: a line of shell in place of that program. before: shell, before the run. more: of the environment."""
        (self.folder / "CTestTestfile.cmake").write_text("\n".join(self.lines))
        env = {**os.environ, **more}
        if unshare:
            (self.folder / "bin").mkdir()
            (self.folder / "bin/unshare").write_text(f"#!/bin/sh\n{unshare}\n")
            (self.folder / "bin/unshare").chmod(0o755)
            env["PATH"] = f"{self.folder}/bin:{env['PATH']}"
        shell = ["sh", "-c", f'{before}\nexec "$@"', "sh"]
        done = subprocess.run([*shell, sys.executable, HERE / "run_tests.py", self.folder, *words], capture_output=True, text=True, timeout=50, env=env)
        return done.returncode, done.stdout

    def counts(self):
        done = subprocess.run([sys.executable, HERE / "counts.py", self.folder / "results" / "ctest.xml"], capture_output=True, text=True, timeout=20)
        return done.returncode, done.stdout.splitlines()[-1]

    def flaky(self):
        return (self.folder / "flaky.txt").read_text()

    def tries(self, name):
        return len((self.folder / name).read_text().splitlines())


class Run(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.build = Build(folder.name)

    def test_what_passes_at_once_is_not_flaky(self):
        self.build.add("fine", "true")
        self.build.add("several", "true", "process")
        self.assertEqual(self.build.run()[0], 0)
        self.assertEqual((self.build.counts(), self.build.flaky()), ((0, "2 passed, 0 failed"), ""))

    def test_a_run_in_the_background_whose_shell_ignores_interrupts_has_tests_that_heed_them(self):
        self.build.add("heeds", "kill -INT $$; echo it goes on; exit 3")
        self.build.add("quits", "ulimit -c 0; kill -QUIT $$; echo it goes on; exit 3")
        said = self.build.run(before="trap '' INT QUIT")[1]
        self.assertNotIn("it goes on", said)
        self.assertIn("ended with -2", said)
        self.assertIn("ended with -3", said)

    def test_what_the_machine_refuses_is_skipped_by_name_and_counted_apart(self):
        self.build.add("elastic.Hosts_spread", "echo it ran; false", "process")
        self.build.add("hostile.Process_full_shm", "echo it ran; false", "process")
        self.build.add("fine", "true")
        code, said = self.build.run(unshare="echo not in this container; exit 1")
        self.assertEqual(code, 0, said)
        self.assertRegex(said.splitlines()[-1], r"^1 of 1 tests passed in .*; 2 skipped: elastic.Hosts_spread \(network namespaces, made by root: .*"
                                                r"says not in this container\); hostile.Process_full_shm \(user namespaces: .*\)$")
        self.assertEqual(self.build.counts(), (0, "1 passed, 0 failed, 2 skipped"))

    def test_what_will_be_skipped_is_said_before_the_first_test(self):
        self.build.add("train.Process_full_disk", "echo it ran; false", "process")
        self.build.add("fine", "true")
        code, said = self.build.run(unshare="echo not in this container; exit 1")
        self.assertEqual(code, 0, said)
        self.assertRegex(said.splitlines()[0], r"^not on this machine: mounts of one's own: .* says not in this container; tests that are skipped for it, .*: 1$")
        self.assertIn("1 skipped: train.Process_full_disk (mounts of one's own: ", said.splitlines()[-1])

    def test_what_all_tests_need_is_said_instead_of_running_them(self):
        self.build.add("fine", f"touch {self.build.folder}/ran")
        code, said = self.build.run(TMPDIR=f"{self.build.folder}/gone")
        self.assertEqual(code, 1)
        self.assertRegex(said, r"^the tests cannot run on this machine, which lacks a folder for temporary files \(.*No such file or directory: .*/gone.*\n$")
        self.assertFalse((self.build.folder / "ran").exists())

    def test_a_machine_without_loopback_proc_or_room_lacks_them_by_name(self):
        for why, part in ((test_needs.no_loopback("192.0.2.1"), "tcp over 192.0.2.1"), (test_needs.no_processes("/nowhere"), "mount -t proc proc /nowhere"),
                          (test_needs.no_room("/nowhere"), "No such file or directory"), (test_needs.no_room("/tmp", 1 << 60), "MiB are free, tests want")):
            self.assertIn(part, why)
        self.assertEqual(test_needs.lacking((lambda: "", lambda: "one", lambda: "two")), ["one", "two"])

    def test_where_the_machine_has_it_nothing_is_skipped(self):
        self.build.add("elastic.Hosts_spread", "false", "process")
        code, said = self.build.run(unshare="true")
        self.assertEqual((code, self.build.counts()), (1, (1, "0 passed, 1 failed")), said)
        self.assertNotIn("skipped", said)

    def test_a_name_in_the_list_of_needs_that_no_test_has_is_a_fault(self):
        self.build.add("elastic.Hosts_spread", "true", "process")
        self.build.add("elastic.Process_full_disk", "true", "process")
        self.assertEqual(self.build.run("--check")[0], 0)
        self.build.lines.clear()
        self.build.add("elastic.Other", "true")
        code, said = self.build.run("--check")
        self.assertEqual(code, 1)
        self.assertIn(r"no test is named like elastic\.Hosts_", said)

    def test_a_run_of_nothing_but_skipped_tests_proves_nothing(self):
        self.build.add("elastic.Hosts_spread", "true", "process")
        self.assertEqual(self.build.run(unshare="exit 1")[0], 1)

    def test_a_process_test_that_passes_in_its_third_try_is_listed_and_counts_once(self):
        self.build.add_late("late", 3, "process")
        code, said = self.build.run()
        self.assertEqual(code, 0, said)
        self.assertIn("flaky: late passed in try 3", said)
        self.assertRegex(self.build.flaky(), r"late: passed in try 3\n  try 1: ended with 1 .*\n *not yet\n  try 2: ")
        self.assertEqual(self.build.counts(), (0, "1 passed, 0 failed"))

    def test_a_process_test_that_fails_three_times_fails_the_run(self):
        self.build.add_late("never", 4, "process")
        self.build.add("fine", "true")
        code, said = self.build.run()
        self.assertEqual((code, self.build.tries("never"), self.build.counts()), (1, 3, (1, "1 passed, 1 failed")))
        self.assertIn("failed: never", said)

    def test_a_unit_test_has_one_try(self):
        self.build.add_late("once", 2, "unit")
        self.assertEqual((self.build.run()[0], self.build.tries("once"), self.build.counts()), (1, 1, (1, "0 passed, 1 failed")))

    def test_slow_ones_can_be_left_out(self):
        self.build.add("fine", "true")
        self.build.add("long", "false", "process;slow")
        self.assertEqual((self.build.run("-LE", "slow")[0], self.build.counts()), (0, (0, "1 passed, 0 failed")))

    def test_one_that_takes_too_long_is_ended_with_all_that_it_started(self):
        self.build.add("stuck", "sleep 1000 & echo $!; wait", limit=0.2)
        code, said = self.build.run()
        self.assertEqual(code, 1)
        self.assertIn("killed: it may take", said)
        left = pathlib.Path("/proc", said.split("killed")[1].splitlines()[1].strip(), "stat")
        self.assertTrue(not left.exists() or left.read_text().split()[2] == "Z")

    def test_what_tested_nothing_did_not_pass(self):
        self.build.add("skipped", "echo SKIPPED", more=" SKIP_REGULAR_EXPRESSION SKIPPED")
        self.assertEqual((self.build.run()[0], self.build.counts()[0]), (1, 1))

    def test_one_that_cannot_be_started_fails(self):
        self.build.lines = ["add_test(gone /no/such/program)", "set_tests_properties(gone PROPERTIES LABELS unit TIMEOUT 5)"]
        self.assertEqual(self.build.run()[0], 1)

    def test_no_tests_at_all_are_a_failure(self):
        self.assertEqual(self.build.run()[0], 1)

    def test_a_test_without_label_or_limit_is_refused_before_anything_runs(self):
        for labels, limit in (("", 5), ("slow", 5), ("unit;process", 5), ("unit;other", 5), ("unit", 0)):
            self.build.lines = []
            self.build.add("bare", f"touch {self.build.folder}/ran", labels, limit)
            code, said = self.build.run()
            self.assertEqual((code, "bare has" in said), (1, True), (labels, limit, said))
            self.assertEqual(self.build.run("--check")[0], 1)
        self.assertFalse((self.build.folder / "ran").exists())


if __name__ == "__main__":
    unittest.main()
