#!/usr/bin/env python3
"""A switch that delays every packet: for distant networks, where the kernel has no netem queue.

    delay_line.py switch 100 50 v0 v1 v2     passes frames between these interfaces, each after 100 +- 50 ms, in the order in which they came
    delay_line.py plain eth0                 turns off segmentation and checksum offload of this interface

`delayed(net, ms, spread)` replaces the bridge of a Net (tests/elastic/hosts_net.py) by one, until it ends.
"""
import array
import contextlib
import fcntl
import heapq
import os
import random
import select
import socket
import struct
import subprocess
import sys
import time

SIOCETHTOOL = 0x8946
TX_CHECKSUM, TCP_SEGMENTS, SEGMENTS = 0x17, 0x1F, 0x24  # ethtool's commands that turn these off
SOL_PACKET, IGNORE_OUTGOING, ALL_PROTOCOLS = 263, 23, 3
QUEUE = 4000  # frames under way; more are lost, as in any switch


def plain(device):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for command in (TCP_SEGMENTS, SEGMENTS, TX_CHECKSUM):
            value = array.array("B", struct.pack("II", command, 0))
            fcntl.ioctl(any_socket, SIOCETHTOOL, struct.pack("16sP", device.encode(), value.buffer_info()[0]))


class Switch:
    def __init__(self, delay, spread, devices):
        self.delay, self.spread, self.rng = delay, spread, random.Random(1)
        self.ports, self.ports_by_mac, self.last, self.queue, self.number = [], {}, {}, [], 0
        for device in devices:
            port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PROTOCOLS))
            port.bind((device, ALL_PROTOCOLS))
            port.setsockopt(SOL_PACKET, IGNORE_OUTGOING, 1)
            port.setblocking(False)
            self.ports.append(port)

    def take(self, port):
        frame = port.recv(65535)
        self.ports_by_mac[frame[6:12]] = port
        to = self.ports_by_mac.get(frame[:6])
        due = time.monotonic() + self.delay + self.rng.uniform(-self.spread, self.spread)
        for out in [to] if to else [p for p in self.ports if p is not port]:
            due = self.last[(port, out)] = max(due, self.last.get((port, out), 0))
            self.number += 1
            if len(self.queue) < QUEUE:
                heapq.heappush(self.queue, (due, self.number, out, frame))

    def run(self):
        print("ready", flush=True)
        while True:
            rest = max(0, self.queue[0][0] - time.monotonic()) if self.queue else None
            for port in select.select(self.ports, [], [], rest)[0]:
                self.take(port)
            while self.queue and self.queue[0][0] <= time.monotonic():
                _, _, out, frame = heapq.heappop(self.queue)
                with contextlib.suppress(BlockingIOError, OSError):  # a full or lost link loses packets
                    out.send(frame)


@contextlib.contextmanager
def delayed(net, ms, spread):
    hosts = range(len(net.holders) - 1)
    me, devices = [sys.executable, os.path.abspath(__file__)], [f"v{h}" for h in hosts]
    for host in hosts:
        net.on(host, *me, "plain", "eth0")
    line = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *net.words(-1, *me, "switch", str(ms), str(spread), *devices)], stdout=subprocess.PIPE, text=True)
    try:
        assert line.stdout.readline() == "ready\n", "the delay line did not start"
        net.on_bridge("ip", "-batch", "-", text="".join(f"link set {d} nomaster\n" for d in devices))
        yield
    finally:
        net.on_bridge("ip", "-batch", "-", text="".join(f"link set {d} master br0\n" for d in devices))
        line.kill()
        line.wait(10)


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "plain":
        plain(sys.argv[2])
    elif len(sys.argv) > 5 and sys.argv[1] == "switch":
        Switch(float(sys.argv[2]) / 1e3, float(sys.argv[3]) / 1e3, sys.argv[4:]).run()
    else:
        sys.exit(__doc__)
