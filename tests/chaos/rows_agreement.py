"""Ranks and jobs that do not match: 18 operations that differ, 20 versions and settings that differ, 21 second claims, old epochs and other jobs at
the same port."""
import os
import re
import socket
import subprocess
import tempfile
import time

from runs import TINY
from suites import run_claim, run_suite

LIMIT = max(60, 20 * float(os.environ.get("COHORT_TEST_SLOWDOWN", "1")))
REFUSED = 1.0  # seconds
# For each: the setting of rank 1, and the part of the message that names both sides.
DIFFERENT = {
    "data.batch": (48, "data.batch is 32 on rank 0 but 48 on rank 1"),
    "seed": (5, "seed is 1 on rank 0 but 5 on rank 1"),
    "optimizer": ("sgd(lr=0.03, momentum=0.9)", "optimizer is \"sgd(lr=0.02, momentum=0.9)\" on rank 0 but \"sgd(lr=0.03, momentum=0.9)\" on rank 1"),
    "model": ("mlp(in=784, hidden=32, out=10)", "on rank 0 but \"mlp(in=784, hidden=32, out=10)\" on rank 1"),
    "engine.bucket": ("1MiB", "engine.bucket is "),
}


def clean():
    return {k: v for k, v in os.environ.items() if not k.startswith("COHORT_")}


def row18(chaos, tries):
    run_suite(chaos, "laws_test", "Mismatch.*", seconds=9 * 3 * 2.0)  # a test tries each of nine mismatches three times
    run_suite(chaos, "queue_test", "*Mismatches*:QueueErrors.AMismatch*:NegotiatorTest.AMismatch*", seconds=2.0)
    run_suite(chaos, "ddp_test", "DataParallel.RefusesModulesThatDiffer*", seconds=2.0)


def ranks_with(chaos, folder, first, second, status):
    """`cohort train` as two ranks with different settings; returns the seconds it took, and stderr."""
    words = lambda sets: " ".join(f"--set '{name}={value}'" for name, value in {**TINY, "out": folder + "/run", "epochs": 1, "seed": 1, **sets}.items())
    worker = f"exec {chaos.programs}/cohort-worker train"
    script = f"if [ $COHORT_RANK = 0 ]; then {worker} {words(first)}; else {worker} {words(second)}; fi"
    begin = time.monotonic()
    done = subprocess.run([os.path.join(chaos.programs, "cohort"), "run", "-n", "2", "sh", "-c", script], capture_output=True, text=True, timeout=LIMIT, env=clean())
    assert done.returncode == status, f"status {done.returncode}, not {status}: {done.stdout}{done.stderr}"
    return time.monotonic() - begin, done.stderr


def settings_that_differ(chaos, key):
    """Two ranks of one job that read different files, as hosts may: refused before anything is trained, by every rank, in one line. The time is
    what it takes longer than a job that both ranks refuse by themselves."""
    other, words = DIFFERENT[key]
    with tempfile.TemporaryDirectory(prefix="cohort-chaos-") as folder:
        usual, _ = ranks_with(chaos, folder, {"model": "none"}, {"model": "none"}, 2)
        took, said = ranks_with(chaos, folder, {}, {key: other}, 2)
        for rank in (0, 1):
            lines = [line for line in said.splitlines() if line.startswith(f"[{rank}]") and "the settings differ: " in line]
            assert len(lines) == 1 and words in lines[0], f"rank {rank}: {said}"
        assert not os.path.exists(folder + "/run"), "a folder was left"
        assert took - usual <= chaos.limit(REFUSED), f"{took:.2f} s, {usual:.2f} s without"
        return {"detect": max(0.0, took - usual)}


def row20(chaos, tries):
    for i in range(max(min(tries, 20), len(DIFFERENT))):
        key = list(DIFFERENT)[i % len(DIFFERENT)]
        if chaos.in_time():
            chaos.attempt(f"20 {key} differs", lambda key=key: settings_that_differ(chaos, key))
    run_suite(chaos, "net_test", "Handshake.NamesBoth*:ControlConnection.ReportsAnotherVersion*:ConnectPeers.RefusesContradicting*:ConnectPeers.RefusesRanksThatWant*", seconds=2.0)
    run_suite(chaos, "group_test", "Rendezvous.ARankOfAnotherVersion*:RendezvousState.AnotherVersion*")
    run_suite(chaos, "elastic_test", "ElasticCoordinator.AWorkerOfAnotherVersion*")
    run_suite(chaos, "checkpoint_test", "Manifest.*")


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def two_jobs_at_one_port(chaos):
    """Two jobs of two ranks, each with a secret of its own, with the same rendezvous address. The first computes its sum; no rank of the second joins."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="cohort-chaos-") as folder:
        def rank(job, number):
            secret = f"{folder}/{job}.secret"
            if not os.path.exists(secret):
                with open(secret, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
                    file.write(os.urandom(32))
            env = {**clean(), "RANK": str(number), "WORLD_SIZE": "2", "LOCAL_RANK": str(number), "LOCAL_WORLD_SIZE": "2", "COHORT_JOB": job,
                   "COHORT_SECRET_FILE": secret, "COHORT_RENDEZVOUS": f"127.0.0.1:{port}", "COHORT_START_TIMEOUT": "6s"}
            return subprocess.Popen([os.path.join(chaos.programs, "launch_rank"), "hello"], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

        def listening():
            with socket.socket() as sock:
                return sock.connect_ex(("127.0.0.1", port)) == 0

        first = [rank("first", 0)]
        end = time.monotonic() + LIMIT
        while not listening():
            assert first[0].poll() is None and time.monotonic() < end, "the first job's rank 0 does not listen"
        second = [rank("second", 0), rank("second", 1)]
        taken = second[0].communicate(timeout=LIMIT)[0]
        first.append(rank("first", 1))
        for process in first:
            said = process.communicate(timeout=LIMIT)[0]
            assert process.returncode == 0 and "sum 3" in said, said
        refused = second[1].communicate(timeout=LIMIT)[0]
        assert second[0].returncode != 0 and re.search(rf"{port}.*(in use|taken)|Address already in use", taken), taken
        assert second[1].returncode != 0 and "sum" not in refused, refused


def row21(chaos, tries):
    for i in range(min(tries, 10)):
        if chaos.in_time():
            chaos.attempt("21 two jobs at one port", lambda: two_jobs_at_one_port(chaos))
    run_claim(chaos, "hostile/check.py", "intruders", {"HOSTILE_SEED": str(chaos.seed)})
    run_suite(chaos, "group_test", "Rendezvous.UnauthenticatedPeers*:RendezvousState.WrongSizes*")
    run_suite(chaos, "elastic_test", "Membership.ACoordinatorWithTheWrongLog*:Membership.WorkersThatBroke*:StepCommit.Refuses*")
    run_suite(chaos, "net_test", "Handshake.RefusesAReplayed*:Handshake.NamesBothSides*:ConnectPeers.RefusesADuplicateRank:ConnectPeers.RefusesWhenAnotherRank*")


ROWS = {"18": row18, "20": row20, "21": row21}
