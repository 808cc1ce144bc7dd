"""Unauthenticated peers at a job's ports: kinds of connection, and a storm that opens so many of them a second and counts their outcomes.

Connects only to addresses of 127.0.0.0/8, and to those of a test's own network namespaces, from within these. Connections end with a reset
(SO_LINGER 0), so that a million of them leave no TIME_WAIT.
"""
import collections
import ctypes
import errno
import heapq
import os
import random
import socket
import struct
import time

import handshake

LINGER = struct.pack("ii", 1, 0)
TLS_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(range(32)) + b"\x00\x00\x02\x13\x01\x01\x00" + bytes(150)
TLS_ALERT = 0x15
MOST_OPEN = 800  # sockets of ours at a time, below the usual limit of 1024 descriptors
HELD = 7.0       # seconds that an idle one stays, longer than an acceptor's limit
BRIEF = 0.05     # seconds until a reply is checked
CHECKS = 40      # how often an opening is waited for before the attempt is given up


class Target:
    """A port, and what an attacker may know about it: nothing for most kinds, an overheard handshake for replays, the secret for peers of another
    job or epoch. protocol: "cohort", "tls" or "http". space: the path of its network namespace. mute: it never replies, and an attack that waits for
    an opening makes one up."""

    def __init__(self, port, protocol, job="", overheard=b"", host="127.0.0.1", space=None, secret=None, mute=False):
        self.port, self.protocol, self.job, self.overheard = port, protocol, job, overheard
        self.host, self.space, self.secret, self.mute, self.attempts = host, space, secret, mute, 0


LIBC = ctypes.CDLL(None, use_errno=True)
HOME = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
HOME_SPACE = os.readlink("/proc/self/ns/net")
POOLED = 32  # sockets made at a time in another namespace
pools = collections.defaultdict(list)


def enter(space):
    if LIBC.setns(space, 0) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def new_socket():
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)


def socket_in(path):
    """A socket keeps the namespace in which it was made; this process returns to its own."""
    try:
        space = os.readlink(path) if path else HOME_SPACE
        if space == HOME_SPACE:
            return new_socket()
        if not pools[space]:
            there = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                enter(there)
                pools[space] = [new_socket() for _ in range(POOLED)]
            finally:
                enter(HOME)
                os.close(there)
        return pools[space].pop()
    except FileNotFoundError:  # the process whose namespace it was has ended
        return new_socket()


def open_socket(target, rng):
    sock = socket_in(target.space)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER)
    if target.host.startswith("127."):
        sock.bind((f"127.{rng.randrange(1, 255)}.{rng.randrange(256)}.{rng.randrange(1, 255)}", 0))
    return sock


def connect(sock, target):
    """False when nothing listens there."""
    return sock.connect_ex((target.host, target.port)) in (0, errno.EINPROGRESS)


def random_bytes(rng, _):
    return rng.randbytes(rng.choice((1, 3, 4, 39, 40, 41, 200, 4096)))


def half(rng, _):
    return handshake.opening()[: rng.choice((1, 3, 4, 7, 8, 39))]


def known_opening(rng, target):
    """With a random nonce, or, every other time, with a valid proof, as if overheard from a holder of the secret."""
    return with_proof(rng, target) if target.secret and rng.randrange(2) else handshake.opening()


def proofless(rng, target):
    return known_opening(rng, target) + rng.randbytes(rng.choice((1, 50, 111)))


def replay_blind(_, target):
    talk = target.overheard
    return talk[:40] + talk[80:192] + talk[560:]


def with_proof(_, target):
    return handshake.opening(nonce=handshake.nonce_with_proof(target.secret))


def lengths(rng, target):
    """Claims with absurd lengths, ranks and epochs, and frames of 2^63 and -1 bytes before any claim."""
    head = b"CHRT" + struct.pack("<BBHQIIQI", 1, 1, 0x0101, rng.choice((2**63, 2**64 - 1, 2**40)), 0, 0, 0, 0)
    hello = handshake.hello("x" * 64, rank=rng.choice((-(2**31), 2**31 - 1)), epoch=2**32 - 1, name_bytes=255)
    return rng.choice((head + struct.pack("<I", handshake.crc32c(head)), known_opening(rng, target) + hello + rng.randbytes(32)))


def http_request(line, *fields, host="127.0.0.1"):
    return "\r\n".join((line, f"Host: {host}") + fields + ("", "")).encode()


