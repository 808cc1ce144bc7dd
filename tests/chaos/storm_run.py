"""A training run of the storm: one folder, one or two launches of `cohort train --min-n` in it. Its shape and faults are drawn from a seed."""
import os
import random
import re
import signal
import subprocess

from coordinators import Supervised
from folder_jobs import FLAGS, newest
from histories import judge_launches
from isolated import SmallDisk
from jobs import FOR_EVER, LIMIT, Job, Runs, wait_until
from left_behind import await_no_process, others, tell
from rows_disk import all_whole, newest_loads
from rows_folder import TakenPort

RANKS, MOST_RANKS, ROWS_OF_THE_TABLE, COLUMNS = 3, 4, 1000, 196
DISK = "16m"  # three checkpoints of 3 MiB, and room
WITH_SIDE_MATTERS = "256m"  # traces and events grow with the steps
STRATEGIES = ["all_reduce(op=sum)"] * 3 + ["zero(stage=1, op=sum)", "zero(stage=2, op=sum, buddy=true)"]
ENDS = ["stop", "stop", "stop on a full disk", "launcher killed", "taken over"]


class Launch(Supervised, Job):
    """One launch: a job with a log and a history of its own, in the folder `run`."""

    def __init__(self, run, number, **sets):
        self.run = run
        flags = FLAGS + ["--lost-after", "1s"] + (["--supervised"] if run.supervised else [])
        super().__init__(run.programs, run.folder, f"launch{number}", RANKS, 1, MOST_RANKS, flags, **{**run.sets, **sets})

    def words(self, n, limits):
        self.runs.env["COHORT_TRANSPORT"] = self.run.transport
        if self.run.small_tmp:
            self.runs.env["TMPDIR"] = self.run.temporary()
        return self.runs.command("run", n, **self.sets) + limits

    def ended(self):
        return self.process.poll() is not None

    def await_progress(self, steps=3):
        """Steps are committed from now on; the job may have gone back to a checkpoint meanwhile."""
        seen = len(self.commits())
        wait_until(f"{steps} more steps of {self.name}", lambda: len(self.commits()) >= seen + steps * MOST_RANKS or self.ended())
        assert not self.ended(), f"the job ended, with status {self.process.returncode}"

    def await_workers(self, least=1):
        there = []  # those that were seen: they may end at any moment

        def enough():
            there[:] = self.workers()
            return len(there) >= least or self.ended()
        wait_until(f"{least} workers", enough)
        assert not self.ended(), f"the job ended, with status {self.process.returncode}"
        return there

    def rank0(self):
        """Its process, as far as the history tells; else any worker."""
        there, epoch = self.await_workers(), self.epoch()
        return next((pid for pid, line in reversed(self.history()) if line["rank"] == 0 and line["epoch"] == epoch and pid in there), there[0])

    def last_step(self):
        """The last step that counts: in the newest epoch, steps that a restart from disk voided are not in it."""
        epoch = max((line["epoch"] for _, line in self.history()), default=0)
        return max((line["step"] for _, line in self.lines if line["epoch"] == epoch and line["event"] != "start"), default=0)


