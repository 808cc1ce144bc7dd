"""Elastic jobs whose workers fail by themselves, are killed as soon as they start, or whose coordinator cannot be reached or answer."""
import glob
import os
import re
import resource
import select
import signal
import socket
import struct
import subprocess
import threading
import time

from coordinators import SupervisedVectorJob
from jobs import FOR_EVER, Runs, VectorJob, wait_until
from runs import DEEP, LIMIT

FAILS = 'echo "Traceback (most recent call last):" >&2; echo "ValueError: row 17 of data.csv, process $$" >&2; exit 3'


CRASHES = "ulimit -c 0; kill -SEGV $$"


def run_script(programs, scratch, script, n=3, flags=(), status=3):
    """`cohort run --min-n 1` of a shell script; what it printed last, and how many processes it started."""
    runs = Runs(programs, scratch)
    starts = runs.path("starts")
    words = [runs.cohort, "run", "-n", str(n), "--min-n", "1", *flags, "--", "sh", "-c", f"echo $$ >> {starts}; {script}"]
    done = runs.call(words, status=status)
    with open(starts) as file:
        started = len(file.readlines())
    os.remove(starts)
    return done.stderr, started


def failing(programs, scratch):
    """A program that fails before its first step has one round, and its error is what is printed last. An error that goes from worker to worker ends the
    job with the second, also when others train meanwhile. A crash is such an error."""
    printed, started = run_script(programs, scratch, FAILS)
    assert 3 <= started <= 5, printed  # a replacement may have been started before all had ended
    assert "before the first step was committed" in printed or "the same error as worker" in printed, printed
    assert "checkpoint" not in printed, printed
    after = re.split("others are started|the job stops", printed)[-1]
    assert "did not join" not in after and " is lost" not in after and ") ended: " not in after, printed
    assert printed.rstrip().splitlines()[-1].strip().startswith("ValueError: row 17 of data.csv, process "), printed
    assert "worker 0 failed first" in printed or "worker 1 failed first" in printed or "worker 2 failed first" in printed, printed
    trains = f"exec {programs}/elastic_rank {FOR_EVER} {scratch}"
    printed, started = run_script(programs, scratch, f'if [ $COHORT_RANK = 1 ] || [ $COHORT_RANK -ge 3 ]; then {FAILS}; fi; {trains}')
    assert started == 4, printed
    assert "worker 3 ended with the same error as worker 1 before it, and so would the next one: the job stops" in printed, printed
    assert "worker 1 failed first: exit status 3" in printed.splitlines()[-4], printed
    printed, started = run_script(programs, scratch, CRASHES, status=128 + signal.SIGSEGV)
    assert 3 <= started <= 5, printed
    assert "before the first step was committed" in printed or "killed by SIGSEGV), and so would the next one" in printed, printed
    assert re.search("worker [012] failed first: killed by SIGSEGV", printed.rstrip().splitlines()[-1]), printed
    printed, started = run_script(programs, scratch, f'if [ $COHORT_RANK = 1 ] || [ $COHORT_RANK -ge 3 ]; then {CRASHES}; fi; {trains}',
                                  status=128 + signal.SIGSEGV)
    assert started == 4, printed
    assert "worker 3 ended as worker 1 did before it (killed by SIGSEGV), and so would the next one: the job stops" in printed, printed


def killed_early(programs, scratch):
    """All workers are killed as soon as they start, again and again: others are started, and the job trains once they live."""
    class EarlyJob(VectorJob):
        def words(self, n, limits):
            marks = self.runs.path("marks")
            os.mkdir(marks)
            script = (f"echo > {marks}/$COHORT_RANK; if [ $(ls {marks} | wc -l) -le 9 ]; then kill -9 $$; fi; "
                      f"exec {self.programs}/elastic_rank {self.sets['steps']} {self.histories}")
            return [self.runs.cohort, "run", "-n", str(n), *limits, "--", "sh", "-c", script]

    with EarlyJob(programs, scratch, "run", n=3, least=2, steps=FOR_EVER) as job:
        job.await_step(20)
        job.await_size(3)
        assert job.said(r"worker did not join: killed by SIGKILL"), job.log()
        job.process.send_signal(signal.SIGTERM)
        job.ends()
        job.judge()


