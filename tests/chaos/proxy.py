"""A TCP proxy that injects faults: proxy.py <plan.json> <out.json> command ...   (in a network of its own: unshare -rn)

All TCP traffic between the command's processes goes through here (redirected by nft; SO_ORIGINAL_DST gives the destination). The plan:
    {"fault": "flip" | "drop" | "twice" | "cut" | "none", "after": bytes, "seed": n}
One connection gets one fault, in one direction, after so many bytes of it; connections with fewer bytes (a rendezvous) are untouched. Ends with the
command's status; out.json has {"connections": n, "bytes": n, "faults": n}."""
import json
import random
import socket
import struct
import subprocess
import sys
import threading

MARK, SO_MARK, SO_ORIGINAL_DST = 7, 36, 80
RULES = ("table ip proxy { chain output { type nat hook output priority -100; policy accept; "
         "meta mark != 7 ip daddr 127.0.0.1 tcp dport != %d redirect to :%d; }; }")


class Proxy:
    def __init__(self, plan):
        self.plan, self.rng, self.lock = plan, random.Random(plan["seed"]), threading.Lock()
        self.done = {"connections": 0, "bytes": 0, "faults": 0}
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]

    def serve(self):
        while True:
            try:
                sock = self.listener.accept()[0]
            except OSError:
                return
            self.done["connections"] += 1
            destination = struct.unpack("!xxH4s", sock.getsockopt(socket.SOL_IP, SO_ORIGINAL_DST, 16)[:8])
            other = socket.socket()
            other.setsockopt(socket.SOL_SOCKET, SO_MARK, MARK)
            try:
                other.connect((socket.inet_ntoa(destination[1]), destination[0]))
            except OSError:
                sock.close()
                continue
            for a, b in ((sock, other), (other, sock)):
                a.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self.pump, args=(a, b), daemon=True).start()

    def pump(self, source, sink):
        passed = 0
        try:
            while data := source.recv(65536):
                passed += len(data)
                self.done["bytes"] += len(data)
                if passed > self.plan["after"]:
                    data = self.disturb(data)
                if data is None:
                    break
                sink.sendall(data)
        except OSError:
            pass
        for sock in (source, sink):
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def disturb(self, data):
        """What arrives instead; None: the connection ends here."""
        with self.lock:
            if self.done["faults"] or self.plan["fault"] == "none":
                return data
            self.done["faults"] = 1
            at, n = self.rng.randrange(len(data)), self.rng.randrange(1, 64)
        if self.plan["fault"] == "flip":
            return data[:at] + bytes([data[at] ^ (1 << self.rng.randrange(8))]) + data[at + 1:]
        if self.plan["fault"] == "drop":
            return data[:at] + data[at + n:] or data[:-1]
        if self.plan["fault"] == "twice":
            return data[:at] + data[max(0, at - n):at] + data[at:] if at else data + data
        return None


def main():
    with open(sys.argv[1]) as file:
        proxy = Proxy(json.load(file))
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    subprocess.run(["nft", "-f", "-"], input=RULES % (proxy.port, proxy.port), text=True, check=True)
    threading.Thread(target=proxy.serve, daemon=True).start()
    status = subprocess.run(sys.argv[3:]).returncode
    with open(sys.argv[2], "w") as file:
        json.dump(proxy.done, file)
    sys.exit(status)


if __name__ == "__main__":
    main()
