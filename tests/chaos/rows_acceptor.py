"""Unauthenticated peers and exhausted machines: 23 hostile bytes, 24 wrong keys, 25 absurd lengths, 26 connections that stay silent, 27 limits of the system.
Rows 23 to 25 call tests/hostile, whose long version is `make hostile`."""
import os
import re
import resource
import socket
import statistics
import subprocess
import tempfile
import threading
import time

import attack
from job import Job
from suites import replay_corpus, run_claim, run_suite

HTTP_CONNECTIONS, TCP_CONNECTIONS = 64, 256  # unauthenticated ones that a port keeps at a time
TCP_S, HTTP_S = 6.0, 12.0  # seconds after which a silent peer is disconnected: 5 and 10, and the time to notice
SLOWER = 0.02
PERIOD_S = 1.0
CONSTANT = {"optim.schedule": "constant"}  # a run without a last step has the losses of one with a last step
STORM_A_TRY = 1000      # connections


def row23(chaos, tries):
    run_claim(chaos, "hostile/check.py", "unauthenticated", {"HOSTILE_SEED": str(chaos.seed)})
    run_claim(chaos, "hostile/check.py", "start", {"HOSTILE_SEED": str(chaos.seed)})
    if tries >= 100:  # a storm has a limit in percent of a step, which needs minutes
        with tempfile.TemporaryDirectory(prefix="cohort-chaos-") as folder:
            run_claim(chaos, "hostile/check.py", "storm", {"HOSTILE_SEED": str(chaos.seed), "HOSTILE_CONNECTIONS": str(STORM_A_TRY * tries),
                                                           "HOSTILE_OUT": folder + "/storm.jsonl"}, seconds=1200)


def row24(chaos, tries):
    run_suite(chaos, "net_test", "Handshake.*:ControlFrameReader.*:SecretFile.*:Tls.*")
    run_claim(chaos, "hostile/check.py", "intruders", {"HOSTILE_SEED": str(chaos.seed)})


def row25(chaos, tries):
    run_suite(chaos, "net_test", "FrameHeader.*")
    run_suite(chaos, "checkpoint_test", "SafetensorsHeader.Lengths*")
    run_suite(chaos, "group_test", "Roster.*:Hosts.Broken*")
    run_suite(chaos, "elastic_test", "ControlMessages.*:CoordinatorState.*")
    run_suite(chaos, "base_test", "Yaml.Refuses*:Spec.RefusesDeep*:File.RefusesFilesThatAreTooLarge")
    run_suite(chaos, "observe_test", "HttpRequest.*:Http.AHeadOverTheCap*")
    replay_corpus(chaos, "frame", "handshake", "http", "manifest", "safetensors", "control_messages", "roster", "message", "config", "spec", "decision_log")


def held(pid):
    """Sockets of a process."""
    count = 0
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            count += os.readlink(f"/proc/{pid}/fd/{fd}").startswith("socket:")
        except OSError:
            continue
    return count


class SilentConnections:
    """So many connections to every port, which send nothing."""

    def __init__(self, targets, number):
        self.socks = []
        for i in range(number):
            for target in targets:
                sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, attack.LINGER)
                sock.bind((f"127.{1 + i // 60000}.{i // 250 % 250}.{1 + i % 250}", 0))
                sock.connect_ex(("127.0.0.1", target.port))
                self.socks.append(sock)

    def close(self):
        for sock in self.socks:
            sock.close()


