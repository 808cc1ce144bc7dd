"""Namespaces for faults that would reach the whole machine otherwise: a small disk, a network whose connections are reset, everything that a job may leave
behind."""
import ctypes
import os
import subprocess
import sys

CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
ALL = ["--mount", "--net", "--ipc", "--pid", "--fork", "--mount-proc", "--kill-child"]


def unshare(flags):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(flags) != 0:
        raise OSError(ctypes.get_errno(), f"unshare: {os.strerror(ctypes.get_errno())}")


def private_mounts():
    """From now on what this process mounts is seen by it and what it starts, and ends with them."""
    if private_mounts.done:
        return
    user, group = os.getuid(), os.getgid()
    unshare(CLONE_NEWNS | (0 if user == 0 else CLONE_NEWUSER))
    if user != 0:
        for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    private_mounts.done = True


private_mounts.done = False


class SmallDisk:
    """A tmpfs of so many bytes, which can be filled."""

    def __init__(self, path, size):
        os.makedirs(path, exist_ok=True)
        self.path, self.ballast = path, os.path.join(path, ".ballast")
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", path], check=True)

    def fill(self):
        with open(self.ballast, "ab", buffering=0) as file:
            for piece in (1 << 16, 1 << 12):
                try:
                    while True:
                        file.write(bytes(piece))
                except OSError:
                    continue

    def free(self):
        if os.path.exists(self.ballast):
            os.remove(self.ballast)

    def close(self):
        subprocess.run(["umount", "-l", self.path], check=True)


def in_namespaces(mark):
    """Whether this process is the first of namespaces of its own. If not it becomes so: this program is started again there, with the same words, and
    its status is this one's. False where the machine refuses them. mark: a variable that tells the second from the first."""
    if os.environ.get(mark) == "yes":
        return True
    words = ["unshare", *([] if os.getuid() == 0 else ["--map-root-user"]), *ALL]
    if subprocess.run([*words, "true"], capture_output=True).returncode != 0:
        return False
    sys.stdout.flush()
    os.execvpe(words[0], [*words, sys.executable, *sys.argv], {**os.environ, mark: "yes"})


def quiet_machine():
    """In namespaces of one's own: a network that is a loopback interface, and empty /dev/shm and /tmp."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for path in ("/dev/shm", "/tmp"):
        subprocess.run(["mount", "-t", "tmpfs", "none", path], check=True)


def reset_connections(on):
    """Every TCP segment of this network is answered with a reset, from now on, or no longer."""
    rules = ("table inet resets {\n chain out {\n  type filter hook output priority 0;\n  tcp flags & rst == 0 reject with tcp reset\n }\n}\n") if on else ""
    subprocess.run(["nft", "-f", "-"], input="table inet resets {}\ndelete table inet resets\n" + rules, text=True, check=True)
