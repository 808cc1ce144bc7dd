#!/usr/bin/env python3
"""All-reduce between hosts that are network namespaces, joined by a bridge at a given rate: how much of the line it uses.

    sudo bench/hosts.py --hosts 2 --per-host 2 --bytes 25000000 --rate 1000 --congestion cubic,bbr

Every host is a namespace with one interface, limited to --rate Mbit/s in both directions (tc tbf); the bridge is in a namespace of its own, so
that nothing of the machine's own network is touched. Ranks of a host share memory, ranks of different hosts use tcp. A host must send
and receive 2(h-1)/h N bytes of an all-reduce of N bytes over h hosts. The line carries rate/8 bytes a second, of which 1448 in 1514 are payload of
full packets; shares are given of both. One JSON object a line. Namespaces and processes are gone when it ends, also by an error, an
interrupt or SIGTERM.
"""
import argparse
import contextlib
import json
import os
import secrets
import signal
import statistics
import subprocess
import sys
import tempfile

PAYLOAD = 1448 / 1514  # of a full packet with timestamps, on the wire without preamble and gap, which tc does not count either
FIRST_PORT = 29000


def sh(*words):
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL)


@contextlib.contextmanager
def network(hosts, rate, mtu=1500):
    """Namespaces <tag>-0 .. and their addresses; deleted at the end."""
    tag = f"cohort{os.getpid()}"
    switch, spaces = f"{tag}-sw", [f"{tag}-{h}" for h in range(hosts)]
    try:
        sh("ip", "netns", "add", switch)
        sh("ip", "-n", switch, "link", "add", "br0", "type", "bridge")
        sh("ip", "-n", switch, "link", "set", "br0", "up")
        for h, space in enumerate(spaces):
            sh("ip", "netns", "add", space)
            sh("ip", "-n", space, "link", "add", "eth0", "type", "veth", "peer", "name", f"port{h}", "netns", switch)
            sh("ip", "-n", switch, "link", "set", f"port{h}", "master", "br0", "up")
            sh("ip", "-n", space, "addr", "add", f"10.77.0.{h + 1}/24", "dev", "eth0")
            for where, device in ((space, "eth0"), (switch, f"port{h}")):
                sh("ip", "-n", where, "link", "set", device, "mtu", str(mtu))
            sh("ip", "-n", space, "link", "set", "eth0", "up")
            sh("ip", "-n", space, "link", "set", "lo", "up")
            for where, device in ((space, "eth0"), (switch, f"port{h}")):  # out of the host, and into it
                sh("tc", "-n", where, "qdisc", "add", "dev", device, "root", "tbf", "rate", f"{rate}mbit", "burst", "128kb", "latency", "50ms")
        yield spaces
    finally:
        for space in [*spaces, switch]:
            subprocess.run(["ip", "netns", "del", space], stderr=subprocess.DEVNULL, check=False)


def run_ranks(commands, limit, environments=None, may_crash=False):
    """What the first of these processes prints; none outlives the call. may_crash: gloo's threads now and then abort a rank at its very end."""
    started = []
    try:
        for command, more in zip(commands, environments or [{}] * len(commands)):
            started.append(subprocess.Popen([str(w) for w in command], stdout=subprocess.PIPE, text=True, env=dict(os.environ, **more)))
        output = started[0].communicate(timeout=limit)[0]
        codes = [p.wait(timeout=limit) for p in started]
    finally:
        for p in started:
            if p.poll() is None:
                p.send_signal(signal.SIGKILL)
                p.wait()
    if any(c != 0 and not (may_crash and output and c == -signal.SIGABRT) for c in codes):
        sys.exit(f"ranks ended with {codes}: {' '.join(map(str, commands[0]))}")
    return output


def measure(o, spaces, congestion, algorithm, limit):
    """Seconds of every round, of the slowest rank."""
    ranks = [(h, r) for h in range(o.hosts) for r in range(o.per_host)]
    addresses = ",".join(f"10.77.0.{h + 1}:{FIRST_PORT + r}" for h, r in ranks)
    with tempfile.NamedTemporaryFile("w", suffix=".secret") as secret:
        secret.write(secrets.token_hex(32))
        secret.flush()
        commands = [["ip", "netns", "exec", spaces[h], o.bench, rank, secret.name, addresses, o.bytes, o.rounds, algorithm, congestion, o.buffers, o.streams]
                    for rank, (h, _) in enumerate(ranks)]
        return json.loads(run_ranks(commands, limit))


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--hosts", type=int, default=2)
    parse.add_argument("--per-host", type=int, default=1)
    parse.add_argument("--bytes", type=int, default=25_000_000)
    parse.add_argument("--rate", type=float, default=1000, help="Mbit/s of every host, each way")
    parse.add_argument("--rounds", type=int, default=10)
    parse.add_argument("--congestion", default="cubic,bbr")
    parse.add_argument("--algorithm", default="auto", help="rows, with commas; auto: the selector's choice")
    parse.add_argument("--streams", type=int, default=0, help="sockets of a link; 0: auto")
    parse.add_argument("--buffers", choices=["allocate", "any"], default="allocate")
    parse.add_argument("--limit", type=float, default=120, help="seconds one measurement may take")
    here = os.path.dirname(os.path.abspath(__file__))
    parse.add_argument("--bench", default=os.path.join(here, "..", "build", "bin", "hosts_bench"))
    o = parse.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with network(o.hosts, o.rate) as spaces:
        for congestion in o.congestion.split(","):
            for algorithm in o.algorithm.split(","):
                got = measure(o, spaces, congestion, algorithm, o.limit)
                moved = 2 * (o.hosts - 1) / o.hosts * got["bytes"]
                line = o.rate * 1e6 / 8
                shares = sorted(moved / s / line for s in got["seconds"])
                median = statistics.median(shares)
                row = {"hosts": o.hosts, "per_host": o.per_host, "transport": got["transport"], "algorithm": got["algorithm"],
                       "chosen_by": "selector" if algorithm == "auto" else "command line", "congestion": congestion,
                       "buffers": o.buffers, "streams": o.streams, "bytes": got["bytes"], "moved_bytes": round(moved), "median_ms": round(1e3 * statistics.median(got["seconds"]), 2),
                       "share_of_line": round(median, 3), "share_low": round(shares[0], 3), "share_high": round(shares[-1], 3),
                       "share_of_payload": round(median / PAYLOAD, 3), "core_share": got["core_share"]}
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
