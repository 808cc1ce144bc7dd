"""Starting `cohort` and looking at what it left behind. Every wait has an end."""
import glob
import json
import os
import subprocess
import time

SLOWDOWN = float(os.environ.get("COHORT_TEST_SLOWDOWN", "1"))
LIMIT = max(90, 50 * SLOWDOWN)  # seconds for one command; less than ctest's own limit, which has less to say
TINY = {
    "model": "mlp(in=784, hidden=32x32, out=10)",
    "data.train": "synthetic(samples=600)",
    "data.test": "synthetic(samples=101, split=test)",
    "data.batch": 32,
    "epochs": 2,
    "optimizer": "sgd(lr=0.02, momentum=0.9)",
    "observe.every_steps": 1,
    "observe.tensorboard": "false",
    "observe.report": "false",
}

# Dropout, batch norm and momentum: everything that a resumed run could forget.
FORGETFUL = {
    "model": "asl_cnn(size=12, classes=10)",
    "data__train": "synthetic(shape=1x12x12, samples=600)",
    "data__test": "synthetic(shape=1x12x12, samples=101, split=test)",
    "data__transforms": "shift(pixels=1), normalise",
    "data__batch": 16,
    "epochs": 6,
    "checkpoint__every_steps": 7,
    "checkpoint__every_epochs": 0,
}
DEEP = "mlp(in=784, hidden=32x32x32x32x32x32x32, out=10)"  # larger than its largest tensor by far
STEPS_PER_EPOCH = 19  # 600 samples, 2 x 16 a step


class Runs:
    def __init__(self, programs, folder):
        self.cohort, self.folder = os.path.abspath(os.path.join(programs, "cohort")), folder
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("COHORT_")}

    def path(self, name):
        return os.path.join(self.folder, name)

    def command(self, name, n=2, file=None, **sets):
        words = [self.cohort, "train", "-n", str(n), "-o", self.path(name)] + ([file] if file else [])
        for key, value in (sets if file else {**TINY, **sets}).items():
            words += ["--set", f"{key.replace('__', '.')}={value}"]
        return words

    def call(self, words, status=0):
        done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT, env=self.env, cwd=self.folder)
        assert done.returncode == status, f"{words} ended with {done.returncode}, not {status}:\n{done.stdout}{done.stderr}"
        return done

    def train(self, name, n=2, status=0, file=None, **sets):
        return self.call(self.command(name, n, file, **sets), status)

    def start(self, name, n=2, **sets):
        with open(self.path(name + ".log"), "w") as log:
            return subprocess.Popen(self.command(name, n, **sets), stdout=log, stderr=subprocess.STDOUT, env=self.env, cwd=self.folder)

    def log(self, name):
        with open(self.path(name + ".log")) as log:
            return log.read()

    def checkpoints(self, name):
        return sorted(glob.glob(self.path(name) + "/checkpoints/step-*"))

    def tensors(self, name):
        """The bytes of what was learned."""
        newest = self.checkpoints(name)[-1]
        return [open(f"{newest}/{file}", "rb").read() for file in ("model.safetensors", "optimizer.safetensors")]

    def metrics(self, name):
        try:
            with open(self.path(name) + "/metrics.jsonl") as file:
                return [json.loads(line) for line in file if line.endswith("\n")]
        except FileNotFoundError:
            return []

    def losses(self, name):
        return [(line["step"], line["loss"]) for line in self.metrics(name) if "loss" in line]


def wait_until(what, holds, seconds=LIMIT):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"never came true in {seconds} s: {what}"
        time.sleep(0.005)


def workers(launcher):
    """Processes of the ranks under this launcher, by rank."""
    parents, found = {}, {}
    for stat in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(stat) as file:
                pid, rest = int(stat.split("/")[2]), file.read().rsplit(")", 1)[1].split()
            parents[pid] = int(rest[1])
        except (OSError, IndexError):
            continue
    for pid in parents:
        up = pid
        while up in parents and up != launcher:
            up = parents[up]
        if up != launcher or pid == launcher:
            continue
        try:
            with open(f"/proc/{pid}/comm") as comm, open(f"/proc/{pid}/environ", "rb") as environ:
                rank = [v[12:] for v in environ.read().split(b"\0") if v.startswith(b"COHORT_RANK=")]
                if comm.read().startswith("cohort-worker") and rank:
                    found[int(rank[0])] = pid
        except OSError:
            continue
    return found


def consolidated(runs, name):
    """The bytes of what a sharded run learned, optimizer state included, as one plain file."""
    path = runs.path(name + ".safetensors")
    if os.path.exists(path):
        os.remove(path)
    runs.call([runs.cohort, "reshard", runs.path(name), path, "--consolidate", "--optimizer"])
    with open(path, "rb") as file:
        return file.read()
