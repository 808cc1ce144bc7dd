"""An elastic training job of real processes, faults of it, and its history. Every wait has an end."""
import glob
import json
import os
import re
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "train"))
from runs import LIMIT, SLOWDOWN, Runs, wait_until  # noqa: E402,F401

FOR_EVER = 10**9  # steps
# The learning rate does not depend on the number of steps, so that a replay in parts has the same one. The bits of a matrix product may depend on the
# number of threads, which follows the number of ranks at the start.
PLAIN = {"threads": 1, "epochs": 0, "optim__schedule": "constant", "checkpoint__every_epochs": 0, "data__test": ""}


def processes():
    """pid to (parent, name, state) of everything that runs."""
    found = {}
    for stat in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(stat) as file:
                name, rest = file.read().rsplit(")", 1)
        except OSError:
            continue
        fields = rest.split()
        found[int(stat.split("/")[2])] = (int(fields[1]), name.split("(", 1)[1], fields[0])
    return found


def children(launcher):
    """Worker processes under this launcher that have not ended."""
    found, parents = [], processes()
    for pid, (parent, name, state) in parents.items():
        if name.startswith(("cohort-worker", "elastic_rank", "train_flip")) and state != "Z":
            while parent in parents and parent != launcher:
                parent = parents[parent][0]
            if parent == launcher:
                found.append(pid)
    return sorted(found)


class Job:
    def __init__(self, programs, folder, name, n, least, most=None, flags=(), **sets):
        self.runs, self.programs, self.name, self.sets = Runs(programs, folder), programs, name, {**PLAIN, **sets}
        self.histories = self.runs.path(name + ".history")
        os.makedirs(self.histories)
        limits = ["--min-n", str(least), "--max-n", str(most or n), *flags]
        words = self.words(n, limits)
        self.log_path = self.runs.path(name + ".log")
        with open(self.log_path, "w") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT, cwd=folder,
                                            env={**self.runs.env, "COHORT_HISTORY": self.histories})
        self.read, self.lines = {}, []  # of each history file, as far as it was read
        self.last, self.sizes, self.begun = 0, {0: 0}, {}  # the newest step; ranks by epoch; epochs that began a step

    def words(self, n, limits):
        return self.runs.command(self.name, n, **self.sets) + limits

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pid in children(self.process.pid):
            os.kill(pid, signal.SIGKILL)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(LIMIT)

    # --- faults
    def workers(self):
        return children(self.process.pid)

    def pid_of(self, rank):
        """The process that was this rank in the newest epoch."""
        return next(pid for pid, line in reversed(self.history()) if line["rank"] == rank and line["epoch"] == self.epoch())

    def kill(self, pid, number=signal.SIGKILL):
        os.kill(pid, number)
        return time.monotonic()

    def ends(self, status=0):
        assert self.process.wait(LIMIT) == status, self.log()

    def stops(self):
        """SIGTERM: all leave and one saves. How many steps a replacement takes differs between machines: so the job has no last step."""
        self.process.send_signal(signal.SIGTERM)
        self.ends()
        assert self.said(rf"saved update {self.step()} in "), self.log()

    # --- its history and log
    def history(self):
        for path in glob.glob(self.histories + "/*.jsonl"):
            with open(path) as file:
                file.seek(self.read.get(path, 0))
                text = file.read()
                whole = text[: text.rfind("\n") + 1]
                self.read[path] = self.read.get(path, 0) + len(whole)
            for line in map(json.loads, whole.splitlines()):
                self.lines.append((int(os.path.basename(path)[:-6]), line))
                if line["event"] == "commit":
                    self.last = max(self.last, line["step"])
                    self.sizes[line["epoch"]] = line["size"]
                elif line["event"] == "start":
                    self.begun.setdefault(line["step"], set()).add(line["epoch"])
        return self.lines

    def commits(self):
        return [line for _, line in self.history() if line["event"] == "commit"]

    def step(self):
        self.history()
        return self.last

    def epoch(self):
        self.history()
        return max(self.sizes)

    def size(self):
        return self.sizes[self.epoch()]

    def await_step(self, step):
        wait_until(f"step {step} of {self.name}", lambda: self.step() >= step or self.process.poll() is not None)
        assert self.process.poll() is None or self.step() >= step, self.log()

    def await_size(self, size):
        wait_until(f"{size} workers of {self.name}", lambda: self.size() == size or self.process.poll() is not None)
        assert self.size() == size, self.log()

    def await_epoch_after(self, epoch):
        wait_until(f"an epoch after {epoch} of {self.name}", lambda: self.epoch() > epoch or self.process.poll() is not None)
        assert self.epoch() > epoch, self.log()
        return time.monotonic()

    def log(self):
        with open(self.log_path) as log:
            return log.read()

    def said(self, pattern, since=0):
        return re.search(pattern, self.log()[since:])

    def steps_lost(self):
        """Steps that were begun more than once, by any rank: computed again after a change."""
        self.history()
        return sum(len(epochs) - 1 for epochs in self.begun.values())

    # --- checks
    def judge(self):
        done = subprocess.run([os.path.join(self.programs, "check_history"), *glob.glob(self.histories + "/*.jsonl")], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr + self.log()

    def schedule(self):
        """The number of ranks by step: [(ranks, last step with so many)]."""
        size = {line["step"]: line["size"] for line in self.commits()}
        steps = sorted(size)
        assert steps == list(range(1, len(steps) + 1)), f"steps are missing: {steps}"
        return [(size[s], s) for s in steps if s == steps[-1] or size[s + 1] != size[s]]

    def replay(self):
        """A run without faults with the same membership history: fixed numbers of ranks, one after the other. Returns its parameters."""
        again = self.name + "-again"
        for ranks, last in self.schedule():
            self.runs.train(again, n=ranks, **{**self.sets, "steps": last})
        return self.runs.tensors(again)

    def same_as_replay(self):
        assert self.runs.tensors(self.name) == self.replay(), f"other bits than a run without faults: {self.schedule()}\n{self.log()}"


class VectorJob(Job):
    """The same under `cohort run`, of workers that train a vector (elastic_rank.cc): no torch, so they start quickly."""

    def words(self, n, limits):
        steps = str(self.sets["steps"])
        return [self.runs.cohort, "run", "-n", str(n), *limits, "--", os.path.join(self.programs, "elastic_rank"), steps, self.histories]
