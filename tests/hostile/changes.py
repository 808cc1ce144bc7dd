"""Strangers at jobs whose workers, hosts and coordinator come and go: the short versions. Called by check.py."""
import random
import signal

from besieged import Hosts, OneHost, Strangers, wait_until
from hosts_net import Net
from job import Job, Nodes
from jobs import FOR_EVER

RATE = 1500  # a second
FEW = 800    # strangers before anything happens
CROWD = 1200  # who stay at every port: more than a door hears and its queue holds together leave to the others
MET = "(refused|sent) [0-9]+ connections (while|away that came before) the ranks met"  # of a worker past a crowd
SMALL = {"model": "mlp(in=784, hidden=256x256, out=10)", "data__batch": 64, "data__train": "synthetic(samples=2048)", "observe__prometheus_port": 0,
         "observe__every_steps": 1}


def lose_worker(job, dice, strangers):
    """Killed; the others go on, and another one comes."""
    before, all_of_them = job.epoch(), job.size()
    with strangers.change():
        job.kill(dice.choice(job.workers()))
        job.await_epoch_after(before)
        job.await_size(all_of_them)


def told(strangers, ports):
    return f"{strangers.begun()} connections to {ports} ports, {strangers.storm.refused} of them by holders of the secret: none accepted"


def elastic(programs, folder, seed):
    """A worker and the coordinator are killed in the storm, and a worker while more stay at every port than it can hear: each comes back."""
    dice = random.Random(seed)
    with OneHost(programs, folder, "run", 2, 1, 2, flags=["--supervised"], steps=FOR_EVER, **SMALL) as job:
        job.await_size(2)
        job.await_step(20)
        with Strangers(job, RATE, seed) as strangers:
            strangers.await_begun(FEW)
            lose_worker(job, dice, strangers)
            mark = len(job.log())
            job.kill_coordinator()
            job.await_next_step()
            wait_until("both are back", lambda: job.said("all 2 workers of epoch [0-9]+ are back", mark))
            strangers.besiege(CROWD)
            lose_worker(job, dice, strangers)
            assert job.said(MET), "nobody was at the workers' doors when they met:\n" + job.log()
            strangers.crowd = 0
            strangers.await_begun(strangers.storm.begun + FEW)
            assert job.insiders(), "a frame of an absurd length was waited for"
            ports = strangers.all_attacked()
        job.stops()
    strangers.judge()
    job.judge()
    job.same_as_replay()
    print(told(strangers, ports) + f", the bits are those of {job.schedule()} without faults")


def hosts(programs, folder, seed, tls=False):
    """The same on two hosts with agents. A host whose agent was killed gets another, which finds the launcher past those who stay."""
    dice, flags = random.Random(seed), ["--host-cool-down", "300ms"] + (["--tls"] if tls else [])
    with Net(programs, 2) as net, Hosts(net, programs, folder, "run", ["-H", "h1:1,h2:1"], 1, 2, flags=flags, steps=FOR_EVER) as job:
        job.tls = tls
        job.await_size(2)
        with Strangers(job, RATE, seed) as strangers:
            strangers.await_begun(FEW)
            lose_worker(job, dice, strangers)
            strangers.besiege(CROWD)
            before = job.epoch()
            with strangers.change():
                net.kill_host(2)
                job.await_epoch_after(before)
                job.await_size(2)
            lose_worker(job, dice, strangers)
            strangers.crowd = 0
            strangers.await_begun(strangers.storm.begun + FEW)
            assert tls or job.insiders(), "a frame of an absurd length was waited for"
            ports = strangers.all_attacked()
        job.process.send_signal(signal.SIGTERM)
        job.ends()
        job.judge()
    strangers.judge()
    print(told(strangers, ports))


def encrypted(programs, folder, seed):
    hosts(programs, folder, seed, tls=True)


def nodes(programs, folder, seed):
    """Agents that somebody else started: the second finds the first past those who stay at its door, and the ranks each other."""
    steps = 200
    calm = Job(programs, folder + "/calm", steps)
    calm.finish()
    job = Nodes(programs, folder + "/attacked", steps)
    try:
        job.wait_until("rank 0 and its launcher's door", lambda: 0 in job.ranks() and job.ports())
        with Strangers(job, RATE, seed) as strangers:
            strangers.besiege(CROWD)
            job.node(1)
            job.wait_until("some steps", lambda: len(job.losses()) > 5)
            strangers.crowd = 0
            strangers.watch.weigh_anew()
            ports = strangers.all_attacked()
            job.finish()
    finally:
        job.stop()
    strangers.judge()
    assert job.losses() == calm.losses() and job.tensors() == calm.tensors(), "another result than that of the run that nobody attacked"
    print(told(strangers, ports))


CLAIMS = {claim.__name__: claim for claim in (elastic, hosts, encrypted, nodes)}
