"""Jobs under attack while workers join and leave: elastic ones on one host and on several, fixed ones under agents; and the attackers, in a thread."""
import contextlib
import os
import random
import resource
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "..", "elastic"))
from coordinators import Supervised  # noqa: E402
from hosts_net import HostsJob, HostsTraining  # noqa: E402
from jobs import LIMIT, Job, wait_until  # noqa: E402

import attack  # noqa: E402
import exposed  # noqa: E402
import handshake  # noqa: E402
from idle_connections import IdleConnections  # noqa: E402

GROWTH_KIB = 8 << 10  # of any process of the job
SLEEP_S = 0.002
SPARE_FILES = 1000  # descriptors for everything but idle connections
ENOUGH = 300  # more than a listener serves at once


class Attacked(exposed.Exposed):
    """Part of a job of tests/elastic."""

    def key(self):
        return self.key_of(self.workers()[0])

    def running(self):
        return self.process.poll() is None

    def text(self):
        return self.log()

    def replay(self):
        """As the others', with a limit that grows with the steps."""
        again = self.name + "-again"
        for ranks, last in self.schedule():
            command = self.runs.command(again, ranks, **{**self.sets, "steps": last})
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT + last, env=self.runs.env, cwd=self.runs.folder)
            assert done.returncode == 0, done.stdout + done.stderr
        return self.runs.tensors(again)

    def coordinator_port(self):
        """The coordinator's port, and the process that listens there."""
        number = self.key()[2]
        return next((port, pid) for port, pid in self.listening().items() if port.number == number)

    def honest(self):
        """An authenticated connection to the coordinator, and all bytes of its handshake."""
        secret, name, _ = self.key()
        port, pid = self.coordinator_port()

        def connect():
            sock = attack.socket_in(f"/proc/{pid}/ns/net")
            sock.settimeout(10)
            sock.connect((port.host, port.number))
            return sock

        sock, talk = handshake.join(connect, secret, name, rank=-1)
        return sock, secret, talk

    def overheard(self):
        secret, name, _ = self.key()
        if self.tls:
            return handshake.imagined(secret, name, rank=-1)
        sock, _, talk = self.honest()
        sock.close()
        return talk

    def insiders(self):
        """Whether every holder of the secret that claims absurd lengths, in the frames of an elastic job, is cut off at the header."""
        for kind, length in ((0x0201, 2**63), (0x0202, -1), (0x0206, 2**40), (0x0201, 2**20 + 1)):
            sock, secret, talk = self.honest()
            if not handshake.cut_off(sock, handshake.frame(secret, talk, kind, length)):
                return False
        return True


class OneHost(Attacked, Supervised, Job):
    """`cohort train --min-n` on this host."""

    def members(self):
        return exposed.family([self.process.pid])

    def curve(self):
        return self.runs.metrics(self.name)


class OnNet:
    """Everything of the namespaces but the processes that hold them."""

    def members(self):
        return {pid for host in range(len(self.net.holders) - 1) for pid in self.net.processes(host)}

    def curve(self):
        return self.runs.metrics(self.name)


class Hosts(OnNet, Attacked, Supervised, HostsJob):
    """`cohort run --min-n` of workers that train a vector, on hosts with agents."""


class TrainingHosts(OnNet, Attacked, Supervised, HostsTraining):
    """`cohort train --min-n` on hosts with agents."""


class Attackers(threading.Thread):
    """A storm at every port of the job, and so many idle connections at each; both find new ports by themselves. A context manager."""

    def __init__(self, job, rate, seed, idle=0):
        super().__init__(daemon=True)
        self.job, self.idle_number, self.most, self.failure, self.over, self.filled = job, idle, 10**12, None, False, False
        self.storm, self.idle = attack.Storm([], rate, seed), IdleConnections(random.Random(seed), 0)
        self.watch = exposed.Watch(job, self.storm)

    def run(self):
        try:
            while not self.over:
                self.turn()
                time.sleep(SLEEP_S)
            self.idle.end()
            self.storm.finish()
        except BaseException as problem:  # raised by judge()
            self.failure = problem

    def turn(self):
        self.watch.update()
        self.storm.poll(self.most)
        if self.idle.number != self.idle_number:
            self.idle.change(self.idle_number)
            self.filled = False
        if self.idle.number:
            self.filled = self.idle.poll(list(self.storm.targets)) or self.filled

    def begun(self):
        return self.storm.begun + self.idle.begun

    def await_begun(self, count):
        wait_until(f"{count} connections", lambda: self.storm.begun >= count or self.failure or not self.job.running())
        assert self.job.running() and not self.failure, self.failure or self.job.text()

    def fill(self, number):
        """From now on so many idle connections stay at every port; returns when they do."""
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit[1], limit[1]))
        self.idle_number = min(number, (limit[1] - SPARE_FILES) // 8)
        assert self.idle_number >= ENOUGH, f"only {limit[1]} descriptors: {self.idle_number} connections keep no process out"
        wait_until(f"{self.idle_number} at every port", lambda: self.filled or self.failure)

    @contextlib.contextmanager
    def change(self):
        """Around something that changes the job's roster."""
        self.watch.changing = True
        yield
        self.watch.changing = False

    def all_attacked(self):
        """While the job runs: waits until every port was attacked. How many there were."""
        wait_until("attacks on every port", lambda: not self.watch.missed() or self.failure)
        return len(self.watch.seen)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.over = True
        self.join(60)

    def judge(self):
        """None was accepted, and the job has not grown."""
        if self.failure:
            raise self.failure
        accepted = self.storm.accepted + self.idle.accepted
        assert not accepted, f"accepted {len(accepted)}: {accepted[:5]}"
        assert self.watch.growth <= GROWTH_KIB, f"a process grew by {self.watch.growth} KiB"
        missed, ports = self.watch.short_lived(), len(self.watch.seen)
        assert self.storm.begun >= ports > 2 * missed, f"{missed} of {ports} ports were not attacked"
        assert self.job.tls or self.storm.refused > 0, "no holder of the secret got a verdict about another job or epoch"
