"""Idle connections: so many to every port at all times, each silent from the beginning, or after an opening that was overheard, or a part
of it.

More than a listener serves at once, and those it closes come again: processes of the job have to authenticate among them."""
import collections
import select
import socket
import time

import attack
import handshake

UNANSWERED_S = 0.2  # a connect that waits so long on one machine shows that the accept queue is full


class IdleConnections:
    def __init__(self, rng, number):
        self.rng, self.number, self.poller = rng, number, select.epoll()
        self.held, self.begun, self.accepted = {}, 0, []  # descriptor to (socket, target, whether it is connected, when it was begun)
        self.connected = collections.Counter()  # by target: connections that were established at some time

    def change(self, number):
        """Of 0: all are closed."""
        self.number = number
        self.connected.clear()
        if not number:
            self.close_all()

    def poll(self, targets, most=300):
        """Opens what is missing at each port, a few at a time; whether all ports are full."""
        for fd, _ in self.poller.poll(0, 4096):
            self.receive(fd)
        targets = [target for target in targets if target.protocol != "http"]
        count, established = dict.fromkeys(targets, 0), collections.Counter()
        for sock, target, connected, begun in list(self.held.values()):
            if target in count:
                count[target] += 1
                established[target] += connected or time.monotonic() > begun + UNANSWERED_S
            else:
                self.drop(sock)
        for target in targets:
            for _ in range(min(most, self.number - count[target])):
                count[target] += self.begin(target)
        return bool(targets) and all(self.full(target, established[target]) for target in targets)

    def full(self, target, established):
        """Those that a listener closes are back in the next round; one that requires TLS keeps none that begins without. A busy machine may open them no
        faster than a listener closes those that say nothing: then so many twice over are as full as it gets."""
        return established >= 0.8 * self.number or self.connected[target] >= (1 if target.protocol == "tls" else 2) * self.number

    def begin(self, target):
        sock = attack.open_socket(target, self.rng)
        if not attack.connect(sock, target):
            sock.close()
            return False
        self.begun += 1
        self.held[sock.fileno()] = [sock, target, False, time.monotonic()]
        self.poller.register(sock, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
        return True

    def receive(self, fd):
        """Sends its part once connected. A listener answers with its opening at most, the metrics port with nothing or an error."""
        if fd not in self.held:
            return
        sock, target, connected, _ = self.held[fd]
        try:
            if not connected:
                sock.send((target.overheard[:40] or handshake.opening())[:self.rng.choice((0, 0, 1, 8, 20, 39, 39, 40))])
                self.held[fd][2] = True
                target.attempts += 1
                self.connected[target] += 1
            data = sock.recv(4096, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if len(data) > handshake.OPENING and not data.startswith(b"HTTP"):
            self.accepted.append((target.port, data[:60]))
        if not data or data.startswith(b"HTTP"):
            self.drop(sock)

    def drop(self, sock):
        self.held.pop(sock.fileno(), None)
        sock.close()

    def close_all(self):
        for sock, *_ in list(self.held.values()):
            self.drop(sock)

    def end(self):
        self.close_all()
        self.poller.close()
