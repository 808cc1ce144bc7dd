"""A file system of the kernel's FUSE protocol (/dev/fuse, linux/fuse.h) that passes everything on to another folder, and fails on request: it delays,
answers with errors, loses answers, hangs, has no hard links, no locks, no exchange of names. Nothing is cached, so that every call of a program arrives here.
It needs no library. It serves in a thread of this process; with the process its mount ends, and calls that hang fail."""
import ctypes
import errno
import fcntl
import os
import stat
import struct
import subprocess
import threading
import time

OPERATIONS = {
    1: "lookup", 2: "forget", 3: "getattr", 4: "setattr", 5: "readlink", 6: "symlink", 9: "mkdir", 10: "unlink", 11: "rmdir", 12: "rename", 13: "link",
    14: "open", 15: "read", 16: "write", 17: "statfs", 18: "release", 20: "fsync", 25: "flush", 26: "init", 27: "opendir", 28: "readdir",
    29: "releasedir", 30: "fsyncdir", 32: "setlk", 33: "setlk", 35: "create", 36: "interrupt", 42: "batch_forget", 45: "rename2"}
SILENT = ("forget", "batch_forget", "interrupt")  # they have no answer
CHANGES = ("setattr", "symlink", "mkdir", "unlink", "rmdir", "rename", "rename2", "link", "write", "fsync", "fsyncdir", "create", "flush")
IN, MOST_WRITTEN, BIG_WRITES, FLOCK_LOCKS = struct.Struct("<IIQQIIIHH"), 1 << 17, 1 << 5, 1 << 10
MODE, SIZE, ATIME, MTIME, WITH_HANDLE, ATIME_NOW, MTIME_NOW = 1, 8, 16, 32, 64, 128, 256
libc = ctypes.CDLL(None, use_errno=True)


class Lost(Exception):
    """What a fault may be: the operation is done, and its answer is this error."""


class Fault:
    """error: what is answered. lost: after it was done. hangs: not answered before release(). delay: seconds before it is done. share: of the operations
    that it fits, drawn from rng."""

    def __init__(self, operations=None, names="", error=0, lost=False, hangs=False, delay=0.0, share=1.0, rng=None):
        self.operations, self.names, self.error, self.lost, self.hangs, self.delay, self.share, self.rng = (
            operations, names, error, lost, hangs, delay, share, rng)
        self.hits = 0

    def fits(self, operation, name):
        if (self.operations is not None and operation not in self.operations) or self.names not in name:
            return False
        return self.share >= 1 or self.rng.random() < self.share


def mounted(path, descriptor):
    options = f"fd={descriptor},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()},allow_other"
    if libc.mount(b"attacked", path.encode(), b"fuse", 0, options.encode()) != 0:
        raise OSError(ctypes.get_errno(), f"mount -t fuse {path}: {os.strerror(ctypes.get_errno())}")


