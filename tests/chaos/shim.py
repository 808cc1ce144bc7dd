"""The shared page that controls shim.c while the processes run."""
import mmap
import os
import struct
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
FIELDS = ("clock_offset_s", "only_odd", "fsync_delay_ms", "error", "kill_at", "calls", "slept")


class Shim:
    """Its `env` goes into the environment of every process to be controlled."""

    def __init__(self, folder):
        library, self.path = os.path.join(folder, "shim.so"), os.path.join(folder, "shim.page")
        subprocess.run(["cc", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", library, os.path.join(HERE, "shim.c"), "-ldl"], check=True)
        with open(self.path, "wb") as file:
            file.write(bytes(512))
        with open(self.path, "r+b") as file:
            self.page = mmap.mmap(file.fileno(), 512)
        self.env = {"LD_PRELOAD": library, "CHAOS_SHIM": self.path}

    def set(self, folder=None, **values):
        for name, value in values.items():
            struct.pack_into("<q", self.page, 8 * FIELDS.index(name), value)
        if folder is not None:
            text = folder.encode()
            self.page[56:56 + len(text) + 1] = text + b"\0"

    def get(self, name):
        return struct.unpack_from("<q", self.page, 8 * FIELDS.index(name))[0]

    def journal(self):
        """[(what, path, other)] of the calls on the folder so far."""
        with open(self.path + ".journal") as file:
            return [tuple(line.rstrip("\n").split("\t")) for line in file]

    def forget(self):
        os.truncate(self.path + ".journal", 0)
