"""What can be seen of a job from outside: its processes, every port that one of them listens on, in any network namespace, and its memory.

A test that uses this cannot forget a new port: `Watch` finds each by /proc, and one that no connection has come to by the end is an error.
"""
import collections
import glob
import os
import socket
import struct
import time

import attack
import handshake

LISTENING, ACCEPTS = "0A", 0x10000  # states in /proc/net/tcp and /proc/net/unix
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "127.0.0.1"}
NOT_OURS = "@cuda-uvmfd-"  # the CUDA driver keeps such a socket in every process that looks for a GPU
START_S = 1.0  # a process younger than this still allocates its memory

Port = collections.namedtuple("Port", "space host number")


def parents():
    found = {}
    for stat in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(stat) as file:
                found[int(stat.split("/")[2])] = int(file.read().rsplit(")", 1)[1].split()[1])
        except (OSError, IndexError):
            continue
    return found


def family(pids):
    """These and all their descendants."""
    above, inside = parents(), set(pids)
    while more := {pid for pid, parent in above.items() if parent in inside} - inside:
        inside |= more
    return inside


def host_of(words):
    """As the kernel writes it: 32 bits at a time, each in the machine's order."""
    packed = b"".join(struct.pack("=I", int(words[i:i + 8], 16)) for i in range(0, len(words), 8))
    host = socket.inet_ntop(socket.AF_INET6 if len(packed) == 16 else socket.AF_INET, packed)
    return EVERYWHERE.get(host, host)


def rows(pid, table):
    try:
        with open(f"/proc/{pid}/net/{table}") as file:
            return [row.split() for row in list(file)[1:]]
    except OSError:
        return []


def sockets(pid):
    """Inodes of the sockets it has open."""
    found = set()
    for link in glob.glob(f"/proc/{pid}/fd/*"):
        try:
            name = os.readlink(link)
        except OSError:
            continue
        if name.startswith("socket:["):
            found.add(name[8:-1])
    return found


def listening(pids):
    """{Port: pid} of every tcp socket that these processes listen on. Other ways to be reached, of which there should be none, are an error."""
    found, tables = {}, {}
    for pid in pids:
        try:
            space = os.readlink(f"/proc/{pid}/ns/net")
        except OSError:
            continue
        if space not in tables:
            tcp = {c[9]: c[1] for t in ("tcp", "tcp6") for c in rows(pid, t) if c[3] == LISTENING}
            other = {c[9]: f"{t} {c[1]}" for t in ("udp", "udp6", "raw", "raw6") for c in rows(pid, t)}
            other |= {c[6]: " ".join(["unix", *c[7:]]) for c in rows(pid, "unix") if int(c[3], 16) & ACCEPTS and not c[-1].startswith(NOT_OURS)}
            tables[space] = tcp, other
        tcp, other = tables[space]
        for inode in sockets(pid):
            assert inode not in other, f"process {pid} can be reached in a way that is not attacked ({other[inode]})"
            if inode in tcp:
                host, number = tcp[inode].split(":")
                found[Port(space, host_of(host), int(number, 16))] = pid
    return found


def memory(pids):
    """{pid: resident KiB of its own memory}; files that happen to be mapped are not counted."""
    out = {}
    for pid in pids:
        try:
            with open(f"/proc/{pid}/status") as status:
                out[pid] = int([line for line in status if line.startswith("RssAnon")][0].split()[1])
        except (OSError, IndexError):
            continue
    return out


class Exposed:
    """A part of jobs that have members(): their processes."""

    tls = False  # under TLS there is not even a handshake to overhear

    def listening(self):
        return listening(self.members())

    def memory(self):
        return memory(self.members())

    def key_of(self, pid):
        """The job's secret, name and rendezvous port, as a process of the same user may read them: what an attacker does not have."""
        with open(f"/proc/{pid}/environ", "rb") as environ:
            variables = dict(v.split(b"=", 1) for v in environ.read().split(b"\0") if b"=" in v)
        with open(variables[b"COHORT_SECRET_FILE"], "rb") as file:
            return file.read(), variables[b"COHORT_JOB"].decode(), int(variables[b"COHORT_RENDEZVOUS"].rsplit(b":", 1)[1])


class Watch:
    """Keeps a storm's targets what the job listens on now. A new port is attacked at once, with every kind of connection."""

    def __init__(self, job, storm, every=0.1):
        self.job, self.storm, self.every = job, storm, every
        self.next, self.seen, self.starts, self.before, self.growth = 0.0, {}, {}, {}, 0
        self.changing = False  # its roster: workers allocate what a state and new links need, and are measured anew afterwards
        self.secret, self.name, self.rendezvous = job.key()
        self.overheard = job.overheard()

    def update(self):
        now = time.monotonic()
        if now < self.next:
            return
        self.next = now + self.every
        here = self.job.listening()
        for port, pid in here.items():
            if port not in self.seen:
                overheard = self.overheard if port.number == self.rendezvous else handshake.imagined(self.secret, self.name, rank=1, epoch=1)
                protocol = "tls" if self.job.tls else "cohort"
                self.seen[port] = attack.Target(port.number, protocol, self.name, overheard, port.host, f"/proc/{pid}/ns/net", self.secret)
                self.storm.all_kinds(self.seen[port])
        self.storm.targets[:] = [self.seen[port] for port in here]
        self.measure(now)

    def reset_growth(self):
        """Memory is compared with that of now."""
        self.starts, self.before, self.growth = {}, {}, 0

    def measure(self, now):
        """The most that any process has grown since it was no longer young, or a worker since the last change."""
        for pid in self.job.workers() if self.changing else ():
            self.starts[pid] = now
            self.before.pop(pid, None)
        for pid, size in self.job.memory().items():
            self.starts.setdefault(pid, now)
            if now - self.starts[pid] > START_S:
                self.growth = max(self.growth, size - self.before.setdefault(pid, size))

    def missed(self):
        """Ports on which the job listens now and that were not attacked."""
        return [port for port in self.job.listening() if port not in self.seen or not self.seen[port].attempts]

    def short_lived(self):
        """How many were closed again before an attack arrived: ranks that connected in a moment."""
        return sum(not target.attempts for target in list(self.seen.values()))