class Run:
    def __init__(self, programs, folder, seed):
        self.programs, self.folder, self.rng = programs, folder, random.Random(seed)
        rng = self.rng
        self.supervised, self.transport = rng.random() < 0.5, rng.choice(["shm", "shm", "tcp"])
        self.sync, self.end = rng.choice(STRATEGIES), rng.choice(ENDS)
        self.small_tmp, self.side_matters = rng.random() < 0.4, rng.random() < 0.5
        self.table, self.runs, self.launches = os.path.join(folder, "train.csv"), Runs(programs, folder), []
        self.coordinator_ends = []  # when; a supervisor gives up after six within a minute
        self.disk = SmallDisk(os.path.join(folder, "run"), WITH_SIDE_MATTERS if self.side_matters else DISK)
        self.port = TakenPort()
        self.write_table(self.rows())
        if rng.random() < 0.5:
            self.port.close()
        self.sets = {"model": f"mlp(in={COLUMNS}, hidden=512x512, out=10)", "data__train": f"csv(file={self.table}, shape=1x14x14)", "data__batch": 64,
                     "steps": FOR_EVER, "sync": self.sync, "checkpoint__every_steps": rng.choice([20, 40, 80]), "checkpoint__keep": rng.choice([1, 2]),
                     "checkpoint__last_try": "1s", "observe__prometheus_port": self.port.number}
        if self.side_matters:
            self.sets.update(observe__tensorboard="true", observe__report="true", observe__trace="true")

    def rows(self):
        rng = random.Random(ROWS_OF_THE_TABLE)
        return [f"{i % 10}," + ",".join(str(rng.randrange(256)) for _ in range(COLUMNS)) + "\n" for i in range(ROWS_OF_THE_TABLE)]

    def write_table(self, rows):
        with open(self.table + ".new", "w") as file:
            file.writelines(rows)
        os.rename(self.table + ".new", self.table)

    def temporary(self):
        """For temporary files, on the disk that faults fill."""
        path = os.path.join(self.folder, "run", "tmp")
        os.makedirs(path, exist_ok=True)
        return path

    def shape(self):
        return {"sync": self.sync, "side matters": self.side_matters, "tmp": "on the small disk" if self.small_tmp else "apart", "transport": self.transport, "supervised": self.supervised, "ends": self.end,
                "every": self.sets["checkpoint__every_steps"]}

    def launch(self, **sets):
        self.launches.append(Launch(self, len(self.launches), **sets))
        return self.launches[-1]

    def newest(self):
        return newest_loads(self.runs) if self.runs.checkpoints("run") else 0

    # --- how a launch ends, and whether its status is true
    def ends(self, job):
        """The job has been asked to stop. Status 0 exactly when all that it learned is on disk."""
        assert job.process.wait(LIMIT) is not None
        await_no_process(10)
        saved, last, status = self.newest(), job.last_step(), job.process.returncode
        assert (status == 0) == (saved == last), f"status {status}, the newest checkpoint is of step {saved}, the last step was {last}"
        if status != 0:
            assert re.search(r"updates \d+ to \d+ are lost|the updates since the newest checkpoint are lost|could not be written", job.log()), "nothing says what is lost"
        return status

    def stop(self, job):
        job.process.send_signal(signal.SIGTERM)
        status = self.ends(job)
        assert status == 0, f"status {status}: it was to save and stop"

    def stop_on_a_full_disk(self, job):
        self.disk.fill()
        job.await_progress()
        job.process.send_signal(signal.SIGTERM)
        status = self.ends(job)
        self.disk.free()
        return status

    def launcher_killed(self, job):
        """Or the process that the shell sees. With a supervisor, or where that is lost, nobody saves; nothing stays in any case."""
        before = newest(self.named_run())
        os.kill(self.rng.choice([job.process.pid, job.launcher()]), signal.SIGKILL)
        assert job.process.wait(LIMIT) != 0, "a launcher that was killed ended with status 0"
        await_no_process(20)
        assert self.newest() >= before, "the newest checkpoint is gone"

    def named_run(self):
        class Named:
            runs, name = self.runs, "run"
        return Named

    def taken_over(self, job):
        everyone = list(others())
        for pid in everyone:
            tell(pid, signal.SIGSTOP)
        saved = self.newest()
        second = self.launch(checkpoint__takeover="true", steps=saved + 30)
        assert second.process.wait(LIMIT) == 0 and self.newest() == saved + 30, "the second job did not finish"
        theirs = self.runs.checkpoints("run")
        for pid in everyone:
            tell(pid, signal.SIGCONT)
        status = job.process.wait(LIMIT)
        await_no_process(10)
        assert status == 2 and job.said("was taken over by"), f"status {status} of the job that was taken over"
        assert self.runs.checkpoints("run") == theirs, "it changed the checkpoints of the other"

    def finish_up(self):
        """Launched again the run goes on from its newest checkpoint, to an end."""
        saved = self.newest()
        job = self.launch(steps=saved + 30)
        assert job.process.wait(LIMIT) == 0, f"status {job.process.returncode} of a run without faults"
        await_no_process(10)
        assert self.newest() == saved + 30, f"it is to end with step {saved + 30}, and the newest checkpoint is of {self.newest()}"
        assert saved == 0 or job.said(rf"goes on after update {saved}\n"), "it did not go on from its newest checkpoint"

    # --- its promises
    def judge(self):
        together = [job.histories for job in self.launches]
        if self.end == "taken over":  # what the first did after the checkpoint that the second took is no part of the second's
            for folders in ([together[0]], together[1:]):
                broken = judge_launches(self.programs, folders)
                assert not broken, broken
        else:
            broken = judge_launches(self.programs, together)
            assert not broken, broken
        all_whole(self.runs)
        hidden = [name for name in os.listdir(self.runs.path("run") + "/checkpoints") if not re.fullmatch(r"step-\d+|\.fence", name)]
        assert not hidden and not os.path.exists(self.runs.path("run") + "/.owner"), f"left in the run's folder: {hidden}"
        assert not os.path.exists(self.runs.path("run") + "/checkpoints.old"), "a job that was refused moved the checkpoints"

    def log(self):
        return "".join(f"--- {job.name}, status {job.process.poll()}\n{job.log()}" for job in self.launches)

    def close(self):
        for job in self.launches:
            if job.process.poll() is None:
                job.process.kill()
                job.process.wait(LIMIT)
        self.disk.close()
        self.port.close()
        subprocess.run(["rm", "-rf", self.folder], check=True)
