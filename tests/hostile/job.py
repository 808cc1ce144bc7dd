"""A job to attack: `cohort train` on two ranks over tcp, with its metrics served over HTTP, and what can be seen of it from outside."""
import glob
import json
import os
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "train"))
from runs import workers  # noqa: E402

import attack  # noqa: E402
import exposed  # noqa: E402
import handshake  # noqa: E402

LIMIT = max(60, 20 * float(os.environ.get("COHORT_TEST_SLOWDOWN", "1")))
SETTINGS = {
    "model": "mlp(in=784, hidden=256x256, out=10)",
    "data.train": "synthetic(samples=2048)",
    "data.test": "synthetic(samples=128, split=test)",
    "data.batch": 64,
    "epochs": 0,
    "threads": 1,
    "optimizer": "sgd(lr=0.02, momentum=0.9)",
    "checkpoint.resume": "never",
    "checkpoint.every_epochs": 0,
    "observe.every_steps": 1,
    "observe.tensorboard": "false",
    "observe.report": "false",
    "observe.prometheus_port": 0,
}


class Job(exposed.Exposed):
    def __init__(self, programs, folder, steps, transport="tcp", settings=()):
        self.programs, self.folder, self.steps, self.transport = os.path.abspath(programs), folder, steps, transport
        self.settings = {**SETTINGS, "steps": steps, **dict(settings)}
        self.log = open(folder + ".log", "w")
        self.processes = []
        self.begin()

    def begin(self):
        self.start(["cohort", "train", "-n", "2", "-o", self.folder])

    def start(self, words, **variables):
        sets = [word for name, value in self.settings.items() for word in ("--set", f"{name}={value}")]
        clean = {k: v for k, v in os.environ.items() if not k.startswith("COHORT_")}
        self.processes.append(subprocess.Popen([os.path.join(self.programs, words[0])] + words[1:] + sets, stdout=self.log, stderr=subprocess.STDOUT,
                                               env={**clean, "COHORT_TRANSPORT": self.transport, "OMP_NUM_THREADS": "1", **variables}))

    def text(self):
        with open(self.folder + ".log") as log:
            return log.read()

    def running(self):
        return all(process.poll() is None for process in self.processes)

    def wait_until(self, what, holds, seconds=LIMIT):
        end = time.monotonic() + seconds
        while not holds():
            assert self.running() or holds(), f"the job ended before {what}:\n{self.text()}"
            assert time.monotonic() < end, f"never came true in {seconds} s: {what}\n{self.text()}"
            time.sleep(0.005)

    def finish(self, seconds=LIMIT):
        for process in self.processes:
            status = process.wait(seconds)
            assert status == 0, f"the job ended with {status}:\n{self.text()}"

    def stop(self):
        """Ends the job, however the test ended."""
        for process in self.processes:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()
        self.log.close()

    # What can be seen of it.

    def members(self):
        """Processes that listen somewhere or are ranks, with the command and the launcher."""
        return exposed.family(process.pid for process in self.processes)

    def ranks(self):
        return {rank: pid for process in self.processes for rank, pid in workers(process.pid).items()}

    def ports(self):
        """{port: pid} of every tcp socket that a process of this job listens on."""
        return {port.number: pid for port, pid in self.listening().items()}

    def lines(self):
        try:
            with open(self.folder + "/metrics.jsonl") as file:
                return [json.loads(line) for line in file if line.endswith("\n")]
        except FileNotFoundError:
            return []

    curve = lines

    def losses(self):
        return [(line["step"], line["loss"]) for line in self.curve() if "loss" in line]

    def tensors(self):
        newest = sorted(glob.glob(self.folder + "/checkpoints/step-*"))[-1]
        return [open(f"{newest}/{name}", "rb").read() for name in ("model.safetensors", "optimizer.safetensors")]

    def key(self):
        return self.key_of(next(iter(self.ranks().values())))

    def overheard(self):
        """One honest handshake: it shows that the test speaks the protocol, and is what replays repeat."""
        secret, name, rendezvous = self.key()
        sock, talk = handshake.join(lambda: socket.create_connection(("127.0.0.1", rendezvous), 5), secret, name, rank=0)
        sock.close()
        return talk

    def targets(self):
        """Every port of the running job."""
        secret, name, rendezvous = self.key()
        overheard = self.overheard()
        return [attack.Target(port, "cohort" if port == rendezvous else "http", name, overheard, secret=secret) for port in sorted(self.ports())]

    def insiders(self):
        """Whether every holder of the secret that claims absurd lengths is cut off at the header."""
        secret, name, rendezvous = self.key()
        for length in (2**63, -1, 2**40, 2**20 + 1):
            sock, talk = handshake.join(lambda: socket.create_connection(("127.0.0.1", rendezvous), 5), secret, name, rank=1)
            if not handshake.cut_off(sock, handshake.frame(secret, talk, 0x0101, length)):
                return False
        return True


class Nodes(Job):
    """The same ranks under two agents that something else started, as on Kubernetes; the second by node(1). The first has the rendezvous."""

    def begin(self):
        self.secret = self.folder + ".secret"
        with open(os.open(self.secret, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(os.urandom(32))
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.node(0)

    def node(self, number):
        worker = [os.path.join(self.programs, "cohort-worker"), "train", "--set", f"out={self.folder}"]
        self.start(["cohort", "agent", "-n", "1", "--start-timeout", f"{LIMIT}s", "--"] + worker,
                   COHORT_SECRET_FILE=self.secret, PET_NNODES="2", PET_NODE_RANK=str(number), PET_MASTER_ADDR="127.0.0.1", PET_MASTER_PORT=str(self.port - 1))