# kind -> what it sends first.
SENT_TO_COHORT = {
    "random": random_bytes,
    "http": lambda *_: http_request("GET /metrics HTTP/1.1"),
    "tls": lambda *_: TLS_HELLO,
    "idle": lambda *_: b"",
    "half": half,
    "proofless": proofless,
    "lengths": lengths,
    "flood": lambda rng, target: known_opening(rng, target) + bytes(60000),
    "version": lambda rng, _: handshake.opening(version=rng.choice((0, 2, 0x7FFF, 0xFFFF))),
    "wrong_key": known_opening,
    "replay": lambda _, target: target.overheard[:40],
    "replay_blind": replay_blind,
    "frame": known_opening,
    "other_job": with_proof,
    "other_epoch": with_proof,
    "slowloris": lambda *_: b"",
}
TWO_STEPS = {"wrong_key", "replay", "frame", "other_job", "other_epoch"}  # these go on when they have the listener's opening
HOLDERS = {"other_job", "other_epoch"}                                    # .. with the job's own secret: they are sent the reason of the refusal
SENT_TO_HTTP = {
    "random": random_bytes,
    "tls": lambda *_: TLS_HELLO,
    "idle": lambda *_: b"",
    "cohort": lambda *_: handshake.opening(),
    "half": lambda rng, _: http_request("GET /metrics HTTP/1.1")[: rng.randrange(1, 40)],
    "rebinding": lambda *_: http_request("GET /metrics HTTP/1.1", host="evil.example"),
    "post": lambda *_: http_request("POST /metrics HTTP/1.1", "Content-Length: 9223372036854775808"),
    "delete": lambda *_: http_request("DELETE / HTTP/1.1"),
    "lengths": lambda *_: http_request("GET /metrics HTTP/1.1", "Content-Length: -1"),
    "huge_head": lambda *_: http_request("GET /metrics HTTP/1.1", "X: " + "a" * 20000),
    "many_fields": lambda *_: http_request("GET /metrics HTTP/1.1", *["X: y"] * 4000),
    "path": lambda *_: http_request("GET /../../../../etc/passwd HTTP/1.1"),
    "slowloris": lambda *_: b"",
}


def first_bytes(target):
    return SENT_TO_HTTP if target.protocol == "http" else SENT_TO_COHORT


STAYS = {"idle", "slowloris"}  # these stay open for HELD seconds
STAYING_SHARE = 40             # one attempt in so many is of these kinds


class Attempt:
    __slots__ = ("sock", "kind", "target", "begun", "received", "unsent", "checks", "first", "second")

    def __init__(self, sock, kind, target, begun):
        self.sock, self.kind, self.target, self.begun = sock, kind, target, begun
        self.received, self.unsent, self.checks, self.first, self.second = b"", b"", 0, b"", False


