#!/usr/bin/env python3
"""Claims about a job whose ports are open to the network: check.py <folder of programs> <claim>. Exit status 0 when the claim holds.

    unauthenticated  a few thousand hostile connections to every port of a running job: none is accepted, memory and result stay as they were
    start       the same while the ranks connect
    intruders   a holder of the secret that belongs to another job or epoch, or claims a rank twice, gets the reason; the job is not disturbed
    limits      too few descriptors or processes are reported at the start, in one line that names the limit
    full_shm    a full /dev/shm does no harm, nor does none
    elastic     attacks on every port of an elastic job while a worker, its coordinator and, among idle connections, another worker are replaced
    hosts       the same on two hosts with agents, one of which is lost (network namespaces: needs root)
    encrypted   the same under --tls
    nodes       agents that something else started connect among idle connections
    storm       all of it at length, with step times: HOSTILE_CONNECTIONS at HOSTILE_RATE a second, a line for each period into a file
"""
import os
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

import attack
import changes
import handshake
from job import Job

GROWTH_KIB = 8 << 10     # of any process of the job
IDLE_LIMIT = 5 + 1       # seconds after which a listener has closed a silent connection
SLOWDOWN = float(os.environ.get("COHORT_TEST_SLOWDOWN", "1"))
SEED = int(os.environ.get("HOSTILE_SEED", "1"))


def settle(job):
    """Memory before the storm: after some steps, and with the first handshakes done."""
    job.wait_until("some steps", lambda: len(job.losses()) >= 20)


def grown_processes(job, before):
    """Processes that have grown too much, in words."""
    after = job.memory()
    return {pid: (before[pid], now) for pid, now in after.items() if pid in before and now - before[pid] > GROWTH_KIB}


def none_accepted(storm):
    assert not storm.accepted, f"seed {SEED}: accepted {len(storm.accepted)}: {storm.accepted[:5]}"
    late = [l for l in storm.late if l[1] > IDLE_LIMIT]
    assert not late, f"seed {SEED}: kept longer than {IDLE_LIMIT} s: {late[:5]}"


def same_result(calm, attacked):
    assert attacked.losses() == calm.losses(), "other losses than the run that was not attacked"
    assert attacked.tensors() == calm.tensors(), "other parameters than the run that was not attacked"


def unauthenticated(programs, folder):
    connections, steps = 3000, 2500
    calm = Job(programs, folder + "/calm", steps)
    calm.finish()
    job = Job(programs, folder + "/attacked", steps)
    try:
        settle(job)
        before = job.memory()
        storm = attack.Storm(job.targets(), rate=5000, seed=SEED)
        assert {t.protocol for t in storm.targets} == {"cohort", "http"}, storm.targets
        while storm.poll(connections) and storm.begun < connections:
            assert job.running(), job.text()
            time.sleep(0.001)
        assert job.insiders(), "a frame of an absurd length was not refused"
        grown = grown_processes(job, before)
        job.finish()
        while storm.poll(connections):
            time.sleep(0.001)
    finally:
        job.stop()
    none_accepted(storm)
    assert storm.refused > 0, "no holder of the secret got a verdict about another job or epoch"
    assert not grown, f"grew by more than {GROWTH_KIB} KiB: {grown}"
    same_result(calm, job)
    print(f"{storm.begun} connections, seed {SEED}: none accepted, the result is that of a calm run")


def start(programs, folder):
    """Every port that opens while the ranks connect is attacked, that of a rank which waits for another included; the result is that of a calm run."""
    calm = Job(programs, folder + "/calm", 50)
    calm.finish()
    job = Job(programs, folder + "/attacked", 50)
    storms, rng, late = {}, random.Random(SEED), None

    def attack_all(most):
        for port in job.ports():
            if port not in storms:
                target = attack.Target(port, "cohort", name, handshake.imagined(secret, name, rank=1), secret=secret)
                storms[port] = attack.Storm([target], rate=1500, seed=rng.random())
        for storm in storms.values():
            storm.poll(most)
        return len([s for s in storms.values() if s.begun >= most])

    try:
        job.wait_until("rank 1", lambda: 1 in job.ranks())
        late = job.ranks()[1]
        os.kill(late, signal.SIGSTOP)  # while it still loads its libraries, so that rank 0 has to wait for it with an open port
        secret, name, _ = job.key()
        job.wait_until("the launcher's and rank 0's port attacked", lambda: attack_all(400) >= 2)
        os.kill(late, signal.SIGCONT)
        while job.running():
            attack_all(800)
            time.sleep(0.001)
        job.finish()
    finally:
        job.stop()
    attacked = [s for s in storms.values() if not any(received.startswith(b"HTTP") for _, _, received in s.accepted)]
    assert len(attacked) >= 2, f"only {len(attacked)} ports were seen while the ranks connected"
    for storm in attacked:
        none_accepted(storm)
    same_result(calm, job)
    print(f"{sum(s.begun for s in storms.values())} connections to {len(storms)} ports, seed {SEED}: none accepted")


def refusal(port, secret, name, **who):
    """The reason of the refusal of a process that holds this secret; empty when it is accepted."""
    with socket.create_connection(("127.0.0.1", port), 5) as sock:
        try:
            handshake.authenticate(sock, secret, name, **who)
            return ""
        except ConnectionError as problem:
            return str(problem)


def join_frame(secret, talk, rank, size, version):
    """A worker's request to join: docs/launching.md, "The frames of the rendezvous". version: None, as workers of an older Cohort."""
    text = lambda data: struct.pack("<Q", len(data)) + data
    body = struct.pack("<QQ", rank, os.getpid()) + text(b"127.0.0.1:1") + text(b"elsewhere") + struct.pack("<Q", size)
    body += b"" if version is None else text(version)
    return handshake.frame(secret, talk, 0x0101, len(body), body)


