"""Jobs whose wall clock jumps, runs too fast or stands still (libfaketime), on all processes, one worker or the coordinator."""
import os
import subprocess
import time

from jobs import FOR_EVER, Job, Runs, wait_until

LIBRARY = "/usr/$LIB/faketime/libfaketimeMT.so.1"  # the dynamic linker knows what $LIB is
STANDS = "2020-01-01 00:00:00"
JUMPS = ("+3600", "-3600", "+86400", "-86400", "+0 x10", STANDS)
LOST_AFTER = 1.0
NAMES = ("LD_PRELOAD", "FAKETIME", "FAKETIME_TIMESTAMP_FILE", "FAKETIME_NO_CACHE", "NO_FAKE_STAT", "FAKETIME_DONT_FAKE_MONOTONIC")


def faked(clock="", file="", monotonic=False):
    """What the environment of a process needs. file: it says the clock, and may change. The times of files stay those of the file system."""
    says = {"FAKETIME_TIMESTAMP_FILE": file} if file else {"FAKETIME": clock}
    return {"LD_PRELOAD": LIBRARY, **says, "FAKETIME_NO_CACHE": "1", "NO_FAKE_STAT": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "0" if monotonic else "1"}


def set_clock(file, clock):
    with open(file + ".new", "w") as new:
        new.write(clock + "\n")
    os.rename(file + ".new", file)


def fixed_clocks(programs, scratch):
    """Whatever the wall clock says, on all ranks or on one: training ends well, with the same bits."""
    runs = Runs(programs, scratch)
    runs.train("plain", n=2)
    expected, plain = runs.tensors("plain"), dict(runs.env)
    for number, clock in enumerate(JUMPS):
        runs.env = {**plain, **faked(clock)}
        name = f"all-{number}"
        runs.train(name, n=2)
        assert runs.tensors(name) == expected, f"other bits with the clock {clock}"
        runs.env = plain
        words = [runs.cohort, "run", "-n", "2", "--", *on_one(faked(clock)), *worker(runs, name + "-one")]
        runs.call(words)
        assert runs.tensors(name + "-one") == expected, f"other bits with the clock {clock} on one rank"
        off = abs(runs.metrics(name)[-1]["time"] - time.time())
        assert clock.startswith("+0") or off > 3000, f"no clock was moved: {off} s"


def text_of(path):
    with open(path) as file:
        return file.read()


def worker(runs, name, **sets):
    """The words of one worker of `cohort train`."""
    words = runs.command(name, **sets)
    return [os.path.join(os.path.dirname(runs.cohort), "cohort-worker"), "train", *words[words.index("--set"):], "--set", f"out={runs.path(name)}"]


def on_one(environment):
    """A shell that gives this environment to worker 1 alone and starts the program."""
    given = " ".join(f"{name}='{value}'" for name, value in environment.items())
    return ["sh", "-c", f'if [ "$COHORT_RANK" = 1 ]; then export {given}; fi; exec "$@"', "sh"]


class FakedJob(Job):
    """An elastic job of which all processes, worker 1 or the coordinator alone have the clock that a file says."""

    def __init__(self, programs, folder, where, monotonic=False, **sets):
        self.where, self.clock = where, os.path.join(folder, f"clock-{where}")
        set_clock(self.clock, "+0")
        self.faked = faked(file=self.clock, monotonic=monotonic)
        super().__init__(programs, folder, where, 3, 1, 3, ["--lost-after", f"{LOST_AFTER}s"], **{"steps": FOR_EVER, **sets})

    def words(self, n, limits):
        if self.where != "one":
            self.runs.env.update(self.faked)
        before = on_one(self.faked) if self.where == "one" else []
        if self.where == "coordinator":
            before = ["env", *[word for name in NAMES for word in ("-u", name)]]
        return [self.runs.cohort, "run", "-n", str(n), *limits, "--", *before, *worker(self.runs, self.name, **self.sets)]

    def passes(self, seconds):
        """So long the fault lasts: longer than heartbeats may be missing."""
        end = time.monotonic() + seconds
        wait_until("the clock was wrong for long enough", lambda: time.monotonic() > end)


