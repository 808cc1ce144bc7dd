"""Hosts that fail, and networks that do: 4 a host is killed, 9 partitions, 10 packets are lost, 12 a link is down or every connection reset. Jobs of
`cohort run --min-n` on namespaces (hosts_net.py); a job takes several faults, and at its end its history is checked: no two rosters committed, nothing was
lost."""
import contextlib
import re
import tempfile
import time

from delay_line import delayed
from hosts_net import HostsJob, Net
from jobs import FOR_EVER, wait_until

TRIES_A_JOB = 10
LOST_AFTER = 0.6  # of partitions, so that a try is short; the other rows have the default, 2 s
HEAL, DETECT_VANISHED, KILLED = 5.0, 3.0, 5.0
CONTINUE, HEAL_LATE = 20.0, 30.0  # of workers that reach the coordinator but not each other: two epochs are tried before some are excluded, for a while
LOSSY = 10  # seconds of a bad network: 140 tries have ten minutes with one packet in twenty lost
FULL, PARTITIONS = 200, 670  # from so many tries on as many partitions, of which 500 are 2/2, 3/1 or 1/3


def in_jobs(chaos, tries, hosts, where, flags, one):
    """Jobs of up to TRIES_A_JOB faults; one(net, job, i) returns a try. A history that breaks a promise fails every try of its job."""
    for first in range(0, tries, TRIES_A_JOB):
        if not chaos.in_time():
            return
        done, why = [], ""
        with tempfile.TemporaryDirectory(prefix="cohort-chaos-") as folder, Net(chaos.programs, hosts) as net:
            with HostsJob(net, chaos.programs, folder, "job", where, 2, 4, ["--respawns", "100000", *flags], steps=FOR_EVER) as job:
                for i in range(first, min(tries, first + TRIES_A_JOB)):
                    if not chaos.in_time():
                        break
                    job.await_size(4)
                    job.await_step(job.step() + chaos.rng.randrange(1, 40))
                    try:
                        done.append(one(net, job, i))
                    except AssertionError as broken:  # later tries would not be valid
                        done.append(chaos.tried("a limit was missed", ok=False, why=f"{broken}\n{job.log()[-3000:]}"))
                        break
                    chaos.progress(done[-1])
                try:
                    job.judge()
                except AssertionError as broken:
                    why = str(broken)
        for t in done:
            t.update({"ok": False, "why": why[-3000:]} if why else {})
        chaos.write(done)


def row4(chaos, tries):
    def one(net, job, i):
        mark, epoch, lost, host = len(job.log()), job.epoch(), job.steps_lost(), chaos.rng.choice([1, 2])
        at = time.monotonic()
        net.kill_host(host)
        wait_until("the loss is seen", lambda: job.said("is lost: ", mark))
        detect = time.monotonic() - at
        recover = job.await_epoch_after(epoch) - at
        wait_until("the launcher says which host", lambda: job.said(rf"host 'h{host}' is lost: .*not used for ", mark))
        again = job.steps_lost() - lost
        return chaos.tried("4 a host killed", detect=detect, recover=recover, lost=again, ok=recover <= chaos.limit(KILLED) and again <= 1)
    in_jobs(chaos, tries, 2, ["-H", "h1:2,h2:2"], ["--host-cool-down", "200ms"], one)