class FaultyFolder:
    """Mounts `path`, which passes on to `behind`. faults: a list that may be replaced at any time; the first that fits an operation counts."""

    def __init__(self, path, behind, locks=True):
        for folder in (path, behind):
            os.makedirs(folder, exist_ok=True)
        self.path, self.behind, self.locks, self.faults = path, behind, locks, []
        self.nodes, self.numbers, self.handles, self.next_handle = {1: [os.open(behind, os.O_PATH), 1, ""]}, {}, {}, 1
        self.newest_node = 1
        self.held, self.lock, self.calls = [], threading.RLock(), 0
        self.device = os.open("/dev/fuse", os.O_RDWR)
        mounted(path, self.device)
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def close(self):
        subprocess.run(["umount", "-l", self.path], check=False)
        self.faults = []
        self.release()
        self.thread.join()  # unmounted, it reads ENODEV
        os.close(self.device)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def release(self):
        """Operations that hang are done now."""
        with self.lock:
            held, self.held = self.held, []
        for request in held:
            self.do(*request)

    # --- the protocol
    def serve(self):
        while True:
            try:
                request = os.read(self.device, MOST_WRITTEN + 4096)
            except OSError as reason:
                if reason.errno in (errno.ENOENT, errno.EINTR, errno.EAGAIN):
                    continue
                return  # ENODEV: it is unmounted
            _, opcode, unique, node, _, _, _, _, _ = IN.unpack_from(request)
            self.begin(OPERATIONS.get(opcode, ""), unique, node, request[IN.size:])

    def begin(self, operation, unique, node, body):
        self.calls += 1
        if operation == "init":
            return self.answer(unique, self.init(body))
        if operation == "interrupt":
            return self.interrupted(struct.unpack_from("<Q", body)[0])
        if operation in SILENT:
            return self.forgotten(operation, node, body)
        fault = next((f for f in self.faults if f.fits(operation, self.name_of(operation, node, body))), None)
        if fault is None:
            return self.do(operation, unique, node, body)
        fault.hits += 1
        if fault.hangs:
            with self.lock:
                return self.held.append((operation, unique, node, body))
        if fault.delay:
            return threading.Timer(fault.delay, self.do, (operation, unique, node, body)).start()
        if fault.lost:
            self.do(operation, None, node, body)
        self.answer(unique, b"", fault.error)

    def interrupted(self, unique):
        """The process that waits has got a signal, mostly SIGKILL: as with NFS it need not wait any more."""
        with self.lock:
            waiting = [request for request in self.held if request[1] == unique]
            self.held = [request for request in self.held if request[1] != unique]
        if waiting:
            self.answer(unique, b"", errno.EINTR)

    def name_of(self, operation, node, body):
        if operation in ("lookup", "unlink", "rmdir", "symlink"):
            return body.split(b"\0")[0].decode(errors="replace")
        skip = {"create": 16, "mkdir": 8, "rename": 8, "rename2": 16, "link": 8}.get(operation)
        if skip is not None:
            return "/".join(part.decode(errors="replace") for part in body[skip:].split(b"\0"))
        with self.lock:
            return self.nodes.get(node, ["", 0, ""])[2]

    def do(self, operation, unique, node, body):
        try:
            with self.lock:
                handler = getattr(self, "do_" + operation, None) if operation else None
                result, error = (handler(node, body), 0) if handler else (b"", errno.ENOSYS)
        except OSError as reason:
            result, error = b"", reason.errno or errno.EIO
        except KeyError:
            result, error = b"", errno.ESTALE
        if unique is not None:
            self.answer(unique, result, error)

    def answer(self, unique, result, error=0):
        try:
            os.write(self.device, struct.pack("<IiQ", 16 + (0 if error else len(result)), -error, unique) + (b"" if error else result))
        except OSError:  # it was interrupted, or is unmounted
            pass

    def init(self, body):
        _, minor, readahead, offered = struct.unpack_from("<IIII", body)
        flags = offered & (BIG_WRITES | FLOCK_LOCKS)
        return struct.pack("<IIIIHHIIHHI28x", 7, min(minor, 31), readahead, flags, 64, 48, MOST_WRITTEN, 1, 0, 0, 0)

    # --- nodes and handles
    def fd(self, node):
        return self.nodes[node][0]

    def again(self, node):
        return f"/proc/self/fd/{self.fd(node)}"

    def entry(self, parent, name):
        fd = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=self.fd(parent))
        st = os.fstat(fd)
        key = (st.st_dev, st.st_ino)
        number = self.numbers.get(key)
        if number in self.nodes:  # an open descriptor keeps the inode from being used again
            os.close(fd)
            self.nodes[number][1] += 1
        else:
            self.newest_node += 1
            number = self.numbers[key] = self.newest_node  # never a number of before: the kernel may still know that one
            self.nodes[number] = [fd, 1, name]
        self.nodes[number][2] = name
        return struct.pack("<QQQQII", number, 0, 0, 0, 0, 0) + self.attributes(st, number)

    def attributes(self, st, number):
        times = [divmod(t, 10**9) for t in (st.st_atime_ns, st.st_mtime_ns, st.st_ctime_ns)]
        return struct.pack("<6Q10I", number, st.st_size, st.st_blocks, *[t[0] for t in times], *[t[1] for t in times], st.st_mode, st.st_nlink, st.st_uid,
                           st.st_gid, 0, 4096, 0)

    def forgotten(self, operation, node, body):
        gone = [(node, struct.unpack_from("<Q", body)[0])] if operation == "forget" else []
        if operation == "batch_forget":
            count = struct.unpack_from("<I", body)[0]
            gone = [struct.unpack_from("<QQ", body, 8 + 16 * i) for i in range(count)]
        with self.lock:
            for number, times in gone:
                if number in self.nodes and number != 1:
                    self.nodes[number][1] -= times
                    if self.nodes[number][1] <= 0:
                        os.close(self.nodes.pop(number)[0])

    def handle(self, fd):
        number, self.next_handle = self.next_handle, self.next_handle + 1
        self.handles[number] = fd
        return struct.pack("<QII", number, 0, 0)

    # --- operations
    def do_lookup(self, node, body):
        return self.entry(node, os.fsdecode(body.split(b"\0")[0]))

    def do_getattr(self, node, _):
        return struct.pack("<QII", 0, 0, 0) + self.attributes(os.fstat(self.fd(node)), node)

    def do_setattr(self, node, body):
        valid, _, _, size, _, atime, mtime, _, atime_ns, mtime_ns, _, mode = struct.unpack_from("<IIQQQQQQIIII", body)
        if valid & MODE:
            os.chmod(self.again(node), stat.S_IMODE(mode))
        if valid & SIZE:
            os.truncate(self.again(node), size)
        if valid & (ATIME | MTIME | ATIME_NOW | MTIME_NOW):
            now = time.time_ns()
            times = (now if valid & ATIME_NOW else atime * 10**9 + atime_ns, now if valid & MTIME_NOW else mtime * 10**9 + mtime_ns)
            os.utime(self.again(node), ns=times)
        return self.do_getattr(node, body)

    def do_readlink(self, node, _):
        return os.fsencode(os.readlink("", dir_fd=self.fd(node)))

    def do_symlink(self, node, body):
        name, target = body.split(b"\0")[:2]
        os.symlink(target, name, dir_fd=self.fd(node))
        return self.entry(node, os.fsdecode(name))

    def do_mkdir(self, node, body):
        mode, _ = struct.unpack_from("<II", body)
        name = os.fsdecode(body[8:].split(b"\0")[0])
        os.mkdir(name, mode, dir_fd=self.fd(node))
        return self.entry(node, name)

    def do_unlink(self, node, body):
        os.unlink(body.split(b"\0")[0], dir_fd=self.fd(node))
        return b""

    def do_rmdir(self, node, body):
        os.rmdir(body.split(b"\0")[0], dir_fd=self.fd(node))
        return b""

    def renamed(self, node, to, names, flags):
        old, new = names.split(b"\0")[:2]
        if libc.renameat2(self.fd(node), old, self.fd(to), new, flags) != 0:
            raise OSError(ctypes.get_errno(), "renameat2")
        return b""

    def do_rename(self, node, body):
        return self.renamed(node, struct.unpack_from("<Q", body)[0], body[8:], 0)

    def do_rename2(self, node, body):
        to, flags = struct.unpack_from("<QI", body)
        return self.renamed(node, to, body[16:], flags)

    def do_link(self, node, body):
        name = os.fsdecode(body[8:].split(b"\0")[0])
        os.link(self.again(struct.unpack_from("<Q", body)[0]), name, dst_dir_fd=self.fd(node), follow_symlinks=True)
        return self.entry(node, name)

    def do_open(self, node, body):
        flags = struct.unpack_from("<I", body)[0] & ~(os.O_NOFOLLOW | os.O_CREAT | os.O_EXCL)
        return self.handle(os.open(self.again(node), flags))

    do_opendir = do_open

    def do_create(self, node, body):
        flags, mode = struct.unpack_from("<II", body)
        name = os.fsdecode(body[16:].split(b"\0")[0])
        fd = os.open(name, flags, mode, dir_fd=self.fd(node))
        try:
            return self.entry(node, name) + self.handle(fd)
        except OSError:
            os.close(fd)
            raise

    def do_read(self, _, body):
        handle, offset, size = struct.unpack_from("<QQI", body)
        return os.pread(self.handles[handle], size, offset)

    def do_write(self, _, body):
        handle, offset, size = struct.unpack_from("<QQI", body)
        fd = self.handles[handle]
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) & ~os.O_APPEND)  # the kernel says where
        return struct.pack("<II", os.pwrite(fd, body[40:40 + size], offset), 0)

    def do_release(self, _, body):
        os.close(self.handles.pop(struct.unpack_from("<Q", body)[0]))
        return b""

    do_releasedir = do_release

    def do_flush(self, *_):
        return b""

    do_fsync = do_fsyncdir = do_flush

    def do_statfs(self, *_):
        s = os.statvfs(self.behind)
        return struct.pack("<5Q4I24x", s.f_blocks, s.f_bfree, s.f_bavail, s.f_files, s.f_ffree, s.f_bsize, s.f_namemax, s.f_frsize, 0)

    def do_setlk(self, _, body):
        if not self.locks:
            raise OSError(errno.ENOLCK, "no locks")
        handle, _, _, _, kind = struct.unpack_from("<QQQQI", body)
        how = {fcntl.F_RDLCK: fcntl.LOCK_SH, fcntl.F_WRLCK: fcntl.LOCK_EX, fcntl.F_UNLCK: fcntl.LOCK_UN}[kind]
        fcntl.flock(self.handles[handle], how | fcntl.LOCK_NB)
        return b""

    def do_readdir(self, node, body):
        _, offset, size = struct.unpack_from("<QQI", body)
        names, answer = [".", "..", *sorted(os.listdir(self.again(node)))], b""
        for number in range(offset, len(names)):
            name = os.fsencode(names[number])
            one = struct.pack("<QQII", number + 2, number + 1, len(name), 0) + name
            one += bytes(-len(one) % 8)
            if len(answer) + len(one) > size:
                break
            answer += one
        return answer
