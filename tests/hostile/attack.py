"""Strangers at a job's ports: kinds of connection, and a storm that opens so many of them a second and counts what came of each.

Only addresses of 127.0.0.0/8 are ever connected to, and those of a test's own network namespaces, from within these. Connections end with a reset
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
HELD = 7.0       # seconds that an idle one stays, longer than a door's patience
BRIEF = 0.05     # seconds until an answer is looked at
LOOKS = 40       # how often an opening is waited for before the visit is given up


class Target:
    """A port, and what a stranger may know about it: nothing for most kinds, an overheard conversation for replays, the secret for those who belong
    to another job or epoch. space: the network namespace in which its host is to be found, as a path. mute: it answers nobody, and who waits for
    an opening imagines one."""

    def __init__(self, port, speaks, job="", overheard=b"", host="127.0.0.1", space=None, secret=None, mute=False):
        self.port, self.speaks, self.job, self.overheard = port, speaks, job, overheard
        self.host, self.space, self.secret, self.mute, self.visits = host, space, secret, mute, 0


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
    """A socket belongs to the namespace in which it was made, for ever; this process does not stay there."""
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


def call(sock, target):
    """False when nobody is there."""
    return sock.connect_ex((target.host, target.port)) in (0, errno.EINPROGRESS)


def random_bytes(rng, _):
    return rng.randbytes(rng.choice((1, 3, 4, 39, 40, 41, 200, 4096)))


def half(rng, _):
    return handshake.opening()[: rng.choice((1, 3, 4, 7, 8, 39))]


def known_opening(rng, target):
    """Of a stranger, or, every other time, one that a holder of the secret has made and that was overheard before it came here."""
    return vouching(rng, target) if target.secret and rng.randrange(2) else handshake.opening()


def proofless(rng, target):
    return known_opening(rng, target) + rng.randbytes(rng.choice((1, 50, 111)))


def replay_blind(_, target):
    told = target.overheard
    return told[:40] + told[80:192] + told[560:]


def vouching(_, target):
    return handshake.opening(nonce=handshake.vouching_nonce(target.secret))


def lengths(rng, target):
    """Introductions that claim absurd lengths, ranks and epochs, and frames of 2^63 and -1 bytes before any introduction."""
    head = b"CHRT" + struct.pack("<BBHQIIQI", 1, 1, 0x0101, rng.choice((2**63, 2**64 - 1, 2**40)), 0, 0, 0, 0)
    said = handshake.hello("x" * 64, rank=rng.choice((-(2**31), 2**31 - 1)), epoch=2**32 - 1, name_bytes=255)
    return rng.choice((head + struct.pack("<I", handshake.crc32c(head)), known_opening(rng, target) + said + rng.randbytes(32)))


def http_request(line, *fields, host="127.0.0.1"):
    return "\r\n".join((line, f"Host: {host}") + fields + ("", "")).encode()


# kind -> what it says first. None: nothing.
SAID_TO_DOORS = {
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
    "other_job": vouching,
    "other_epoch": vouching,
    "slowloris": lambda *_: b"",
}
TWO_STEPS = {"wrong_key", "replay", "frame", "other_job", "other_epoch"}  # these go on when they have the door's opening
HOLDERS = {"other_job", "other_epoch"}                                    # .. with the job's own secret: they are told why not
SAID_TO_HTTP = {
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


def said_to(target):
    return SAID_TO_HTTP if target.speaks == "http" else SAID_TO_DOORS


STAYS = {"idle", "slowloris"}  # these sit on their place for HELD seconds
STAYING_SHARE = 40             # one visit in so many is of that sort


class Visit:
    __slots__ = ("sock", "kind", "target", "begun", "heard", "said", "looks", "first", "second")

    def __init__(self, sock, kind, target, begun):
        self.sock, self.kind, self.target, self.begun = sock, kind, target, begun
        self.heard, self.said, self.looks, self.first, self.second = b"", b"", 0, b"", False


class Storm:
    """Opens visits to targets at a rate; poll() as often as possible. Everything it does follows from the seed but for timing."""

    def __init__(self, targets, rate, seed, holders=True):
        self.targets, self.rate, self.rng, self.holders = targets, rate, random.Random(seed), holders
        self.due = []  # (when, number, visit)
        self.open = self.begun = 0
        self.counts = collections.Counter()  # (port's speech, kind, outcome)
        self.accepted = []                   # what must stay empty
        self.late = []                       # strangers that a door kept longer than its patience
        self.refused = 0                     # of those who hold the secret: told so by a verdict
        self.started = time.monotonic()

    def poll(self, most):
        """Begins what the clock allows, up to `most` in all, and looks at what is due. False when all is begun and over."""
        now = time.monotonic()
        allowed = min(most, int((now - self.started) * self.rate) + 1)
        burst = 0
        while self.targets and self.begun < allowed and self.open < MOST_OPEN and burst < 200:
            self.begin(now)
            burst += 1
        while self.due and self.due[0][0] <= now:
            self.look(heapq.heappop(self.due)[2], now)
        return self.begun < most or bool(self.due)

    def resume(self):
        """After a calm period: its time does not count for the rate."""
        self.started = time.monotonic() - self.begun / self.rate

    def finish(self):
        """The end, also for those who meant to stay."""
        while self.due:
            visit = heapq.heappop(self.due)[2]
            self.judge(visit, self.hear(visit))

    def begin(self, now):
        target = self.rng.choice(self.targets)
        stays = self.rng.randrange(STAYING_SHARE) == 0
        self.visit(target, self.rng.choice([k for k in self.kinds(target) if (k in STAYS) == stays]), now)

    def all_kinds(self, target):
        for kind in self.kinds(target):
            self.visit(target, kind, time.monotonic())

    def kinds(self, target):
        return [k for k in said_to(target) if (target.secret and self.holders) or k not in HOLDERS]

    def visit(self, target, kind, now):
        sock = open_socket(target, self.rng)
        self.begun += 1
        self.open += 1
        visit = Visit(sock, kind, target, now)
        if not call(sock, target):
            return self.end(visit, "no_answer")
        visit.said = visit.first = said_to(target)[kind](self.rng, target)
        self.say(visit)
        self.later(visit, now + (0.005 if kind in TWO_STEPS else 1.0 if kind in STAYS else BRIEF))

    def later(self, visit, when):
        heapq.heappush(self.due, (when, id(visit), visit))

    def say(self, visit):
        try:
            if visit.said:
                visit.said = visit.said[visit.sock.send(visit.said):]
                visit.target.visits += 1
        except BlockingIOError:
            pass
        except OSError:
            visit.said = b""

    def hear(self, visit):
        """False when the other side has ended the connection."""
        try:
            while True:
                part = visit.sock.recv(65536)
                if not part:
                    return False
                visit.heard += part
        except BlockingIOError:
            return True
        except OSError as problem:
            return problem.errno in (errno.ENOTCONN, errno.EINPROGRESS)

    def look(self, visit, now):
        alive = self.hear(visit)
        if visit.kind in TWO_STEPS and not visit.second:
            if visit.target.mute and visit.target.speaks == "door":
                visit.heard = handshake.opening()
            if len(visit.heard) >= handshake.OPENING:
                visit.second = True
                visit.said = self.second_step(visit)
                self.say(visit)
                return self.later(visit, now + BRIEF)
            visit.looks += 1
            if alive and visit.looks < LOOKS:
                return self.later(visit, now + BRIEF)
        if alive and visit.kind in STAYS and now < visit.begun + HELD:
            if visit.kind == "slowloris":
                visit.said = (handshake.opening() if visit.target.speaks == "door" else b"GET / HTTP/1.1\r\n")[visit.looks:][:1]
                visit.looks += 1
                self.say(visit)
            return self.later(visit, now + 1.0)
        self.judge(visit, alive)

    def second_step(self, visit):
        told = visit.target.overheard
        if visit.kind == "replay":
            return told[80:192] + told[560:]
        if visit.kind == "frame":
            return handshake.frame(self.rng.randbytes(32), visit.first + visit.heard[:40], 0x0201, self.rng.choice((2**63, -1, 2**20 + 1)))
        known = visit.kind in HOLDERS
        who = {"rank": self.rng.choice((0, 1, -1)), "epoch": self.rng.choice((0, 1, 2, 2**32 - 1))}
        if known:
            who = {"rank": 1, "epoch": 10**6 if visit.kind == "other_epoch" else 0}
        said = handshake.hello("another" if visit.kind == "other_job" else visit.target.job, **who)
        return handshake.claim(visit.target.secret if known else self.rng.randbytes(32), visit.first, visit.heard[:40], said)

    def judge(self, visit, alive):
        heard, refused = visit.heard, False
        if visit.target.speaks == "http":
            accepted = heard.startswith((b"HTTP/1.1 2", b"HTTP/1.0 2")) and visit.kind != "http"  # which took it for a door, and asked as one may
        elif heard.startswith(b"HTTP/1.1 "):  # what was found to listen there is no door: from now on it is met as what it is
            visit.target.speaks, accepted = "http", False
        elif visit.target.speaks == "tls":  # an alert is all that it has for who does not hold the secret
            accepted = bool(heard) and heard[0] != TLS_ALERT
        else:  # a door answers an opening with its own, and nothing else before it has seen a proof
            refused = visit.kind in HOLDERS and handshake.refuses(heard)
            accepted = len(heard) > handshake.OPENING and not refused
        self.refused += refused
        if accepted:
            self.accepted.append((visit.target.speaks, visit.kind, heard[:60]))
        if alive and visit.kind in STAYS and visit.target.speaks == "door":
            self.late.append((visit.kind, round(time.monotonic() - visit.begun, 1)))
        self.end(visit, "accepted" if accepted else "refused" if refused else "answered" if heard else "silent" if alive else "closed")

    def end(self, visit, outcome):
        self.counts[visit.target.speaks, visit.kind, outcome] += 1
        visit.sock.close()
        self.open -= 1


class Decoy:
    """Somebody else's port on this machine: takes whoever comes and closes. What the same strangers cost here is not the job's doing."""

    def __init__(self):
        self.sock = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.sock.setblocking(False)
        self.taken = []

    def targets(self, like):
        return [Target(self.sock.getsockname()[1], target.speaks, target.job, target.overheard, secret=target.secret, mute=True) for target in like]

    def sweep(self):
        """Closes those of the last time, so that nobody is kept waiting and nobody is cut off in the middle of a word."""
        for sock in self.taken:
            sock.close()
        self.taken = []
        try:
            while True:
                self.taken.append(self.sock.accept()[0])
        except BlockingIOError:
            pass
