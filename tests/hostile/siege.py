"""Strangers who come to stay: so many connections to every port at all times, each silent from the beginning, or after an
opening that was overheard, or a part of it.

More than a door hears at once, and who is turned out comes again: whoever belongs to the job has to get in past them."""
import collections
import select
import socket
import time

import attack
import handshake

UNANSWERED_S = 0.2  # a call that waits so long on one machine shows that the port's queue is full


class Siege:
    def __init__(self, rng, crowd):
        self.rng, self.crowd, self.poller = rng, crowd, select.epoll()
        self.held, self.begun, self.accepted = {}, 0, []  # descriptor to (socket, target, whether the connection stands, when it was begun)
        self.came = collections.Counter()  # by target: connections that stood at some time

    def change(self, crowd):
        """Of nobody: those who are there go."""
        self.crowd = crowd
        self.came.clear()
        if not crowd:
            self.leave()

    def poll(self, targets, most=300):
        """Fills up what is missing at each port, a few at a time; what was closed makes room for the next."""
        for fd, _ in self.poller.poll(0, 4096):
            self.hear(fd)
        targets = [target for target in targets if target.speaks != "http"]
        count, standing = dict.fromkeys(targets, 0), collections.Counter()
        for sock, target, stands, called in list(self.held.values()):
            if target in count:
                count[target] += 1
                standing[target] += stands or time.monotonic() > called + UNANSWERED_S
            else:
                self.drop(sock)
        for target in targets:
            for _ in range(min(most, self.crowd - count[target])):
                count[target] += self.begin(target)
        return bool(targets) and all(self.full(target, standing[target]) for target in targets)

    def full(self, target, standing):
        """A door that turns some out has them again in the next round; one that speaks TLS keeps nobody who begins without."""
        return standing >= 0.8 * self.crowd or (target.speaks == "tls" and self.came[target] >= self.crowd)

    def begin(self, target):
        sock = attack.open_socket(target, self.rng)
        if not attack.call(sock, target):
            sock.close()
            return False
        self.begun += 1
        self.held[sock.fileno()] = [sock, target, False, time.monotonic()]
        self.poller.register(sock, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
        return True

    def hear(self, fd):
        """Says its part when the connection stands. A door answers with its opening at most, the metrics port with nothing or an error."""
        if fd not in self.held:
            return
        sock, target, stands, _ = self.held[fd]
        try:
            if not stands:
                sock.send((target.overheard[:40] or handshake.opening())[:self.rng.choice((0, 0, 1, 8, 20, 39, 39, 40))])
                self.held[fd][2] = True
                target.visits += 1
                self.came[target] += 1
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

    def leave(self):
        for sock, *_ in list(self.held.values()):
            self.drop(sock)

    def end(self):
        self.leave()
        self.poller.close()
