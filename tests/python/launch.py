"""Tests with real ranks. A launch costs an import of torch per rank, so all claims of a file share one launch per number of ranks:

    from launch import ranks
    setup_rank, teardown_rank = hvd.init, hvd.shutdown     # optional: before the first claim, and around one that failed

    @ranks(1, 2, 4)                                        # the body runs on every rank, the test passes when it passes on all
    def test_sum():
        assert hvd.allreduce(torch.ones(3), op=hvd.Sum).tolist() == [hvd.size()] * 3

    @ranks(2, alone=True, env={"HOROVOD_TIMELINE": "/tmp/t"})    # a launch of its own

Ranks step from claim to claim together (by files in a scratch folder, whatever state the engine is in); after a claim that failed
somewhere, every rank tears down and sets up. A claim that does not end in its time ends the launch, and the rest gets a fresh one.

    done = launch(3, script_text, "argument", timeout=30, env={...})     # any script: returncode, stdout, stderr

COHORT_BINARY is the launcher (build/bin/cohort), PYTHONPATH has the package; both are set by ctest, and by conftest.py otherwise.
"""
import faulthandler
import functools
import importlib
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import traceback

import pytest

BUILD = pathlib.Path(os.environ.get("COHORT_BUILD", pathlib.Path(__file__).resolve().parents[2] / "build"))
COHORT = os.environ.get("COHORT_BINARY", str(BUILD / "bin" / "cohort"))
CLAIM_SECONDS = 60  # longest a claim may take on a busy machine


def environment(extra=None):
    paths = [str(BUILD / "python"), str(pathlib.Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1", **(extra or {})}


def launch(count, script, *arguments, timeout=60, env=None, options=()):
    """Runs Python source (or the file of that path) at `count` ranks; returns the CompletedProcess."""
    if isinstance(script, pathlib.Path):
        program = [str(script)]
    else:
        program = ["-c", script]
    command = [COHORT, "run", "-n", str(count), "--timeout", f"{timeout}s", "--no-prefix", *options, "--", sys.executable, *program]
    return subprocess.run([*command, *map(str, arguments)], env=environment(env), text=True, capture_output=True, timeout=timeout + 15)


def ranks(*counts, alone=False, env=None, seconds=CLAIM_SECONDS):
    """Makes a test of a body for every rank; see the head of this file."""

    def decorate(body):
        @pytest.mark.parametrize("count", counts, ids=lambda n: f"{n}ranks")
        @functools.wraps(body)
        def test(count):
            failures = outcome_of(body, count)
            if failures:
                pytest.fail("\n".join(failures), pytrace=False)

        del test.__wrapped__  # pytest would look at the body's own arguments
        test.claim = {"body": body, "counts": counts, "alone": alone, "env": env or {}, "seconds": seconds}
        body.claim = test.claim
        return test

    return decorate


# ---- in pytest's process
_outcomes = {}  # (module, count, name): texts of what failed


def claims_of(module, count):
    found = [value.claim for value in vars(module).values() if hasattr(value, "claim")]
    return [claim for claim in found if count in claim["counts"]]


def outcome_of(body, count):
    module = sys.modules[body.__module__]
    key = (module.__name__, count, body.__name__)
    if key in _outcomes:
        return _outcomes[key]
    if body.claim["alone"]:
        names = [body.__name__]
    else:
        names = [c["body"].__name__ for c in claims_of(module, count) if not c["alone"]]
    names = [name for name in names if (module.__name__, count, name) not in _outcomes]
    while names:
        results = run_claims(module, count, names, body.claim["env"])
        _outcomes.update({(module.__name__, count, name): failures for name, failures in results.items()})
        names = [name for name in names if name not in results]
    return _outcomes[key]


def run_claims(module, count, names, env):
    """{name: failures} of those that ran; at least the first."""
    budget = sum(getattr(module, name).claim["seconds"] for name in names) + 60
    with tempfile.TemporaryDirectory(prefix="cohort-claims-") as folder:
        done = launch(count, pathlib.Path(__file__), module.__file__, folder, *names, timeout=budget, env=env)
        results = {}
        for name in names:
            reports = [pathlib.Path(folder, f"{name}.{r}") for r in range(count)]
            if not all(report.exists() for report in reports) and any(report.exists() for report in reports):
                results[name] = [f"not every rank came to an end in {name}\n{ending(done)}"]
            elif all(report.exists() for report in reports):
                texts = [report.read_text() for report in reports]
                results[name] = [f"rank {r} of {count}:\n{text}" for r, text in enumerate(texts) if text]
        for name in names[:1]:
            results.setdefault(name, [f"{name} did not report at all\n{ending(done)}"])
        return results


def ending(done):
    return f"exit status {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-5000:]}"


# ---- on a rank
def report(folder, name, me, text):
    path = pathlib.Path(folder, f"{name}.{me}")
    path.with_suffix(f".{me}.new").write_text(text)
    path.with_suffix(f".{me}.new").rename(path)


def meet(folder, name, count, seconds):
    """True when this claim failed nowhere. Ends the process when a rank does not come: there is nothing left to compare."""
    until = time.monotonic() + seconds
    paths = [pathlib.Path(folder, f"{name}.{r}") for r in range(count)]
    while not all(path.exists() for path in paths):
        if time.monotonic() > until:
            late = [r for r, path in enumerate(paths) if not path.exists()]
            print(f"{name}: ranks {late} have not come to its end", file=sys.stderr, flush=True)
            os._exit(3)
        time.sleep(0.001)
    return all(path.stat().st_size == 0 for path in paths)


def main(file, folder, *names):
    faulthandler.enable()
    me, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    sys.path.insert(0, str(pathlib.Path(file).parent))
    module = importlib.import_module(pathlib.Path(file).stem)
    nothing = lambda: None
    setup, teardown = getattr(module, "setup_rank", nothing), getattr(module, "teardown_rank", nothing)
    setup()
    for name in names:
        claim = getattr(module, name).claim
        text = ""
        try:
            claim["body"]()
        except BaseException:
            text = traceback.format_exc()
        report(folder, name, me, text)
        if not meet(folder, name, count, claim["seconds"]):
            teardown()
            report(folder, f"{name}.again", me, "")
            meet(folder, f"{name}.again", count, claim["seconds"])
            setup()
    teardown()


if __name__ == "__main__":
    main(*sys.argv[1:])
