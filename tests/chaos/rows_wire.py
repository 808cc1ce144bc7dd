"""11: bits flipped, bytes lost or duplicated and connections cut between two ranks, by a proxy (proxy.py), with checksums and under TLS. The job ends
with the losses and bits of an undisturbed one, or it fails with a reason: never a wrong sum."""
import json
import os
import subprocess
import sys
import tempfile
import time

from runs import LIMIT, Runs
from suites import run_suite

HERE = os.path.dirname(os.path.abspath(__file__))
FAULTS = ("flip", "drop", "twice", "cut")
GUARDS = {"checksums": {"COHORT_CHECKSUMS": "always"}, "tls": {"COHORT_TLS": "true"}}
SETS = {"steps": 150, "epochs": 0, "checkpoint__every_epochs": 0, "data__test": ""}
BYTES = 4_000_000  # of a connection in these steps, roughly


def through(runs, name, plan, env):
    with open(runs.path(name + ".plan"), "w") as file:
        json.dump(plan, file)
    out = runs.path(name + ".out")
    done = subprocess.run(["unshare", "-rn", sys.executable, os.path.join(HERE, "proxy.py"), file.name, out] + runs.command(name, n=2, **SETS),
                          capture_output=True, text=True, timeout=LIMIT, env={**runs.env, "COHORT_TRANSPORT": "tcp", **env}, cwd=runs.folder)
    with open(out) as file:
        return done, json.load(file)


def row11(chaos, tries):
    with tempfile.TemporaryDirectory(prefix="cohort-chaos-") as folder:
        runs = Runs(chaos.programs, folder)
        for guard, env in GUARDS.items():  # a transparent proxy changes nothing, so what happens below is caused by the fault
            done, did = through(runs, guard, {"fault": "none", "after": 0, "seed": 0}, env)
            assert done.returncode == 0 and did["bytes"] > 10**6, f"{did}\n{done.stdout}{done.stderr}"
            assert runs.tensors(guard) == runs.tensors("checksums")
            GUARD_BYTES[guard] = did["bytes"] // 2

        def body(i, fault, guard):
            plan = {"fault": fault, "after": chaos.rng.randrange(20_000, int(GUARD_BYTES[guard] * 0.9)), "seed": chaos.rng.randrange(10**9)}
            begin = time.monotonic()
            done, did = through(runs, f"try{i}", plan, GUARDS[guard])
            assert did["faults"] == 1, f"no fault was injected: {did}"
            text = done.stdout + done.stderr
            if done.returncode == 0:
                assert runs.tensors(f"try{i}") == runs.tensors("checksums"), "the job succeeded with other bits"
            else:
                assert "rank 0" in text and "rank 1" in text and any(word in text for word in ("checksum", "corrupt", "tls", "TLS", "closed", "lost", "frame")), text
                assert done.returncode < 128, f"status {done.returncode}: {text}"
            losses = dict(runs.losses("checksums"))
            assert all(losses[step] == loss for step, loss in runs.losses(f"try{i}")), "a step with a wrong sum was counted"
            return {"detect": time.monotonic() - begin, "ended": done.returncode}

        for i in range(tries):
            fault, guard = FAULTS[i % 4], list(GUARDS)[i // 4 % 2]
            if chaos.in_time():
                chaos.attempt(f"11 {fault}, {guard}", lambda: body(i, fault, guard))
    run_suite(chaos, "net_test", "Corruption.*:TcpTransport.Refuses*:Tls.AnAltered*:ControlFrameReader.*:FrameHeader.*:BlockTrailer.*")


GUARD_BYTES = {}
row11.most = 60
ROWS = {"11": row11}