def elastic_clocks(programs, scratch):
    """The wall clock of a running elastic job jumps, there and back: nobody is evicted, no step is lost or repeated, the bits are those without."""
    for where in ("all", "one", "coordinator"):
        with FakedJob(programs, scratch, where) as job:
            job.await_size(3)
            job.await_step(20)
            faked_ones = [pid for pid in (job.process.pid, *job.workers()) if "libfaketime" in text_of(f"/proc/{pid}/maps")]
            assert len(faked_ones) == {"all": 4, "one": 1, "coordinator": 1}[where], faked_ones
            for clock in JUMPS:
                mark, before = len(job.log()), job.step()
                set_clock(job.clock, clock)
                job.passes(1.6 * LOST_AFTER)
                job.await_step(before + 10)
                assert job.epoch() == 1 and job.steps_lost() == 0 and not job.said("is lost|evict", mark), f"{where} {clock}\n{job.log()[mark:]}"
                set_clock(job.clock, "+0")
            job.stops()
            job.judge()
            job.runs.env = {k: v for k, v in job.runs.env.items() if k not in NAMES}
            job.same_as_replay()


def owned_folder(programs, scratch):
    """The owner of a run's folder is in another container, with another clock: a second job sees that it lives, whatever the two clocks say, and is
    refused."""
    runs = Runs(programs, scratch)
    for number, (theirs, ours) in enumerate((("-86400", "+86400"), ("+86400", "-86400"), (STANDS, "+0"))):
        name = f"run-{number}"
        with Contained(runs, name, theirs):
            words = runs.command(name, n=1)
            done = subprocess.run(words, capture_output=True, text=True, timeout=90, env={**runs.env, **faked(ours)}, cwd=scratch)
            assert done.returncode == 2 and "belongs to a run that goes on" in done.stderr, f"{theirs}, {ours}: {done.returncode}\n{done.stderr}"
            assert "waiting at most" in done.stderr, done.stderr


class Contained:
    """A job in a process namespace of its own: from outside nobody can tell by its pid whether it lives."""

    def __init__(self, runs, name, clock):
        self.runs, self.name = runs, name
        words = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", *runs.command(name, n=1, steps=FOR_EVER, epochs=0, checkpoint__every_steps=50)]
        with open(runs.path(name + ".log"), "w") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT, env={**runs.env, **faked(clock)}, cwd=runs.folder)

    def __enter__(self):
        wait_until("it trains", lambda: len(self.runs.metrics(self.name)) > 3 or self.process.poll() is not None)
        assert self.process.poll() is None, self.runs.log(self.name)
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait(30)


def left_folder(programs, scratch):
    """It is killed there: a clock that is a day ahead does not make the next job take it over at once, nor one that is a day behind keep it waiting for
    longer than a minute."""
    runs = Runs(programs, scratch)
    waiting = {}
    for ours in ("+86400", "-86400"):
        with Contained(runs, "run" + ours, "+0"):
            pass
        waiting[ours] = subprocess.Popen(runs.command("run" + ours, n=1, steps=5, checkpoint__resume="never"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                         text=True, env={**runs.env, **faked(ours)}, cwd=scratch)
    for ours, process in waiting.items():
        said = process.communicate(timeout=150)[0]
        assert process.returncode == 0 and "waiting at most 60 s" in said and "it is taken over" in said, f"{ours}: {said}"
        assert "has not answered" not in said, said


def monotonic_clocks(programs, scratch):
    """The monotonic clock of one worker stands still as well, as no kernel lets it: no heartbeat of it comes, so it is evicted, the others go on, and when
    its clock does it joins again or ends."""
    with FakedJob(programs, scratch, "one", monotonic=True) as job:
        job.await_size(3)
        job.await_step(20)
        before = job.epoch()
        set_clock(job.clock, STANDS)
        job.await_epoch_after(before)
        assert job.said("is lost: no heartbeat for 1 s"), job.log()
        set_clock(job.clock, "+0")
        job.await_size(3)
        job.await_step(job.step() + 20)
    job.judge()
