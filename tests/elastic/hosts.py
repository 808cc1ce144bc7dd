"""Tests of elastic jobs on several hosts: hosts.py <programs> <claim>"""
import contextlib
import os
import random
import signal
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from coordinators import Supervised  # noqa: E402
from hosts_net import HostsJob, HostsTraining, Net  # noqa: E402
from jobs import FOR_EVER, SLOWDOWN, wait_until  # noqa: E402


def no_process_is_left(net):
    wait_until("no process is left on any host", lambda: not any(net.processes(h) for h in range(len(net.holders) - 1)), 5 * SLOWDOWN)


def spread(programs, scratch):
    """A killed worker is replaced on its host; a killed host costs its own workers only, is not used for a while, and then again."""
    rng = random.Random(9)
    with Net(programs, 2) as net, HostsJob(net, programs, scratch, "run", ["-H", "h1:2,h2:2"], 2, flags=["--host-cool-down", "300ms"], steps=FOR_EVER) as job:
        job.await_size(4)
        assert [len(job.workers_on(h)) for h in (1, 2)] == [2, 2], job.log()
        for host in (1, 2):
            before, lost = job.epoch(), job.steps_lost()
            job.kill(rng.choice(job.workers_on(host)))
            job.await_epoch_after(before)
            assert job.steps_lost() - lost <= 1, job.log()
            job.await_size(4)
            assert [len(job.workers_on(h)) for h in (1, 2)] == [2, 2], job.log()
        before, lost = job.epoch(), job.steps_lost()
        net.kill_host(2)
        job.await_epoch_after(before)
        assert job.steps_lost() - lost <= 1, job.log()
        wait_until("the host is named", lambda: job.said(r"host 'h2' is lost: its agent is gone .*; it had 2 workers and is not used for 300 ms"))
        job.await_size(4)
        assert [len(job.workers_on(h)) for h in (1, 2)] == [2, 2], job.log()
        job.process.send_signal(signal.SIGTERM)
        job.ends()
        job.judge()
        no_process_is_left(net)


def elsewhere(programs, scratch):
    """Workers of a host that is lost are started where slots are free; a job with one remaining host continues with its workers."""
    with Net(programs, 3) as net, HostsJob(net, programs, scratch, "run", ["-H", "h1:2,h2:1,h3:2", "-n", "3"], 1, 3, steps=FOR_EVER) as job:
        job.await_size(3)
        assert [len(job.workers_on(h)) for h in (1, 2, 3)] == [2, 1, 0], job.log()
        net.kill_host(1)
        wait_until("both are on the third host", lambda: [len(job.workers_on(h)) for h in (1, 2, 3)] == [0, 1, 2])
        job.await_size(3)
        assert job.said(r"host 'h1' is lost: .* is not used for 10 s"), job.log()
        net.kill_host(3)
        job.await_size(1)
        wait_until("it logs what is missing", lambda: job.said("2 more workers are wanted, and no host has a free slot"))
        job.process.send_signal(signal.SIGTERM)
        job.ends()
        job.judge()
        no_process_is_left(net)


def discovered(programs, scratch):
    """Hosts that a script names later add workers, up to --max-n; the workers of those that it no longer names leave, and no step is computed again. A script
    that fails changes nothing, and that is logged once."""
    hosts = os.path.join(scratch, "hosts")

    def now(text):
        with open(hosts + ".new", "w") as file:
            file.write(text)
        os.rename(hosts + ".new", hosts)

    now("h1:2\n")
    where = ["--host-discovery-script", f"cat {hosts}", "--discovery-interval", "100ms"]
    with Net(programs, 3) as net, HostsJob(net, programs, scratch, "run", where, 1, 4, steps=FOR_EVER) as job:
        job.await_size(2)
        now("h1:2\nh2:4\n")
        job.await_size(4)
        assert [len(job.workers_on(h)) for h in (1, 2)] == [2, 2], job.log()
        lost = job.steps_lost()
        now("h2:4\n")
        job.await_size(2)
        wait_until("no process is left there", lambda: not net.processes(1))
        assert job.steps_lost() == lost, job.log()
        assert job.said(r"host 'h1' is no longer there for this job: its 2 workers leave") and job.said("leaves: SIGTERM"), job.log()
        now("")
        wait_until("the failure is logged", lambda: job.said("the hosts stay as they were"))
        job.await_step(job.step() + 200)
        now("h2:4\nh3\n")
        wait_until("it answers again", lambda: job.said("answers again"))
        job.await_size(3)
        assert job.log().count("the hosts stay as they were") == 1, job.log()
        job.process.send_signal(signal.SIGTERM)
        job.ends()
        job.judge()
        no_process_is_left(net)


