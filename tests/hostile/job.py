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
import handshake  # noqa: E402

LIMIT = 60
SETTINGS = {
    "model": "mlp(in=784, hidden=256x256, out=10)",
    "data.train": "synthetic(samples=2048)",
    "data.test": "synthetic(samples=128, split=test)",
    "data.batch": 64,
    "epochs": 0,
    "optim.rule": "sgd(lr=0.02, momentum=0.9)",
    "checkpoint.resume": "never",
    "checkpoint.every_epochs": 0,
    "observe.every_steps": 1,
    "observe.tensorboard": "false",
    "observe.report": "false",
    "observe.prometheus_port": 0,
}


class Job:
    def __init__(self, programs, folder, steps, transport="tcp", settings=()):
        words = [os.path.join(os.path.abspath(programs), "cohort"), "train", "-n", "2", "-o", folder]
        for name, value in {**SETTINGS, "steps": steps, **dict(settings)}.items():
            words += ["--set", f"{name}={value}"]
        self.folder, self.steps = folder, steps
        clean = {k: v for k, v in os.environ.items() if not k.startswith("COHORT_")}
        self.log = open(folder + ".log", "w")
        self.process = subprocess.Popen(words, stdout=self.log, stderr=subprocess.STDOUT,
                                        env={**clean, "COHORT_TRANSPORT": transport, "OMP_NUM_THREADS": "1"})

    def text(self):
        with open(self.folder + ".log") as log:
            return log.read()

    def running(self):
        return self.process.poll() is None

    def wait_until(self, what, holds, seconds=LIMIT):
        end = time.monotonic() + seconds
        while not holds():
            assert self.running(), f"the job ended before {what}:\n{self.text()}"
            assert time.monotonic() < end, f"never came true in {seconds} s: {what}\n{self.text()}"
            time.sleep(0.005)

    def finish(self, seconds=LIMIT):
        status = self.process.wait(seconds)
        assert status == 0, f"the job ended with {status}:\n{self.text()}"

    def stop(self):
        """A job that is in nobody's way any more, however the test ended."""
        if self.running():
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.log.close()

    # What can be seen of it.

    def members(self):
        """Processes that listen somewhere or are ranks, with the front and the launcher."""
        parents = {}
        for stat in glob.glob("/proc/[0-9]*/stat"):
            try:
                with open(stat) as file:
                    parents[int(stat.split("/")[2])] = int(file.read().rsplit(")", 1)[1].split()[1])
            except (OSError, IndexError):
                continue
        inside = {self.process.pid}
        for _ in range(4):
            inside |= {pid for pid, parent in parents.items() if parent in inside}
        return inside

    def ranks(self):
        return workers(self.process.pid)

    def ports(self):
        """{port: pid} of every tcp socket that a process of this job listens on."""
        listening = {}
        with open("/proc/net/tcp") as table:
            for row in list(table)[1:]:
                cell = row.split()
                if cell[3] == "0A":
                    listening[cell[9]] = int(cell[1].split(":")[1], 16)
        found = {}
        for pid in self.members():
            for link in glob.glob(f"/proc/{pid}/fd/*"):
                try:
                    port = listening.get(os.readlink(link)[8:-1])
                except OSError:
                    continue
                if port:
                    found[port] = pid
        return found

    def memory(self):
        """{pid: resident KiB of its own memory}; files that happen to be mapped are not counted."""
        out = {}
        for pid in self.members():
            try:
                with open(f"/proc/{pid}/status") as status:
                    out[pid] = int([line for line in status if line.startswith("RssAnon")][0].split()[1])
            except (OSError, IndexError):
                continue
        return out

    def lines(self):
        try:
            with open(self.folder + "/metrics.jsonl") as file:
                return [json.loads(line) for line in file if line.endswith("\n")]
        except FileNotFoundError:
            return []

    def losses(self):
        return [(line["step"], line["loss"]) for line in self.lines() if "loss" in line]

    def tensors(self):
        newest = sorted(glob.glob(self.folder + "/checkpoints/step-*"))[-1]
        return [open(f"{newest}/{name}", "rb").read() for name in ("model.safetensors", "optimizer.safetensors")]

    def key(self):
        """The job's secret and name, as a process of the same user may read them: what an attacker does not have."""
        pid = next(iter(self.ranks().values()))
        with open(f"/proc/{pid}/environ", "rb") as environ:
            variables = dict(v.split(b"=", 1) for v in environ.read().split(b"\0") if b"=" in v)
        with open(variables[b"COHORT_SECRET_FILE"], "rb") as file:
            return file.read(), variables[b"COHORT_JOB"].decode(), int(variables[b"COHORT_RENDEZVOUS"].rsplit(b":", 1)[1])

    def targets(self):
        """Every port of the running job. One honest handshake proves that doors are doors, and is what replays repeat."""
        secret, name, door = self.key()
        with socket.create_connection(("127.0.0.1", door), 5) as sock:
            overheard = handshake.shake(sock, secret, name, rank=0)
        return [attack.Target(port, "door" if port == door else "http", name, overheard) for port in sorted(self.ports())]

    def insiders(self):
        """Who holds the secret and then claims absurd lengths is cut off at the header; the number of those that were."""
        secret, name, door = self.key()
        cut = 0
        for length in (2**63, -1, 2**40, 2**20 + 1):
            with socket.create_connection(("127.0.0.1", door), 5) as sock:
                talk = handshake.shake(sock, secret, name, rank=1)
                sock.sendall(handshake.frame(secret, talk, 0x0101, length))
                sock.settimeout(5)
                try:
                    cut += sock.recv(1) == b""
                except ConnectionResetError:
                    cut += 1
        return cut