def intruders(programs, folder):
    steps = 600
    calm = Job(programs, folder + "/calm", steps)
    calm.finish()
    job, other = Job(programs, folder + "/attacked", steps), Job(programs, folder + "/other", steps)
    try:
        for one in (job, other):
            settle(one)
            for pid in one.ranks().values():
                os.kill(pid, signal.SIGSTOP)  # the port is the launcher's; the ranks must not be done before the test
        secret, name, port = job.key()
        theirs, their_name, their_port = other.key()
        assert refusal(port, secret, name, rank=0) == "", "the honest handshake of this test is wrong"
        for target, key in ((port, theirs), (their_port, secret)):
            reason = refusal(target, key, name, rank=0)
            assert reason and "two jobs" not in reason, f"one job's key was accepted by the other ({reason})"
        begin = time.monotonic()
        reason = refusal(port, secret, their_name, rank=0)
        assert "two jobs" in reason and name in reason and their_name in reason, reason
        reason = refusal(port, secret, name, rank=0, epoch=7)
        assert "a stale membership epoch" in reason and "epoch 0" in reason and "epoch 7" in reason, reason
        assert time.monotonic() - begin < 2 * SLOWDOWN
        again = []
        ours = subprocess.run([os.path.join(programs, "cohort"), "--version"], capture_output=True, check=True).stdout.split()[1]
        for rank, size, version, expected in ((0, 2, b"0.0.9", b"runs Cohort 0.0.9"), (0, 2, None, b"does not tell its version"),
                                              (0, 3, ours, b"expects 3 ranks"), (5, 2, ours, b"does not exist"), (1, 2, ours, None),
                                              (1, 2, ours, b"is taken by process")):
            sock = socket.create_connection(("127.0.0.1", port), 5)
            talk = handshake.authenticate(sock, secret, name, rank=rank)
            sock.sendall(join_frame(secret, talk, rank, size, version))
            again.append(sock)  # the second claim to a rank conflicts with the first only while that one waits
            if expected:
                reply = handshake.read_exactly(sock, 40)
                reply += handshake.read_exactly(sock, struct.unpack("<Q", reply[8:16])[0])
                assert expected in reply, reply
        for pid in [*job.ranks().values(), *other.ranks().values()]:
            os.kill(pid, signal.SIGCONT)
        job.finish()
        other.finish()
        for sock in again:
            sock.close()
    finally:
        job.stop()
        other.stop()
    same_result(calm, job)
    same_result(calm, other)


def run_limited(command, before="true", seconds=30):
    """Exit status and lines of a command under a shell's limits."""
    done = subprocess.run(["sh", "-c", before + '; exec "$@"', "sh"] + command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=seconds, env={k: v for k, v in os.environ.items() if not k.startswith("COHORT_")})
    return done.returncode, done.stdout.splitlines()


def ranks_of(programs):
    cohort = os.path.join(os.path.abspath(programs), "cohort")
    return [cohort, "run", "-n", "4", "--start-timeout", "5s", os.path.join(os.path.abspath(programs), "launch_rank"), "hello"]


def limits(programs, folder):
    ranks = ranks_of(programs)
    assert run_limited(ranks)[0] == 0
    enough = None
    for files in range(8, 64, 2):
        status, lines = run_limited(ranks, f"ulimit -n {files}")
        if status == 0:
            enough = files
            break
        named = [line for line in lines if re.search(rf"Too many open files.*{files}.*ulimit -n", line)]
        assert named, f"with {files} descriptors: {lines}"
    assert enough and enough > 12, f"enough: {enough}"
    # Root has no limit of processes: use another user.
    other_user = ["setpriv", "--reuid", "65534", "--clear-groups"] if os.geteuid() == 0 else []
    status, lines = run_limited(other_user + ["prlimit", "--nproc=1"] + ranks)
    assert status != 0 and len(lines) == 1 and "ulimit -u" in lines[0], lines


def full_shm(programs, folder):
    """Memory of ranks has no names: nothing of it is in /dev/shm, which may be full or missing."""
    ranks = ranks_of(programs)
    # In a user namespace the machine's own /dev/shm cannot be unmounted, and it may have none: a /dev with a full one, and one without.
    full = "mkdir /dev/shm && mount -t tmpfs -o size=4k none /dev/shm && head -c 4096 /dev/zero > /dev/shm/full"
    for shm in full, "test ! -e /dev/shm":
        status, lines = run_limited(["unshare", "-rm", "sh", "-c", 'd=$(mktemp -d) && mount -t tmpfs none $d && for f in null zero random urandom; do '
                                 f'touch $d/$f && mount --bind /dev/$f $d/$f || exit 9; done; mount --move $d /dev && rmdir $d && {shm} && exec "$@"', "sh"] + ranks)
        assert status == 0 and len([line for line in lines if "transport shm" in line]) == 4, lines


CLAIMS = {"unauthenticated": unauthenticated, "start": start, "intruders": intruders, "limits": limits, "full_shm": full_shm}


def main():
    programs, claim = sys.argv[1], sys.argv[2]
    with tempfile.TemporaryDirectory(prefix="cohort-hostile-") as folder:
        if claim == "storm":
            from storm import storm
            return storm(os.path.abspath(programs), folder)
        if claim in changes.CLAIMS:
            return changes.CLAIMS[claim](os.path.abspath(programs), folder, SEED)
        CLAIMS[claim](programs, folder)


if __name__ == "__main__":
    main()