def encrypted(programs, scratch):
    """--tls: coordinator, agents and workers of two hosts use it, and a killed worker is replaced."""
    with Net(programs, 2) as net, HostsJob(net, programs, scratch, "run", ["-H", "h1:1,h2:1", "--tls"], 1, 2, steps=FOR_EVER) as job:
        job.await_size(2)
        before = job.epoch()
        job.kill(job.workers_on(2)[0])
        job.await_epoch_after(before)
        job.process.send_signal(signal.SIGTERM)
        job.ends()
        job.judge()


class SupervisedHostsJob(Supervised, HostsJob):
    pass


def coordinated(programs, scratch):
    """--supervised: workers of other hosts continue while the coordinator is killed. Killed together with a worker or a whole host, the next one learns of that."""
    where, flags = ["-H", "h1:2,h2:2"], ["--supervised", "--host-cool-down", "300ms"]
    with Net(programs, 2) as net, SupervisedHostsJob(net, programs, scratch, "run", where, 1, 4, flags=flags, steps=FOR_EVER) as job:
        job.await_size(4)
        for _ in range(2):
            job.await_step(job.step() + 30)
            mark = len(job.log())
            at, again = job.kill_coordinator()
            print(f"another coordinator after {again - at:.3f} s, a step after {job.await_next_step() - at:.3f} s")
            wait_until("all are back", lambda: job.said("all 4 workers of membership epoch 1 are back: training continues", mark))
        assert job.epoch() == 1 and job.steps_lost() == 0, job.log()
        seen = None
        for whom in (lambda: job.workers_on(1)[:1], lambda: net.processes(2)):
            before, lost, mark = job.epoch(), job.steps_lost(), len(job.log())
            at, _ = job.kill_coordinator(whom())
            print(f"with others: the next epoch after {job.await_epoch_after(before) - at:.3f} s")
            assert job.steps_lost() - lost <= 1, job.log()
            job.await_size(4)
            seen = seen or job.said("is lost: (killed by SIGKILL|its process has ended)", mark)
        assert seen and job.said(r"host 'h2' is lost: .*not used for "), job.log()
        job.process.send_signal(signal.SIGTERM)
        job.ends()
        job.judge()
        no_process_is_left(net)


def partitioned(programs, scratch):
    """Workers that reach the coordinator but not each other: most continue, those that are excluded join again once the network is restored."""
    with Net(programs, 3) as net, HostsJob(net, programs, scratch, "run", ["-H", "h1,h2,h3"], 2, 3, steps=FOR_EVER) as job:
        job.await_size(3)
        job.await_step(job.step() + 20)
        lost, at = job.steps_lost(), time.monotonic()
        net.partition([1], [2, 3])
        job.await_size(2)
        print(f"two continue after {time.monotonic() - at:.1f} s")
        assert job.steps_lost() - lost <= 1, job.log()
        net.forward()
        at = time.monotonic()
        job.await_size(3)
        print(f"three again after {time.monotonic() - at:.1f} s")
        job.process.send_signal(signal.SIGTERM)
        job.ends()
        job.judge()


