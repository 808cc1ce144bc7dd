"""Attacks on jobs whose workers, hosts and coordinator are replaced: the short versions. Called by check.py."""
import random
import signal

from attacked_jobs import Attackers, Hosts, OneHost, wait_until
from hosts_net import Net
from job import Job, Nodes
from jobs import FOR_EVER

RATE = 1500  # a second
FEW = 800    # connections before anything happens
IDLE = 1200  # connections that stay at every port: nearly as many as a listener serves and its accept queue holds together
ATTACK_SEEN = "(refused|closed) [0-9]+ connections (while|that came before) the ranks connected"  # of a worker among idle connections
SMALL = {"model": "mlp(in=784, hidden=256x256, out=10)", "data__batch": 64, "data__train": "synthetic(samples=2048)", "observe__prometheus_port": 0,
         "observe__every_steps": 1}


def lose_worker(job, dice, attackers):
    """Killed; the others go on, and another one joins."""
    before, all_of_them = job.epoch(), job.size()
    with attackers.change():
        job.kill(dice.choice(job.workers()))
        job.await_epoch_after(before)
        job.await_size(all_of_them)


def summary(attackers, ports):
    return f"{attackers.begun()} connections to {ports} ports, {attackers.storm.refused} of them by holders of the secret: none accepted"


def elastic(programs, folder, seed):
    """A worker and the coordinator are killed in the storm, and a worker while every port has more idle connections than it serves: each comes back."""
    dice = random.Random(seed)
    with OneHost(programs, folder, "run", 2, 1, 2, flags=["--supervised"], steps=FOR_EVER, **SMALL) as job:
        job.await_size(2)
        job.await_step(20)
        with Attackers(job, RATE, seed) as attackers:
            attackers.await_begun(FEW)
            lose_worker(job, dice, attackers)
            mark = len(job.log())
            job.kill_coordinator()
            job.await_next_step()
            wait_until("both are back", lambda: job.said("all 2 workers of membership epoch [0-9]+ are back", mark))
            attackers.fill(IDLE)
            lose_worker(job, dice, attackers)
            assert job.said(ATTACK_SEEN), "no worker was attacked while the ranks connected:\n" + job.log()
            attackers.idle_number = 0
            attackers.await_begun(attackers.storm.begun + FEW)
            assert job.insiders(), "a frame of an absurd length was not refused"
            ports = attackers.all_attacked()
        job.stops()
    attackers.judge()
    job.judge()
    job.same_as_replay()
    print(summary(attackers, ports) + f", the bits are those of {job.schedule()} without faults")


def hosts(programs, folder, seed, tls=False):
    """The same on two hosts with agents. A host whose agent was killed gets another, which reaches the launcher among the idle connections."""
    dice, flags = random.Random(seed), ["--host-cool-down", "300ms"] + (["--tls"] if tls else [])
    with Net(programs, 2) as net, Hosts(net, programs, folder, "run", ["-H", "h1:1,h2:1"], 1, 2, flags=flags, steps=FOR_EVER) as job:
        job.tls = tls
        job.await_size(2)
        with Attackers(job, RATE, seed) as attackers:
            attackers.await_begun(FEW)
            lose_worker(job, dice, attackers)
            attackers.fill(IDLE)
            before = job.epoch()
            with attackers.change():
                net.kill_host(2)
                job.await_epoch_after(before)
                job.await_size(2)
            lose_worker(job, dice, attackers)
            attackers.idle_number = 0
            attackers.await_begun(attackers.storm.begun + FEW)
            assert tls or job.insiders(), "a frame of an absurd length was not refused"
            ports = attackers.all_attacked()
        job.process.send_signal(signal.SIGTERM)
        job.ends()
        job.judge()
    attackers.judge()
    print(summary(attackers, ports))


def encrypted(programs, folder, seed):
    hosts(programs, folder, seed, tls=True)


def nodes(programs, folder, seed):
    """Agents that something else started: the second reaches the first among the idle connections at its port, and the ranks each other."""
    steps = 200
    calm = Job(programs, folder + "/calm", steps)
    calm.finish()
    job = Nodes(programs, folder + "/attacked", steps)
    try:
        job.wait_until("rank 0 and its launcher's port", lambda: 0 in job.ranks() and job.ports())
        with Attackers(job, RATE, seed) as attackers:
            attackers.fill(IDLE)
            job.node(1)
            job.wait_until("some steps", lambda: len(job.losses()) > 5)
            attackers.idle_number = 0
            attackers.watch.reset_growth()
            ports = attackers.all_attacked()
            job.finish()
    finally:
        job.stop()
    attackers.judge()
    assert job.losses() == calm.losses() and job.tensors() == calm.tensors(), "another result than that of the run that was not attacked"
    print(summary(attackers, ports))


CLAIMS = {claim.__name__: claim for claim in (elastic, hosts, encrypted, nodes)}
