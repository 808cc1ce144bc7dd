#!/usr/bin/env python3
"""Training steps between hosts that are network namespaces at a given rate: against their own limit, and against torch's DDP over gloo.

    sudo bench/hosts_step.py --hosts 2 --models cnn,resnet18 --rate 1000 --rounds 3

One rank a host. In turns, over the same link: cohort, torch's DDP (bench/baselines/torch_ddp.py), the same ranks without any synchronisation
(what a step computes), and an all-reduce of the model's gradients alone (what it communicates). A step cannot be shorter than the longer
of the last two; `over_limit` says how much longer it is. Ranks that wait for each other in every step cannot be faster than the slower one of each:
`lockstep_ms` is what the steps of the unsynchronised ranks come to that way, and `over_lockstep` how much longer ours are than that or the all-reduce. `exposed` is the share of our own steps
that lies after the backward of the rank that was slowest in each: what overlapping did not hide.
With another --sync (zero(stage=1), diloco(h=100)) it is compared with the ranks that do not synchronise (`of_unsynced`: their share of samples/s that
it keeps), and ZeRO 1 and 2 with themselves when parameters travel before a step ends (`waits`, engine.publish=wait; `times_waits`).
One JSON object a model. Needs root, for the namespaces (bench/hosts.py).
"""
import argparse
import json
import os
import secrets
import signal
import statistics
import subprocess
import sys
import tempfile
import types

import hosts

MODELS = {  # spec, data, samples of a rank, learning rate, steps before and in the measurement, bytes of gradients
    "mlp": ("mlp(in=784, hidden=512x512, out=10)", "fashion_mnist(split=train)", 64, 0.05, 20, 100, 669706 * 4),
    "cnn": ("cnn(in=1, size=28, classes=10)", "fashion_mnist(split=train)", 128, 0.05, 10, 60, 421642 * 4),
    "resnet18": ("resnet18(in=3, classes=10, stem=cifar)", "synthetic(shape=3x32x32, classes=10, samples=10000)", 16, 0.01, 2, 8, 11173962 * 4),
}
WHO = ["cohort", "torch-ddp", "unsynced", "all_reduce"]
DEFAULT_SYNC = "all_reduce(op=sum)"
LIMIT = 300  # seconds for one start
QUIET = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}


def chosen(o, model):
    row = list(MODELS[model])
    row[2] = o.batch or row[2]
    row[5] = o.steps or row[5]
    return row


def asked(o):
    if o.sync == DEFAULT_SYNC:
        return WHO
    return ["cohort", "unsynced", *(["waits"] if o.sync.startswith("zero(stage=1") or o.sync.startswith("zero(stage=2") else [])]


def in_each(o, spaces, command):
    """Every host has --cores of this machine to itself, as far as they go round: real hosts do not take each other's."""
    cores = sorted(os.sched_getaffinity(0))
    of = [",".join(str(cores[(h * o.cores + k) % len(cores)]) for k in range(o.cores)) for h in range(o.hosts)]
    return [["ip", "netns", "exec", space, "taskset", "-c", of[h], *command] for h, space in enumerate(spaces)]


def ours(o, spaces, model, who, secret, number):
    spec, data, batch, lr, warm, steps, _ = chosen(o, model)
    command = [os.path.join(o.programs, "cohort-worker"), "bench-step", "--implementation", who, "--model", spec, "--data", data, "--batch", batch,
               "--lr", lr, "--warm", warm, "--steps", steps, "--optimizer", o.optimizer]
    if who != "unsynced":
        command += ["--sync", o.sync]
    places = [dict(QUIET, COHORT_PLACE="torchrun", RANK=str(r), WORLD_SIZE=str(o.hosts), LOCAL_RANK="0", LOCAL_WORLD_SIZE="1", MASTER_ADDR="10.77.0.1",
                   MASTER_PORT=str(21000 + 2 * number), TORCHELASTIC_RUN_ID=f"bench{number}", COHORT_SECRET_FILE=secret)
              for r in range(o.hosts)]
    output = json.loads(hosts.run_ranks(in_each(o, spaces, command), LIMIT, places).strip().splitlines()[-1])
    return o.hosts * batch / output["samples_per_s"], o.hosts * batch / output["lockstep_samples_per_s"], output["exposed_share"]


def ddp(o, spaces, model, number):
    _, _, batch, lr, warm, steps, _ = chosen(o, model)
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "baselines", "torch_ddp.py")
    command = [o.python, "-W", "ignore", script, "--ranks", o.hosts, "--model", model, "--batch", batch, "--lr", lr, "--warm", warm, "--steps", steps]
    places = [dict(QUIET, RANK=str(r), WORLD_SIZE=str(o.hosts), MASTER_ADDR="10.77.0.1", MASTER_PORT=str(31000 + number), GLOO_SOCKET_IFNAME="eth0",
                   COHORT_BASELINE_PARENT=str(os.getpid())) for r in range(o.hosts)]
    output = json.loads(hosts.run_ranks(in_each(o, spaces, command), LIMIT, places, may_crash=True).strip().splitlines()[-1])
    return o.hosts * batch / output["samples_per_s"]