def unreachable(programs, scratch):
    """A host that cannot be reached is named and tried again later; when none can, the job ends with its name."""
    with Net(programs, 1) as net:
        flags = ["--start-timeout", "2s", "--host-cool-down", "100ms"]
        with HostsJob(net, programs, scratch, "one", ["-H", "h1:1,h7:1"], 1, 2, flags=flags, steps=200) as job:
            job.ends()
            assert job.said(r"host 'h7' cannot take part: .*No route to host"), job.log()
        with HostsJob(net, programs, scratch, "none", ["-H", "h7:1"], 1, 1, steps=200) as job:
            job.ends(status=1)
            assert job.said(r"host 'h7' cannot take part: .*; none is left"), job.log()


def trained(programs, scratch):
    """`cohort train` over two hosts: a worker and then a host are killed, and the bits are those of runs without faults on one host."""
    with Net(programs, 2) as net, HostsTraining(net, programs, scratch, "run", ["-H", "h1:2,h2:1"], 1, 3, flags=["--host-cool-down", "300ms"],
                                                steps=FOR_EVER) as job:
        job.await_size(3)
        job.await_step(job.step() + 10)
        before = job.epoch()
        job.kill(job.workers_on(1)[0])
        job.await_epoch_after(before)
        job.await_size(3)
        before, lost = job.epoch(), job.steps_lost()
        net.kill_host(2)
        job.await_epoch_after(before)
        assert job.steps_lost() - lost <= 1, job.log()
        job.await_size(3)
        job.await_step(job.step() + 10)
        job.stops()
        job.judge()
        job.same_as_replay()


def asked(programs, scratch):
    """SIGTERM to the agent of a host that is going down: its workers leave after their step, no step is computed again, no process is left there."""
    with Net(programs, 2) as net, HostsJob(net, programs, scratch, "run", ["-H", "h1:2,h2:2"], 1, 4, steps=FOR_EVER) as job:
        job.await_size(4)
        job.await_step(job.step() + 20)
        for pid in set(net.processes(2)) - set(job.workers_on(2)):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline") as words:  # it may have ended with the one before
                if words.read().startswith(os.path.join(programs, "cohort") + "\0agent"):
                    os.kill(pid, signal.SIGTERM)
        job.await_size(2)
        wait_until("no process is left there", lambda: not net.processes(2))
        assert job.steps_lost() == 0, job.log()
        assert job.said("host 'h2' is no longer there for this job: its 2 workers leave") and job.said("leaves: SIGTERM"), job.log()
        job.await_step(job.step() + 20)
        job.process.send_signal(signal.SIGTERM)
        job.ends()
        job.judge()
        no_process_is_left(net)


def orphaned(programs, scratch):
    """kill -9 of the launcher or of the process in front of it: workers of both hosts finish their step, one saves it, and the run continues after that step."""
    for name, front in (("launcher", False), ("front", True)):
        with Net(programs, 2) as net, HostsTraining(net, programs, scratch, name, ["-H", "h1:2,h2:1"], 1, 3, steps=FOR_EVER) as job:
            job.await_size(3)
            job.await_step(30)
            at = job.kill(job.process.pid if front else children_of(job.process.pid)[0])
            wait_until("nothing is left", lambda: not any(net.processes(h) for h in (1, 2)))
            took, step = time.monotonic() - at, job.step()
            print(f"{name} killed: nothing left after {took:.2f} s, step {step}")
            assert took < 10 * SLOWDOWN and job.process.wait(10) != 0, job.log()
            job.judge()
            again = job.runs.train(name, n=3, **{**job.sets, "steps": step + 5})
            assert f"goes on after update {step}\n" in again.stdout, again.stdout + job.log()


def children_of(parent):
    with open(f"/proc/{parent}/task/{parent}/children") as found:
        return [int(pid) for pid in found.read().split()]


with tempfile.TemporaryDirectory(prefix="cohort-elastic-") as folder:
    claims = (spread, elsewhere, discovered, encrypted, coordinated, partitioned, unreachable, asked, trained, orphaned)
    {claim.__name__: claim for claim in claims}[sys.argv[2]](os.path.abspath(sys.argv[1]), folder)
