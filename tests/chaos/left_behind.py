"""What jobs left behind, in namespaces of one's own (isolated.py): processes, shared memory, temporary files, sockets. Nothing else runs there."""
import os
import signal
import time

from jobs import processes, wait_until

LISTENS = "0A"  # state of a TCP socket in /proc/net/tcp


def others():
    """Processes beside this one that have not ended."""
    return {pid: name for pid, (_, name, state) in processes().items() if pid != os.getpid() and state not in "ZX"}


def sockets():
    """TCP sockets that listen, and unix sockets, by address."""
    found = set()
    for name in ("tcp", "tcp6"):
        with open(f"/proc/net/{name}") as table:
            found |= {f"{name} {line.split()[1]}" for line in table.readlines()[1:] if line.split()[3] == LISTENS}
    with open("/proc/net/unix") as table:
        return found | {f"unix {line.split()[7]}" for line in table.readlines()[1:] if len(line.split()) > 7}


def tell(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:  # it ended by itself meanwhile
        pass


class MachineState:
    """The machine as it is before a job."""

    def __init__(self, folders=("/dev/shm", "/tmp")):
        self.folders, self.before = folders, {}
        self.before = self.look()

    def look(self):
        return {"sockets": sockets(), **{folder: set(os.listdir(folder)) for folder in self.folders}}

    def left(self):
        """What is there now and was not, in words; empty: nothing."""
        now = self.look()
        more = {what: sorted(now[what] - self.before[what]) for what in now}
        return "; ".join(f"{what}: {', '.join(names)}" for what, names in more.items() if names)


def await_no_process(seconds):
    wait_until("no process is left", lambda: not others(), seconds)


def end_all(seconds):
    """Ends whatever a failed job left: all of it was started here. What does not end within so many seconds is the next job's to find."""
    for pid in others():
        tell(pid, signal.SIGKILL)
    end = time.monotonic() + seconds
    while others() and time.monotonic() < end:
        time.sleep(0.01)
