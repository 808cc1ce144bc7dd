"""Claims about runs of `cohort train` on a mesh of processes: for check.py."""
import os
import re
import shutil
import signal

from interrupted import caught
from runs import workers

MESH = {
    "model": "tp_mlp(in=784, hidden=64, out=10)",
    "data__train": "synthetic(samples=640)",
    "data__test": "synthetic(samples=101, split=test)",
    "optimizer": "adamw(lr=1e-3)",
    "engine__clip_norm": 1,
    "epochs": 24,
    "checkpoint__every_steps": 3,
    "checkpoint__every_epochs": 0,
}


def near(runs, name, other):
    a, b = runs.losses(name), runs.losses(other)
    assert len(a) == len(b) > 0, (len(a), len(b))
    for (step, x), (same_step, y) in zip(a, b):
        assert step == same_step and abs(x - y) < 1e-4, f"{name} and {other}, step {step}: {x} and {y}"


def mesh(runs):
    """2 x 2 ranks learn what one rank with the whole batch learns, with the same bits run after run. Killed, they name the rank; what they
    saved goes on in 2 x 2 with the bits of a run that was never stopped, and on one rank and four tp ranks to rounding."""
    grid = {**MESH, "mesh": "dp=2,tp=2", "data__batch": 32}
    runs.train("whole", n=4, **grid)
    runs.train("again", n=4, **grid)
    assert runs.losses("again") == runs.losses("whole"), "other bits"
    runs.train("one", n=1, **MESH, data__batch=64)
    near(runs, "whole", "one")

    status, _ = caught(runs, "killed", lambda: len(runs.checkpoints("killed")) > 1,
                       lambda job: os.kill(workers(job.pid)[3], signal.SIGKILL), n=4, **grid)
    assert status == 128 + signal.SIGKILL and "rank 3 failed first: killed by SIGKILL" in runs.log("killed"), runs.log("killed")
    for other in ("alone", "wide"):
        shutil.copytree(runs.path("killed"), runs.path(other))
    again = runs.train("killed", n=4, **grid)
    assert int(re.search(r"goes on after update (\d+)", again.stdout)[1]) > 0
    assert runs.losses("killed") == runs.losses("whole"), "resumed with other bits than the run that never stopped"
    runs.train("alone", n=1, **MESH, data__batch=64)
    runs.train("wide", n=4, **MESH, mesh="tp=4", data__batch=64)
    near(runs, "alone", "one")
    near(runs, "wide", "one")
    score = runs.call([runs.cohort, "predict", runs.path("killed"), "--data", MESH["data__test"]]).stdout
    assert "accuracy" in score, score
    for how, why in (({"n": 3}, "mesh 'dp=2,tp=2' is of 4 ranks"), ({"n": 4, "model": "mlp"}, "no layer that tp ranks can share")):
        done = runs.train("bad", status=2, **{**grid, **how})
        assert why in done.stderr and not os.path.exists(runs.path("bad")), done.stderr
