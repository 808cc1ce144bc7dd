"""An elastic job of Python workers: what happens to it, what it wrote down, and whether that is right. Every wait has an end."""
import glob
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections import Counter

import launch

LIMIT = 60 * launch.SLOWDOWN
SCRIPT = pathlib.Path(__file__).with_name("elastic_script.py")


class Job:
    """`with Job(tmp_path, ["-n", 3, "--min-n", 2]) as job:`; nothing of it is left behind."""

    def __init__(self, folder, options, *arguments, samples=60, launcher=(launch.COHORT, "run"), env=None):
        self.folder, self.samples = folder, samples
        self.log_path = folder / "log"
        patience = ["--start-timeout", str(30 * launch.SLOWDOWN)]  # a busy machine shall add no epoch
        if launcher[0] == launch.COHORT:
            patience += ["--lost-after", f"{2 * launch.SLOWDOWN}s", "--timeout", f"{5 * LIMIT}s"]
        command = ["setpriv", "--pdeathsig", "KILL", *launcher, *map(str, options), *patience]
        command += [sys.executable, str(SCRIPT), str(folder), str(samples), *arguments]
        with open(self.log_path, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(command, env=launch.environment(env), stdout=log, stderr=subprocess.STDOUT)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(LIMIT)

    def log(self):
        return self.log_path.read_text()

    def lines(self, event):
        """(pid, line) of that kind, of all workers; the last line of a file may be half written."""
        found = []
        for path in glob.glob(f"{self.folder}/*.jsonl"):
            text = pathlib.Path(path).read_text(encoding="utf-8")
            for line in map(json.loads, text[:text.rfind("\n") + 1].splitlines()):
                if line["event"] == event:
                    found.append((int(pathlib.Path(path).stem), line))
        return found

    def wait_until(self, what, holds):
        until = time.monotonic() + LIMIT
        while not holds():
            assert self.process.poll() is None, f"the job ended before {what}\n{self.log()}"
            assert time.monotonic() < until, f"{what}: not within {LIMIT} s\n{self.log()}"
            time.sleep(0.02)

    def newest(self):
        """{pid: line} of those who were in the newest commit."""
        commits = self.lines("commit")
        last = max((line["number"] for _, line in commits), default=0)
        return {pid: line for pid, line in commits if line["number"] == last}

    def await_commit_of(self, size, after=0):
        """A commit of so many ranks, past that number; returns the newest number."""
        self.wait_until(f"a commit of {size} ranks",
                        lambda: any(line["size"] == size and line["number"] > after for line in self.newest().values()))
        return max(line["number"] for line in self.newest().values())

    def pid_of(self, rank):
        return next(pid for pid, line in sorted(self.lines("commit"), key=lambda entry: -entry[1]["number"]) if line["rank"] == rank)

    def signal(self, number, rank):
        pid = self.pid_of(rank)
        os.kill(pid, number)
        return pid

    def await_workers(self, count, without=frozenset()):
        """A commit of so many, none of whom is one of those; returns their pids."""
        found = []

        def came():
            found[:] = self.newest()
            return len(found) == count and not without & set(found)

        self.wait_until(f"{count} workers that are none of {sorted(without)}", came)
        return list(found)

    def stop(self):
        (self.folder / "stop").touch()

    def ends(self, status=0):
        assert self.process.wait(LIMIT) == status, self.log()
        return self.judge()

    def judge(self):
        """The laws; returns the final lines."""
        ends = [line for _, line in self.lines("end")]
        assert ends and len(ends) == ends[0]["size"], self.log()
        assert {line["result"] for line in ends} == {"trained"}
        for line in ends[1:]:
            assert (line["trace"], line["seen"], line["weight"], line["mean"]) == tuple(ends[0][key] for key in ("trace", "seen", "weight", "mean"))
        trace, seen, weight = (ends[0][key] for key in ("trace", "seen", "weight"))
        for pid, line in self.lines("commit"):  # a process that saw a commit return, also one that was killed right after it, saw one that counts
            assert line["checksum"] == trace[line["number"] - 1], f"process {pid} saw a commit {line['number']} that was lost\n{self.log()}"
        assert seen.pop() == []
        for epoch in seen:  # once each; the last samples repeat where ranks do not divide what is left
            times = Counter(epoch)
            assert set(times) == set(range(self.samples)) and len(epoch) - self.samples < 8, times
        assert weight == sum(float(s) ** 2 for epoch in seen for s in epoch) == ends[0]["mean"]
        return ends
