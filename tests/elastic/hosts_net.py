"""Hosts as network namespaces: h0, where the launcher runs, and h1, h2 .. joined by a bridge that has a namespace of its own. Each is kept by one process,
the server of launch_shell (tests/launch/shell.cc), which ends with this program; the kernel removes namespace and links with it. Needs root, ip, nft."""
import glob
import os
import shutil
import signal
import subprocess
import tempfile

from jobs import Job, VectorJob, wait_until


class Net:
    def __init__(self, programs, hosts):
        self.shell, self.folder = os.path.join(programs, "launch_shell"), tempfile.mkdtemp(prefix="cohort-hosts-")
        self.holders = []
        try:
            self.bridge = self.hold("bridge")
            self.on_bridge("ip", "-batch", "-", text="link add br0 type bridge\nlink set br0 up\n")
            for h in range(hosts + 1):
                host = self.hold(f"h{h}")
                self.on_bridge("ip", "-batch", "-", text=f"link add v{h} type veth peer name eth0 netns {host.pid}\nlink set v{h} master br0 up\n")
                self.on(h, "ip", "-batch", "-", text=f"addr add 10.67.0.{h + 1}/24 dev eth0\nlink set eth0 up\nlink set lo up\n")
        except BaseException:
            self.close()
            raise

    def hold(self, name):
        path = os.path.join(self.folder, name)
        holder = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "unshare", "-n", self.shell, "serve", path])
        self.holders.append(holder)
        wait_until(f"{name} serves", lambda: os.path.exists(path) or holder.poll() is not None, 10)
        assert holder.poll() is None, "network namespaces need root"
        return holder

    def words(self, host, *words):
        return ["nsenter", "-t", str(self.holders[host + 1].pid), "-n", *words]

    def on(self, host, *words, text=""):
        subprocess.run(self.words(host, *words), input=text, text=True, check=True, timeout=10)

    def on_bridge(self, *words, text=""):
        self.on(-1, *words, text=text)

    def forward(self, *rules):
        """What the bridge does with packets, from now on; no rules: it passes them all. One transaction."""
        chain = "".join(f"  {rule}\n" for rule in rules)
        self.on_bridge("nft", "-f", "-", text="table bridge faults {}\ndelete table bridge faults\n" + (
            "table bridge faults {\n chain passing {\n  type filter hook forward priority 0;\n" + chain + " }\n}\n" if rules else ""))

    def partition(self, some, others, ways=("out", "in")):
        """No packet passes between these hosts; ways: as seen from the first ones."""
        names = [", ".join(f'"v{h}"' for h in side) for side in (some, others)]
        rules = {"out": f"iifname {{ {names[0]} }} oifname {{ {names[1]} }} drop", "in": f"iifname {{ {names[1]} }} oifname {{ {names[0]} }} drop"}
        self.forward(*(rules[way] for way in ways))

    def resets(self, host, on):
        """Answers every TCP segment to this host or from it with a reset."""
        rule = "meta l4proto tcp reject with tcp reset"
        chains = f" chain in {{\n  type filter hook input priority 0;\n  iifname eth0 {rule}\n }}\n chain out {{\n  type filter hook output priority 0;\n  oifname eth0 {rule}\n }}\n"
        self.on(host, "nft", "-f", "-", text="table inet resets {}\ndelete table inet resets\n" + (f"table inet resets {{\n{chains}}}\n" if on else ""))

    def link(self, host, state):
        self.on_bridge("ip", "link", "set", f"v{host}", state)

    def processes(self, host):
        """All of that host but the one that keeps its namespace."""
        holder = self.holders[host + 1].pid
        space, found = os.readlink(f"/proc/{holder}/ns/net"), []
        for path in glob.glob("/proc/[0-9]*/ns/net"):
            try:
                if os.readlink(path) == space and int(path.split("/")[2]) != holder:
                    found.append(int(path.split("/")[2]))
            except OSError:
                continue
        return found

    def kill_host(self, host):
        for pid in self.processes(host):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def close(self):
        for h in range(len(self.holders) - 1):
            self.kill_host(h)
        for holder in self.holders:
            holder.kill()
            holder.wait(10)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class OnHosts:
    """A job whose launcher is on h0 and whose workers are where `where` says (words of cohort run)."""

    def __init__(self, net, programs, folder, name, where, least, most=4, flags=(), **sets):
        self.net, self.where = net, where
        super().__init__(programs, folder, name, 0, least, most, flags, **sets)

    def words(self, n, limits):
        words = super().words(n, limits)
        at = words.index("-n")
        words[at:at + 2] = self.where
        return self.net.words(0, "env", f"COHORT_SSH={self.net.shell}", f"LAUNCH_HOSTS={self.net.folder}", *words)

    def workers(self):
        return sorted(pid for h in range(1, len(self.net.holders) - 1) for pid in self.workers_on(h))

    def workers_on(self, host):
        found = []
        for pid in self.net.processes(host):
            try:
                with open(f"/proc/{pid}/comm") as name:
                    if name.read().startswith(("cohort-worker", "elastic_rank")):
                        found.append(pid)
            except OSError:
                continue
        return found

    def __exit__(self, *_):
        super().__exit__()
        for h in range(1, len(self.net.holders) - 1):
            self.net.kill_host(h)


class HostsJob(OnHosts, VectorJob):
    """`cohort run --min-n` of workers that train a vector (elastic_rank.cc)."""


class HostsTraining(OnHosts, Job):
    """`cohort train --min-n`."""