class Storm:
    """Opens connections to targets at a rate; poll() as often as possible. All it does but for timing follows from the seed."""

    def __init__(self, targets, rate, seed, holders=True):
        self.targets, self.rate, self.rng, self.holders = targets, rate, random.Random(seed), holders
        self.due = []  # (when, number, attempt)
        self.open = self.begun = 0
        self.counts = collections.Counter()  # (protocol, kind, outcome)
        self.accepted = []                   # what must stay empty
        self.late = []                       # idle connections that a listener kept longer than its limit
        self.refused = 0                     # holders of the secret that got a verdict with the reason
        self.started = time.monotonic()

    def poll(self, most):
        """Begins what the rate allows, up to `most` in all, and checks what is due. False when all is begun and over."""
        now = time.monotonic()
        allowed = min(most, int((now - self.started) * self.rate) + 1)
        burst = 0
        while self.targets and self.begun < allowed and self.open < MOST_OPEN and burst < 200:
            self.begin(now)
            burst += 1
        while self.due and self.due[0][0] <= now:
            self.check(heapq.heappop(self.due)[2], now)
        return self.begun < most or bool(self.due)

    def resume(self):
        """After a quiet period: its time does not count for the rate."""
        self.started = time.monotonic() - self.begun / self.rate

    def finish(self):
        """Ends all, also those that would stay longer."""
        while self.due:
            attempt = heapq.heappop(self.due)[2]
            self.judge(attempt, self.receive(attempt))

    def begin(self, now):
        target = self.rng.choice(self.targets)
        stays = self.rng.randrange(STAYING_SHARE) == 0
        self.attempt(target, self.rng.choice([k for k in self.kinds(target) if (k in STAYS) == stays]), now)

    def all_kinds(self, target):
        for kind in self.kinds(target):
            self.attempt(target, kind, time.monotonic())

    def kinds(self, target):
        return [k for k in first_bytes(target) if (target.secret and self.holders) or k not in HOLDERS]

    def attempt(self, target, kind, now):
        sock = open_socket(target, self.rng)
        self.begun += 1
        self.open += 1
        attempt = Attempt(sock, kind, target, now)
        if not connect(sock, target):
            return self.end(attempt, "no_answer")
        attempt.unsent = attempt.first = first_bytes(target)[kind](self.rng, target)
        self.send(attempt)
        self.later(attempt, now + (0.005 if kind in TWO_STEPS else 1.0 if kind in STAYS else BRIEF))

    def later(self, attempt, when):
        heapq.heappush(self.due, (when, id(attempt), attempt))

    def send(self, attempt):
        try:
            if attempt.unsent:
                attempt.unsent = attempt.unsent[attempt.sock.send(attempt.unsent):]
                attempt.target.attempts += 1
        except BlockingIOError:
            pass
        except OSError:
            attempt.unsent = b""

    def receive(self, attempt):
        """False when the other side has ended the connection."""
        try:
            while True:
                part = attempt.sock.recv(65536)
                if not part:
                    return False
                attempt.received += part
        except BlockingIOError:
            return True
        except OSError as problem:
            return problem.errno in (errno.ENOTCONN, errno.EINPROGRESS)

    def check(self, attempt, now):
        alive = self.receive(attempt)
        if attempt.kind in TWO_STEPS and not attempt.second:
            if attempt.target.mute and attempt.target.protocol == "cohort":
                attempt.received = handshake.opening()
            if len(attempt.received) >= handshake.OPENING:
                attempt.second = True
                attempt.unsent = self.second_step(attempt)
                self.send(attempt)
                return self.later(attempt, now + BRIEF)
            attempt.checks += 1
            if alive and attempt.checks < CHECKS:
                return self.later(attempt, now + BRIEF)
        if alive and attempt.kind in STAYS and now < attempt.begun + HELD:
            if attempt.kind == "slowloris":
                attempt.unsent = (handshake.opening() if attempt.target.protocol == "cohort" else b"GET / HTTP/1.1\r\n")[attempt.checks:][:1]
                attempt.checks += 1
                self.send(attempt)
            return self.later(attempt, now + 1.0)
        self.judge(attempt, alive)

    def second_step(self, attempt):
        talk = attempt.target.overheard
        if attempt.kind == "replay":
            return talk[80:192] + talk[560:]
        if attempt.kind == "frame":
            return handshake.frame(self.rng.randbytes(32), attempt.first + attempt.received[:40], 0x0201, self.rng.choice((2**63, -1, 2**20 + 1)))
        known = attempt.kind in HOLDERS
        who = {"rank": self.rng.choice((0, 1, -1)), "epoch": self.rng.choice((0, 1, 2, 2**32 - 1))}
        if known:
            who = {"rank": 1, "epoch": 10**6 if attempt.kind == "other_epoch" else 0}
        hello = handshake.hello("another" if attempt.kind == "other_job" else attempt.target.job, **who)
        return handshake.claim(attempt.target.secret if known else self.rng.randbytes(32), attempt.first, attempt.received[:40], hello)

    def judge(self, attempt, alive):
        received, refused = attempt.received, False
        if attempt.target.protocol == "http":
            accepted = received.startswith((b"HTTP/1.1 2", b"HTTP/1.0 2")) and attempt.kind != "http"  # a valid request
        elif received.startswith(b"HTTP/1.1 "):  # the port turned out to serve HTTP: from now on it is attacked as such
            attempt.target.protocol, accepted = "http", False
        elif attempt.target.protocol == "tls":  # without the secret there is nothing but an alert
            accepted = bool(received) and received[0] != TLS_ALERT
        else:  # a listener answers an opening with its own, and sends nothing else before it has verified a claim
            refused = attempt.kind in HOLDERS and handshake.refuses(received)
            accepted = len(received) > handshake.OPENING and not refused
        self.refused += refused
        if accepted:
            self.accepted.append((attempt.target.protocol, attempt.kind, received[:60]))
        if alive and attempt.kind in STAYS and attempt.target.protocol == "cohort":
            self.late.append((attempt.kind, round(time.monotonic() - attempt.begun, 1)))
        self.end(attempt, "accepted" if accepted else "refused" if refused else "answered" if received else "silent" if alive else "closed")

    def end(self, attempt, outcome):
        self.counts[attempt.target.protocol, attempt.kind, outcome] += 1
        attempt.sock.close()
        self.open -= 1


class Decoy:
    """A port of another process on this machine: accepts and closes. What the same connections cost here is not due to the job."""

    def __init__(self):
        self.sock = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.sock.setblocking(False)
        self.accepted = []

    def targets(self, like):
        return [Target(self.sock.getsockname()[1], target.protocol, target.job, target.overheard, secret=target.secret, mute=True) for target in like]

    def sweep(self):
        """Closes the connections of the last call, so that none waits long and none is closed in the middle of a send."""
        for sock in self.accepted:
            sock.close()
        self.accepted = []
        try:
            while True:
                self.accepted.append(self.sock.accept()[0])
        except BlockingIOError:
            pass