def all_reduce(o, spaces, model):
    wanted = types.SimpleNamespace(hosts=o.hosts, per_host=1, bench=os.path.join(o.programs, "hosts_bench"), bytes=MODELS[model][-1], rounds=6,
                                  buffers="allocate", streams=0)
    return statistics.median(hosts.measure(wanted, spaces, o.congestion, "auto", LIMIT)["seconds"])


def summary(taken):
    """Milliseconds of each, and how they compare."""
    middle = {who: statistics.median(of) for who, of in taken.items()}
    found = {f"{who}_ms": [round(1e3 * t, 2) for t in (middle[who], min(taken[who]), max(taken[who]))] for who in taken}
    found["of_unsynced"] = round(middle["unsynced"] / middle["cohort"], 3)
    if "waits" in taken:
        found["times_waits"] = round(middle["waits"] / middle["cohort"], 3)
    if "all_reduce" in taken:
        limit = max(middle["unsynced"], middle["all_reduce"])
        found["over_limit"] = round(middle["cohort"] / limit - 1, 3)
        found["over_lockstep"] = round(middle["cohort"] / max(middle["lockstep"], middle["all_reduce"]) - 1, 3)
        found["times_ddp"] = round(middle["torch-ddp"] / middle["cohort"], 3)
    return found


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = os.path.dirname(os.path.abspath(__file__))
    parse.add_argument("--hosts", type=int, default=2)
    parse.add_argument("--cores", type=int, default=1, help="of each host; one thread computes in any case, what is left carries bytes")
    parse.add_argument("--models", default="cnn,resnet18")
    parse.add_argument("--batch", type=int, default=0, help="samples of a rank; 0: 64 of the mlp, 128 of the cnn, 16 of resnet18")
    parse.add_argument("--steps", type=int, default=0, help="in the measurement; 0: 100 of the mlp, 60 of the cnn, 8 of resnet18; whole rounds of --sync")
    parse.add_argument("--sync", default=DEFAULT_SYNC, help="how our ranks train together")
    parse.add_argument("--optimizer", default="sgd", help="sgd, adam or adamw")
    parse.add_argument("--rate", type=float, default=1000, help="Mbit/s of every host, each way")
    parse.add_argument("--mtu", type=int, default=9000, help="bytes of a packet: all hosts send theirs through this machine's kernel, which costs by the packet")
    parse.add_argument("--rounds", type=int, default=3)
    parse.add_argument("--congestion", default="cubic", help="of our sockets, and in the namespaces")
    parse.add_argument("--programs", default=os.path.join(here, "..", "build", "bin"))
    parse.add_argument("--require", action="store_true", help="fail unless a step is at most 10 %% over lockstep and 1.3 times as fast as DDP")
    parse.add_argument("--python", default=sys.executable, help="one that has torch")
    o = parse.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with hosts.network(o.hosts, o.rate, o.mtu) as spaces, tempfile.NamedTemporaryFile("w", suffix=".secret") as secret:
        for space in spaces:
            try:
                hosts.sh("ip", "netns", "exec", space, "sysctl", "-qw", f"net.ipv4.tcp_congestion_control={o.congestion}")
            except subprocess.CalledProcessError:  # both baselines are to have the same
                sys.exit(f"this kernel lets no namespace choose {o.congestion}: add it to the sysctl net.ipv4.tcp_allowed_congestion_control, or try another "
                         "--congestion, the system's for one")
        secret.write(secrets.token_hex(32))
        secret.flush()
        number = 0
        for model in o.models.split(","):
            taken, exposed = {who: [] for who in [*asked(o), "lockstep"]}, []
            for round_ in range(o.rounds):
                turn = round_ % len(asked(o))
                for who in asked(o)[turn:] + asked(o)[:turn]:
                    number += 1
                    if who in ("all_reduce", "torch-ddp"):
                        taken[who].append(all_reduce(o, spaces, model) if who == "all_reduce" else ddp(o, spaces, model, number))
                        continue
                    took, lockstep, share = ours(o, spaces, model, who, secret.name, number)
                    taken[who].append(took)
                    exposed += [share] if who == "cohort" else []
                    taken["lockstep"] += [lockstep] if who == "unsynced" else []
            row = {"model": model, "sync": o.sync, "hosts": o.hosts, "cores": o.cores, "batch": chosen(o, model)[2], "rate_mbit": o.rate, "mtu": o.mtu,
                   "congestion": o.congestion, "rounds": o.rounds, **summary(taken), "exposed": round(statistics.median(exposed), 3)}
            print(json.dumps(row), flush=True)
            if o.require and o.sync == DEFAULT_SYNC and (row["over_lockstep"] > 0.1 or row["times_ddp"] < 1.3):
                sys.exit(f"{model}: a mark was missed")


if __name__ == "__main__":
    main()
