"""What some tests need of the machine beyond the build, which containers may refuse (for run_tests.py): without it they are skipped, by name.

Skipping is for what no test can bring about itself. A need is probed, once, when a test has it; a test that has none of these is never skipped.
To add a test: its name to a pattern. `run_tests.py <build> --check` fails for a pattern that fits no test.
"""
import re
import subprocess

LIMIT = 20


class Need:
    def __init__(self, what, probe, *names):
        """probe: a command that succeeds where the machine has it. names: patterns of tests, as `program.Suite.` or `program.Process_claim$`."""
        self.what, self.probe, self.names = what, probe, [re.compile(name) for name in names]

    def fits(self, test):
        return any(name.match(test.name) for name in self.names)

    def missing(self):
        """Why the machine does not have it; empty when it has."""
        try:
            done = subprocess.run(self.probe, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT)
        except (OSError, subprocess.TimeoutExpired) as reason:
            return f"{self.what}: {reason}"
        said = " ".join((done.stdout + done.stderr).split())
        return f"{self.what}: `{' '.join(self.probe)}` says {said or done.returncode}" if done.returncode else ""


NEEDS = (
    Need("network namespaces, made by root", ["unshare", "--net", "ip", "link", "set", "lo", "up"],
         r"launch_process\.Hosts(Ending|Signals)?Process\.", r"launch_process\.NodesProcess\.(?!MissingOptions)", r"launch_training\.",
         r"elastic\.Hosts_", r"hostile\.Process_(hosts|nodes|storm)$", r"chaos\.Process_row_(4|9|10|12)$"),
    Need("user namespaces", ["unshare", "--map-root-user", "--net", "--mount", "mount", "-t", "tmpfs", "none", "/tmp"],
         r"hostile\.Process_full_shm$", r"chaos\.Process_row_(11|27)$"),
)


def set_aside(tests, needs=NEEDS):
    """Marks the tests (test.unmet) whose need this machine does not have; returns [(why, their names)]."""
    found = []
    for need in needs:
        these = [test for test in tests if need.fits(test)]
        why = need.missing() if these else ""
        if why:
            for test in these:
                test.unmet = why
            found.append((why, [test.name for test in these]))
    return found


def tell_skipped(found):
    """"; 2 skipped: a, b (user namespaces: ...)", for the last line of a run; empty for none."""
    if not found:
        return ""
    return f"; {sum(len(names) for _, names in found)} skipped: " + "; ".join(f"{', '.join(names)} ({why})" for why, names in found)


def idle_patterns(tests, needs=NEEDS):
    """Patterns of programs that are built which fit none of the tests: names that changed."""
    programs = {test.name.split(".")[0] for test in tests}
    patterns = [name for need in needs for name in need.names if name.pattern.split("\\")[0] in programs]
    return [name.pattern for name in patterns if not any(name.match(test.name) for test in tests)]