def silent_connections(chaos, number, cycles):
    """Many silent connections: each port keeps few of them, none for long; steps take as long as without, and the losses are the same."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 2 * number + 500), hard))
    number = min(number, (min(hard, 2 * number + 500) - 300) // 2)
    with tempfile.TemporaryDirectory(prefix="cohort-chaos-") as folder:
        undisturbed = Job(chaos.programs, folder + "/undisturbed", 300, settings=CONSTANT)
        undisturbed.finish()
        job, ratios, connections = Job(chaos.programs, folder + "/attacked", 10**8, settings=CONSTANT), [], None
        try:
            job.wait_until("some steps", lambda: len(job.losses()) >= 50)
            targets, ports, before = job.targets(), job.ports(), {pid: held(pid) for pid in job.members()}
            slow = [SlowPeer(chaos, target) for target in targets]
            for _ in range(cycles):
                quiet = median_step(job)
                connections = SilentConnections(targets, number)
                kept = {target.protocol: held(ports[target.port]) - before[ports[target.port]] for target in targets}
                assert all(count <= (HTTP_CONNECTIONS if speaks == "http" else TCP_CONNECTIONS) for speaks, count in kept.items()), f"{kept} unauthenticated peers are kept"
                ratios.append(median_step(job) / quiet)
                connections.close()
            for one in slow:
                one.join()
                assert not one.kept, one.kept
            assert job.running(), job.text()
        finally:
            if connections:
                connections.close()
            job.stop()
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert job.losses()[:300] == undisturbed.losses(), "other losses than an undisturbed run"
        slower = statistics.median(ratios) - 1
        assert slower <= chaos.share(SLOWER), f"a step takes longer, by {ratios}"
        return {"connections": cycles * number * len(targets), "kept": kept, "slower": round(slower, 4)}


def median_step(job):
    """Seconds of a step, by the run's own lines, for a while from now."""
    begin = time.time()
    time.sleep(PERIOD_S)
    times = [line["time"] for line in job.lines() if "loss" in line and line["time"] >= begin]
    assert len(times) > 8 and job.running(), job.text()
    return statistics.median(b - a for a, b in zip(times, times[1:]))


class SlowPeer(threading.Thread):
    """Sends a byte a second, which is too slow for every port."""

    def __init__(self, chaos, target):
        super().__init__(daemon=True)
        self.sock, self.protocol = socket.create_connection(("127.0.0.1", target.port), 5), target.protocol
        self.limit, self.kept = chaos.limit(HTTP_S if target.protocol == "http" else TCP_S), ""
        self.start()

    def run(self):
        begin, said, over = time.monotonic(), 0, False
        self.sock.settimeout(0.05)
        while not over and not self.kept:
            try:
                if time.monotonic() - begin >= said:
                    said += self.sock.send(b"G")
                over = self.sock.recv(1000) == b""
            except socket.timeout:
                if time.monotonic() - begin > self.limit:
                    self.kept = f"a slow peer is kept by the {self.protocol} port for more than {self.limit:.0f} s"
            except OSError:
                over = True
        self.sock.close()


def row26(chaos, tries):
    if chaos.in_time():
        number = 10000 if tries >= 100 else 500
        chaos.attempt(f"26 {number} silent connections to every port", lambda: silent_connections(chaos, number, 5 if tries >= 100 else 3))
    run_suite(chaos, "observe_test", "Http.*:HttpRequest.*")
    run_suite(chaos, "net_test", "ControlConnection.GivesAnUnauthenticatedPeerItsDeadlineAndNoMore")


def no_ports_left(chaos):
    """A network of its own, whose few ports are all in use: one line reports it, and nothing waits."""
    script = ("ip link set lo up && echo '40000 40003' > /proc/sys/net/ipv4/ip_local_port_range && "
              "python3 -c 'import socket,subprocess,sys\n"
              "taken=[]\n"
              "for port in range(40000, 40004):\n"
              "    sock = socket.socket(); sock.bind((\"127.0.0.1\", port)); sock.listen(); taken.append(sock)\n"
              "sys.exit(subprocess.run(sys.argv[1:]).returncode)' \"$@\"")
    begin = time.monotonic()
    done = subprocess.run(["unshare", "-rn", "sh", "-c", script, "sh", os.path.join(chaos.programs, "cohort"), "run", "-n", "2", "--start-timeout", "5s",
                           os.path.join(chaos.programs, "launch_rank"), "hello"], capture_output=True, text=True, timeout=chaos.limit(60))
    lines = (done.stdout + done.stderr).splitlines()
    assert done.returncode not in (0, 127) and len(lines) == 1, lines
    assert re.search(r"port|address", lines[0], re.IGNORECASE) and re.search(r"in use|not available|Cannot assign|EADDR", lines[0]), lines
    return {"detect": time.monotonic() - begin}


def row27(chaos, tries):
    run_claim(chaos, "hostile/check.py", "limits")
    chaos.attempt("27 no ports left", lambda: no_ports_left(chaos))
    run_suite(chaos, "bench_test", "Doctor.FailsOnLimits*")


ROWS = {"23": row23, "24": row24, "25": row25, "26": row26, "27": row27}
