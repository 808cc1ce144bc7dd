"""Local ranks of a baseline over loopback, one thread each: how gloo_bench.py, torch_ddp.py and torch_sharded.py start their own ranks.

    if __name__ == "__main__":
        sys.exit(work(options) if local_ranks.is_rank() else local_ranks.launch(options.ranks))
"""
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time

PR_SET_PDEATHSIG = 1
PARENT, RENDEZVOUS, DONE = "COHORT_BASELINE_PARENT", "COHORT_BASELINE_MEETING", "COHORT_BASELINE_DONE"


def is_rank():
    return PARENT in os.environ


def launch(ranks, **environment):
    """The parent: one process per rank, with this program's own arguments; the first that fails ends the others. The rendezvous is a file:
    a port that is free now may be taken when they need it. How a rank ends that has reported its result does not count: gloo's threads now and
    then abort one whose peers ended first."""
    with socket.socket() as probe:  # for backends that read the environment
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    running, done = [], set()
    done_read, done_write = os.pipe()
    os.set_blocking(done_read, False)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    rendezvous = os.memfd_create("ranks")  # by its /proc path: nothing is left behind however this ends
    try:
        for rank in range(ranks):
            env = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                       OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo", **environment)
            env |= {PARENT: str(os.getpid()), RENDEZVOUS: f"/proc/{os.getpid()}/fd/{rendezvous}", DONE: str(done_write)}
            running.append(subprocess.Popen([sys.executable, "-W", "ignore"] + sys.argv, env=env, pass_fds=[done_write]))
        while True:
            codes = [p.poll() for p in running]  # before the pipe: a rank that has ended has written to it
            try:
                done |= set(os.read(done_read, 4096))
            except BlockingIOError:
                pass
            bad = [c for rank, c in enumerate(codes) if c and rank not in done]
            if bad or None not in codes:
                return bad[0] if bad else 0
            time.sleep(0.02)
    finally:
        for p in running:
            if p.poll() is None:
                p.kill()
            p.wait()
        os.close(rendezvous)


def die_with_parent():
    """In a rank: false when the parent went before this could take effect."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    return os.getppid() == int(os.environ[PARENT])


def gloo(name):
    """torch and torch.distributed, one thread, the process group open; None, after printing why, when they are missing.
    COHORT_BASELINE_BACKEND names another backend than gloo (bench/python_training.py)."""
    backend = os.environ.get("COHORT_BASELINE_BACKEND", "gloo")
    try:
        import torch
        import torch.distributed as dist
        if backend == "cohort":
            import cohort  # noqa: F401: registers it
    except ImportError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return None
    if not dist.is_available() or not dist.is_gloo_available():
        print(f"{name}: this torch has no gloo", file=sys.stderr)
        return None
    torch.set_num_threads(1)
    if backend == "gloo" and RENDEZVOUS in os.environ:  # not where another started the ranks (bench/hosts_step.py)
        rendezvous = f"file://{os.environ[RENDEZVOUS]}"
        dist.init_process_group(backend, init_method=rendezvous, rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
    else:
        dist.init_process_group(backend)
    return torch, dist


def leave(dist):
    """The last thing a rank does, after its output."""
    dist.barrier()
    if DONE in os.environ:
        os.write(int(os.environ[DONE]), bytes([dist.get_rank()]))
    dist.destroy_process_group()


def resident_bytes():
    """This process' share of the memory in use: pages of several processes count in part."""
    with open("/proc/self/smaps_rollup", encoding="ascii") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith("Pss:"))


def mean(torch, dist, values):
    """Over all ranks."""
    t = torch.tensor([sum(values), float(len(values))], dtype=torch.float64)
    dist.all_reduce(t)
    return (t[0] / t[1]).item()


def report(torch, dist, args, seconds, losses, **more):
    """The line that rank 0 prints about `args.steps` steps, as cohort/bench/step/results.h reads it; then the group is left."""
    line = {"samples_per_s": args.batch * args.ranks * args.steps / mean(torch, dist, [seconds]), "steps": args.steps,
            "first_loss": mean(torch, dist, losses[:max(1, len(losses) // 10)]),
            "last_loss": mean(torch, dist, losses[-max(1, len(losses) // 4):])}
    line |= {name: mean(torch, dist, [value]) for name, value in more.items()}
    if dist.get_rank() == 0:
        print(json.dumps(line), flush=True)
    leave(dist)
