"""Claims about parameter servers, in whole runs: for check.py."""
import os
import re
import signal

from drifting import evaluations, files
from interrupted import caught
from runs import FORGETFUL, STEPS_PER_EPOCH, workers


def served(runs):
    """Under bulk synchronous clocks servers end with the model of all_reduce, bit for bit; under others they learn, and no read is staler than
    the clock says."""
    sets = {"optimizer": "adam(lr=1e-3)", "epochs": 2}
    runs.train("together", n=3, sync="all_reduce(op=average)", **sets)
    expected = files(runs, "together")["model.safetensors"]
    for i, sync in enumerate(("ps", "ps(clock=ssp(0))", "ps(servers=1)")):
        runs.train(f"exact{i}", n=3, sync=sync, **sets)
        assert files(runs, f"exact{i}")["model.safetensors"] == expected, f"{sync}: another model than that of all_reduce"
    for i, (sync, most) in enumerate((("ps(clock=ssp(2))", 2), ("ps(clock=ssp_push(1))", 1), ("ps(clock=tap)", None))):
        runs.train(f"loose{i}", n=3, sync=sync, epochs=4)
        tested = evaluations(runs, f"loose{i}")
        assert len(tested) == 4 and tested[-1] < 0.8 * tested[0], f"{sync} does not learn: {tested}"
        stale = [m["most_stale"] for m in runs.metrics(f"loose{i}") if "most_stale" in m]
        assert stale and (most is None or max(stale) <= most), f"{sync}: reads were {stale} steps behind"


def served_resumed(runs):
    """kill -9: started again the run ends with the bits of one never killed, as servers begin with what was saved; another number of ranks goes
    on, too."""
    sets = {**FORGETFUL, "optimizer": "adam(lr=1e-3)", "sync": "ps"}
    runs.train("whole", **sets)

    def in_the_middle():
        steps = [int(path[-8:]) for path in runs.checkpoints("killed")]
        return steps and steps[-1] % STEPS_PER_EPOCH and len(runs.metrics("killed")) > STEPS_PER_EPOCH

    caught(runs, "killed", in_the_middle, lambda job: os.kill(workers(job.pid)[1], signal.SIGKILL), **sets)
    runs.call(["cp", "-r", runs.path("killed"), runs.path("three")])
    again = runs.train("killed", **sets)
    assert re.search(r"goes on after update (\d+)", again.stdout), again.stdout
    assert files(runs, "killed")["model.safetensors"] == files(runs, "whole")["model.safetensors"], "resumed with other bits"
    other = runs.train("three", n=3, **sets)
    assert re.search(r"goes on after update (\d+)", other.stdout), other.stdout