def row9(chaos, tries):
    def one(net, job, i):
        hosts = [1, 2, 3, 4]
        kind = ["2/2", "3/1", "1/3", "one way", "2/2", "3/1", "1/3", "flapping"][i % 8]
        away = chaos.rng.sample(hosts, {"2/2": 2, "3/1": 1, "1/3": 3, "one way": chaos.rng.choice([1, 2]), "flapping": 2}[kind])
        here = [0] + [h for h in hosts if h not in away]
        mark, epoch, lost = len(job.log()), job.epoch(), job.steps_lost()
        cut = (lambda: net.partition(away, here, [chaos.rng.choice(["in", "out"])])) if kind == "one way" else (lambda: net.partition(away, here))
        at = time.monotonic()
        for _ in range(2 if kind == "flapping" else 0):
            cut()
            time.sleep(1)
            net.forward()
            time.sleep(1)
        detect = 0
        if kind != "flapping":
            cut()
            wait_until("the loss is seen", lambda: job.said("is lost: ", mark))
            detect = time.monotonic() - at
            if len(here) > 2:
                job.await_epoch_after(epoch)  # this side continues
            time.sleep(chaos.rng.random() * 0.3)
        net.forward()
        at, step = time.monotonic(), job.step()
        wait_until("all are together again", lambda: job.size() == 4 and job.step() > step + 2)
        recover = time.monotonic() - at
        return chaos.tried(f"9 partition {kind}", detect=detect, recover=recover, lost=job.steps_lost() - lost, ok=recover <= chaos.limit(HEAL))
    def between_workers(net, job, i):
        away = chaos.rng.sample([1, 2, 3, 4], 2 - i % 2)
        lost, at = job.steps_lost(), time.monotonic()
        net.partition(away, [h for h in (1, 2, 3, 4) if h not in away])
        wait_until("one side continues", lambda: job.size() == 4 - len(away))
        recover = time.monotonic() - at
        net.forward()
        at = time.monotonic()
        wait_until("all are together again", lambda: job.size() == 4)
        healed = time.monotonic() - at
        return chaos.tried(f"9 workers partitioned {4 - len(away)}/{len(away)}, the coordinator reaches all", recover=recover, lost=job.steps_lost() - lost,
                           healed_s=round(healed, 2), ok=recover <= chaos.limit(CONTINUE) and healed <= chaos.limit(HEAL_LATE) and job.steps_lost() - lost <= 1)
    in_jobs(chaos, tries if tries < FULL else max(tries, PARTITIONS), 4, ["-H", "h1,h2,h3,h4"], ["--lost-after", f"{LOST_AFTER}s"], one)
    in_jobs(chaos, -(-tries // 50), 4, ["-H", "h1,h2,h3,h4"], [], between_workers)


@contextlib.contextmanager
def bad_network(net, kind):
    if kind == "1 Mbit/s":
        for host in (1, 2, 3, 4):
            net.on(host, "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "1mbit", "burst", "4kb", "latency", "150ms")
        yield
        for host in (1, 2, 3, 4):
            net.on(host, "tc", "qdisc", "del", "dev", "eth0", "root")
    elif kind.endswith("ms delay"):
        with delayed(net, *re.findall(r"\d+", kind)):
            yield
    else:
        net.forward(f"numgen random mod 100 < {kind.split()[0]} drop")
        yield
        net.forward()


def row10(chaos, tries):
    """Where one packet in five is lost, workers may be evicted: then all are to be together again afterwards, and the history must be right as ever."""
    def one(net, job, i):
        kind = ["5 % lost", "1 % lost", "5 % lost", "1 Mbit/s", "5 % lost", "20 % lost", "100 +- 50 ms delay"][i % 7]
        mark, epoch = len(job.log()), job.epoch()
        with bad_network(net, kind):
            step = job.step()
            time.sleep(LOSSY)
        moved, changed = job.step() - step, job.epoch() != epoch or job.said("is lost: ", mark)
        at, step = time.monotonic(), job.step()
        wait_until("all are together again", lambda: job.size() == 4 and job.step() > step + 2)
        ok = moved > 0 and not changed if kind != "20 % lost" else time.monotonic() - at <= chaos.limit(HEAL_LATE)
        return chaos.tried(f"10 {kind}", ok=ok, recover=time.monotonic() - at, why=job.log()[-2000:] if changed else f"{moved} steps", steps=moved, changed=bool(changed))
    in_jobs(chaos, tries, 4, ["-H", "h1,h2,h3,h4"], [], one)


def row12(chaos, tries):
    def one(net, job, i):
        mark, epoch, lost, host = len(job.log()), job.epoch(), job.steps_lost(), chaos.rng.choice([1, 2, 3, 4])
        reset = i % 2 == 1
        at = time.monotonic()
        net.resets(host, True) if reset else net.link(host, "down")
        wait_until("the loss is seen", lambda: job.said(rf"on h{host}\) is lost: ", mark))
        detect = time.monotonic() - at
        recover = job.await_epoch_after(epoch) - at
        net.resets(host, False) if reset else net.link(host, "up")
        wait_until("it is back", lambda: job.size() == 4)
        again = job.steps_lost() - lost
        return chaos.tried("12 every connection reset" if reset else "12 a host vanished", detect=detect, recover=recover, lost=again,
                           ok=detect <= chaos.limit(DETECT_VANISHED) and recover <= chaos.limit(DETECT_VANISHED + 3) and again <= 1)
    in_jobs(chaos, tries, 4, ["-H", "h1,h2,h3,h4"], [], one)


ROWS = {"4": row4, "9": row9, "10": row10, "12": row12}