class Relay:
    """Between workers and their coordinator; it can reset all connections."""

    def __init__(self, address_file):
        self.address_file, self.pairs, self.lock = address_file, [], threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                inner, _ = self.listener.accept()
                with open(self.address_file) as file:
                    host, port = file.read().split()[0].rsplit(":", 1)
                outer = socket.create_connection((host, int(port)))
            except OSError:
                return
            with self.lock:
                self.pairs.append((inner, outer))
            threading.Thread(target=self.pump, args=(inner, outer), daemon=True).start()

    def pump(self, inner, outer):
        try:
            while True:
                for one in select.select([inner, outer], [], [])[0]:
                    received = one.recv(1 << 16)
                    if not received:
                        raise ConnectionError
                    (outer if one is inner else inner).sendall(received)
        except (OSError, ValueError):
            self.drop((inner, outer))

    def drop(self, pair):
        with self.lock:
            if pair not in self.pairs:
                return
            self.pairs.remove(pair)
        for one in pair:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close() sends a reset
            try:
                one.shutdown(socket.SHUT_RD)  # wakes its pump
            except OSError:  # it was reset by the other side
                pass
            one.close()

    def reset(self):
        for pair in list(self.pairs):
            self.drop(pair)

    def close(self):
        self.listener.close()
        self.reset()


def reset(programs, scratch):
    """The connections between workers and coordinator are reset again and again: the workers come back, none is replaced, and there are never more
    processes than places."""
    address_file = os.path.join(scratch, "address")
    relay = Relay(address_file)

    class RelayedJob(VectorJob):
        def words(self, n, limits):
            script = (f"echo $COHORT_RENDEZVOUS > {address_file}.$$ && mv {address_file}.$$ {address_file}; COHORT_RENDEZVOUS=127.0.0.1:{relay.port} "
                      f"exec {self.programs}/elastic_rank {self.sets['steps']} {self.histories}")
            return [self.runs.cohort, "run", "-n", str(n), *limits, "--", "sh", "-c", script]

    try:
        with RelayedJob(programs, scratch, "run", n=3, least=2, steps=FOR_EVER) as job:
            job.await_step(20)
            for _ in range(8):
                job.await_size(3)
                before = job.epoch()
                relay.reset()
                job.await_epoch_after(before)
                assert len(job.workers()) <= 3, job.log()
            job.await_size(3)
            assert len(glob.glob(job.histories + "/*.jsonl")) == 3, job.log()
            job.process.send_signal(signal.SIGTERM)
            job.ends()
            job.judge()
    finally:
        relay.close()


def stalled(programs, scratch):
    """--supervised, and the coordinator is stopped: the supervisor notices, says so, kills it and starts another, and the epoch continues."""
    with SupervisedVectorJob(programs, scratch, "run", n=2, least=1, flags=["--supervised", "--lost-after", "500ms"], steps=FOR_EVER) as job:
        job.await_step(20)
        stopped = job.coordinator()
        at = time.monotonic()
        os.kill(stopped, signal.SIGSTOP)
        wait_until("it is noticed", lambda: job.said(rf"the coordinator \(process {stopped}\) has not answered for 2.5 s: it is stopped, or hangs"))
        print(f"noticed after {time.monotonic() - at:.2f} s")
        wait_until("both are back", lambda: job.said("all 2 workers of membership epoch 1 are back"))
        job.await_step(job.step() + 20)
        assert job.epoch() == 1 and job.steps_lost() == 0, job.log()
        job.process.send_signal(signal.SIGTERM)
        job.ends()
        job.judge()


def last_checkpoint(programs, scratch):
    """No file may grow as large as a checkpoint needs: it is tried again, and the job ends with status 1, although it was trained to its end. What is
    lost and what is kept is printed last. Started again it goes on from there."""
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (110_000, 110_000))  # buckets are files, too

    runs = Runs(programs, scratch)
    sets = {"model": DEEP, "engine__bucket": "8KiB", "engine__first_bucket": "8KiB", "checkpoint__last_try": "1s"}
    runs.train("run", n=1, epochs=1, **sets)
    kept = runs.checkpoints("run")[-1]
    done = subprocess.run(runs.command("run", n=1, **sets) + ["--min-n", "1"], capture_output=True, text=True, timeout=LIMIT, env=runs.env, cwd=runs.folder,
                          preexec_fn=limit)
    assert done.returncode == 1, f"{done.returncode}\n{done.stdout}{done.stderr}"
    lost = f"its last checkpoint could not be written: updates {int(kept[-8:]) + 1} to 38 are lost; {kept} is kept"
    assert lost in done.stderr.rstrip().splitlines()[-1], done.stderr
    assert "worker 0 (rank 0) failed after the job had been trained to its end" in done.stderr, done.stderr
    again = runs.train("run", n=1, **sets)
    assert f"goes on after update {int(kept[-8:])}\n" in again.stdout, again.stdout
