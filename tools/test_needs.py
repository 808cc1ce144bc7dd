"""What tests need of the machine beyond the build (for run_tests.py).

Some need what containers may refuse: without it they are skipped, by name, which is said before the first test and in the last line. Skipping is for
what no test can bring about itself. A need is probed, once, when a test has it; a test that has none of these is never skipped.
To add a test: its name to a pattern. `run_tests.py <build> --check` fails for a pattern that fits no test.
What all of them need (lacking()) stops the run before the first.
"""
import os
import re
import shutil
import socket
import subprocess
import tempfile

LIMIT = 20
ROOM = 1 << 30  # bytes: checkpoints and logs of the tests that run at a time, several times over


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
         r"elastic\.Hosts_", r"hostile\.Process_(encrypted|hosts|nodes|storm)$", r"chaos\.Process_row_(4|9|10|12)$"),
    Need("user namespaces", ["unshare", "--map-root-user", "--net", "--mount", "mount", "-t", "tmpfs", "none", "/tmp"],
         r"hostile\.Process_full_shm$", r"chaos\.Process_row_(11|27|35)$"),
    Need("mount, network, ipc and process namespaces together", ["unshare", *([] if os.getuid() == 0 else ["--map-root-user"]), "--mount", "--net", "--ipc",
         "--pid", "--fork", "--mount-proc", "--kill-child", "nft", "list", "ruleset"], r"chaos\.Process_storm$"),
    Need("mounts of one's own", ["unshare", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "none", "/tmp"],
         r"elastic\.Process_full_disk$", r"train\.Process_full_disk$", r"checkpoint\.Process_reshard_full_disk$", r"checkpoint\.StoreProcess\.OnAFullDisk"),
    Need("another user's id", ["setpriv", "--reuid", "65534", "true"], r"hostile\.Process_limits$"),
    Need("process namespaces, made by root", ["unshare", "--pid", "--fork", "--mount-proc", "true"], r"attacks\.Process_(left|owned)_folder$"),
    Need("libfaketime", ["sh", "-c", "cat /usr/lib/*/faketime/libfaketimeMT.so.1 >/dev/null"],
         r"attacks\.Process_(elastic|fixed|monotonic)_clocks$", r"attacks\.Process_(left|owned)_folder$"),
    Need("FUSE, mounted by root", ["unshare", "--mount", "sh", "-c", ": <>/dev/fuse"],
         r"attacks\.Process_(failing|gone|hanging|lacking|slow)_folder$", r"attacks\.Process_hanging_saves$"),
    Need("memory cgroups of version 1", ["test", "-w", "/sys/fs/cgroup/memory/cgroup.procs"], r"attacks\.Process_(crowded|small)_group$"),
)


def no_loopback(address="127.0.0.1"):
    try:
        with socket.create_server((address, 0)) as server:
            socket.create_connection(server.getsockname(), LIMIT).close()
    except OSError as reason:
        return f"tcp over {address}, by which ranks meet ({reason}): `ip link set lo up`"
    return ""


def no_processes(folder="/proc"):
    return "" if os.path.isdir(f"{folder}/self/fd") else f"{folder}, where ranks find each other's memory: `mount -t proc proc {folder}`"


def no_room(folder=None, least=ROOM):
    """Where tests put what they write."""
    try:
        folder = folder or os.environ.get("TMPDIR") or "/tmp"
        tempfile.TemporaryFile(dir=folder).close()
        free = shutil.disk_usage(folder).free
    except OSError as reason:
        return f"a folder for temporary files ({reason}): make one that can be written"
    return "" if free >= least else f"room in {folder}: {free >> 20} MiB are free, tests want {least >> 20} MiB: make room"


def lacking(checks=(no_loopback, no_processes, no_room)):
    """What every run of tests needs and this machine does not have: nothing, as a rule."""
    return [why for why in (check() for check in checks) if why]


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


def tell_before(found):
    """A line for each need that is not met, before the first test."""
    return [f"not on this machine: {why}; tests that are skipped for it, and named in the last line: {len(names)}" for why, names in found]


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
