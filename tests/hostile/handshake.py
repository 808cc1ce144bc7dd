"""The dialer's side of docs/wire.md, written from that page alone: what an attacker knows. With the secret it authenticates, without it does not."""
import hashlib
import hmac
import os
import struct

VERSION = 1
OPENING, CLAIM, REPLY, VERDICT = 40, 112, 368, 288
WORKER = 1
ATTEMPTS = 4  # of a process of the job


def hkdf(salt, secret, info):
    key = hmac.new(salt, secret, hashlib.sha256).digest()
    return hmac.new(key, info + b"\x01", hashlib.sha256).digest()


def key(secret, label, transcript):
    return hkdf(transcript, secret, b"cohort 1 " + label)


def opening(version=VERSION, nonce=None):
    return b"COHO" + struct.pack("<HH", version, 0) + (nonce or os.urandom(32))


def nonce_with_proof(secret):
    """By which a listener serves first those that seem to hold the secret."""
    fresh = os.urandom(16)
    return fresh + hmac.new(secret, b"cohort 1 opening" + fresh, hashlib.sha256).digest()[:16]


def hello(job, rank=0, epoch=0, role=WORKER, name_bytes=None):
    job = job.encode()
    return struct.pack("<BBHiIi", role, len(job) if name_bytes is None else name_bytes, 0, rank, epoch, 0) + job.ljust(64, b"\0")


def claim(secret, ours, theirs, identity):
    """hello and proof, after both openings."""
    talk = ours + theirs
    return identity + hmac.new(key(secret, b"dialer proof", talk), talk + identity, hashlib.sha256).digest()


def verdict(secret, talk):
    """The last message of a dialer that accepts; talk: all bytes before it."""
    accepted = bytes(256)
    proof = hmac.new(key(secret, b"dialer proof", talk[:80]), talk + accepted, hashlib.sha256).digest()
    return accepted + proof


def imagined(secret, job, **who):
    """A handshake as an eavesdropper has it: its proofs are valid, for nonces that are used."""
    ours, theirs = opening(nonce=nonce_with_proof(secret)), opening()
    talk = ours + theirs
    talk += claim(secret, ours, theirs, hello(job, **who))
    talk += os.urandom(REPLY)
    return talk + verdict(secret, talk)


def refuses(received):
    """Whether the listener's opening is followed by a reply whose verdict is a refusal."""
    return len(received) >= OPENING + REPLY and received[OPENING + 80:OPENING + 82] == b"\1\0"


def frame(secret, talk, kind, length, body=b"", number=0):
    """A control frame of the dialer after the handshake; length: what its header claims."""
    head = b"CHRT" + struct.pack("<BBHQIIQI", 1, 1, kind, length & (2**64 - 1), 0, 0, number, 0)
    head += struct.pack("<I", crc32c(head))
    return head + body + hmac.new(key(secret, b"dialer frames", talk), head + body, hashlib.sha256).digest()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def read_exactly(sock, count):
    data = b""
    while len(data) < count:
        part = sock.recv(count - len(data))
        if not part:
            raise ConnectionError(f"closed after {len(data)} of {count} bytes")
        data += part
    return data


class Refused(ConnectionError):
    """By a verdict: another attempt gets the same."""


def authenticate(sock, secret, job, **who):
    """A whole honest handshake; every byte of it, in order. ConnectionError: it was refused."""
    ours = opening(nonce=nonce_with_proof(secret))
    sock.sendall(ours)
    theirs = read_exactly(sock, OPENING)
    mine = claim(secret, ours, theirs, hello(job, **who))
    sock.sendall(mine)
    talk = ours + theirs + mine + read_exactly(sock, REPLY)
    if talk[-REPLY + 80:-REPLY + 82] != b"\0\0":
        raise Refused("refused: " + talk[-REPLY + 84:-32].rstrip(b"\0").decode())
    last = verdict(secret, talk)
    sock.sendall(last)
    return talk + last


def cut_off(sock, data):
    """Whether the other side closes the connection on this without a reply."""
    with sock:
        try:
            sock.sendall(data)
            return sock.recv(1) == b""
        except ConnectionResetError:
            return True


def join(connect, secret, job, **who):
    """A connection by connect() and all bytes of its handshake. One that is closed in the middle is tried again, as the product does: the listener may
    have too many connections."""
    for attempt in range(ATTEMPTS):
        sock = connect()
        try:
            return sock, authenticate(sock, secret, job, **who)
        except ConnectionError as problem:
            sock.close()
            if isinstance(problem, Refused) or attempt == ATTEMPTS - 1:
                raise
