"""Tests with real ranks. A launch costs an import of torch per rank, so all claims that pytest collected, of all files, share one launch
per number of ranks:

    from launch import ranks
    setup_rank, teardown_rank = hvd.init, hvd.shutdown     # optional: around the claims of this file, and after one that failed

    @ranks(1, 2, 4)                                        # the body runs on every rank, the test passes when it passes on all
    def test_sum():
        assert hvd.allreduce(torch.ones(3), op=hvd.Sum).tolist() == [hvd.size()] * 3

    @ranks(2, alone=True, env={"HOROVOD_TIMELINE": "/tmp/t"})    # a launch of its own

Ranks step from claim to claim together (by files in a scratch folder, whatever state the job is in); after a claim that failed
somewhere, every rank tears down and sets up. A claim that does not end in its time ends the launch, and the rest gets a fresh one.

    done = launch(3, script_text, "argument", timeout=30, env={...})     # any script: returncode, stdout, stderr

COHORT_BINARY is the launcher (build/bin/cohort), PYTHONPATH has the package; both are set by ctest, and by conftest.py otherwise.
"""
import faulthandler
import functools
import importlib
import itertools
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
SLOWDOWN = float(os.environ.get("COHORT_TEST_SLOWDOWN", "1"))  # limits in seconds are those of an idle machine
CLAIM_SECONDS = 60  # longest a claim may take when as many tests run beside it as `make test` starts on an idle machine


def environment(extra=None):
    paths = [str(BUILD / "python"), str(pathlib.Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1", **(extra or {})}


def stretched(seconds):
    """A limit that is wide enough at 3, the factor of an idle machine (tools/machine.py), on this one."""
    return seconds * max(1.0, SLOWDOWN / 3)


def launch(count, script, *arguments, timeout=60, env=None, options=(), python=sys.executable):
    """Runs Python source (or the file of that path) at `count` ranks; returns the CompletedProcess."""
    timeout = stretched(timeout)
    if isinstance(script, pathlib.Path):
        program = [str(script)]
    else:
        program = ["-c", script]
    command = [COHORT, "run", "-n", str(count), "--timeout", f"{timeout:g}s", "--no-prefix", *options, "--", str(python), *program]
    return subprocess.run([*command, *map(str, arguments)], env=environment(env), text=True, capture_output=True, timeout=timeout + 15)


def ranks(*counts, alone=False, env=None, seconds=CLAIM_SECONDS, long=()):
    """Makes a test of a body for every rank; see the head of this file. long: counts that `make test` leaves out."""
    counts = (*counts, *(pytest.param(count, marks=pytest.mark.long) for count in long))

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
_planned = {}  # count: what the ranks of a launch run, [(module, name)]
_outcomes = {}  # (module, count, name): texts of what failed


def plan(tests):
    """Called once with what was collected: pairs of a test function and its number of ranks."""
    for test, count in tests:
        if not test.claim["alone"]:
            _planned.setdefault(count, []).append((sys.modules[test.__module__], test.claim["body"].__name__))


def outcome_of(body, count):
    module = sys.modules[body.__module__]
    key = (module, count, body.__name__)
    claims = [(module, body.__name__)] if body.claim["alone"] else _planned[count]
    while key not in _outcomes:
        left = [claim for claim in claims if (claim[0], count, claim[1]) not in _outcomes]
        results = run_claims(left, count, body.claim["env"])
        _outcomes.update({(where, count, name): failures for (where, name), failures in results.items()})
    return _outcomes[key]


def run_claims(claims, count, env):
    """{claim: failures} of those that ran; at least the first."""
    budget = sum(getattr(module, name).claim["seconds"] for module, name in claims) + 60
    with tempfile.TemporaryDirectory(prefix="cohort-claims-") as folder:
        words = [f"{module.__file__}:{name}" for module, name in claims]
        done = launch(count, pathlib.Path(__file__), folder, *words, timeout=budget, env=env)
        results = {}
        for module, name in claims:
            title = f"{module.__name__}.{name}"
            reports = [pathlib.Path(folder, f"{title}.{r}") for r in range(count)]
            if all(report.exists() for report in reports):
                texts = [report.read_text() for report in reports]
                results[module, name] = [f"rank {r} of {count}:\n{text}" for r, text in enumerate(texts) if text]
            elif any(report.exists() for report in reports):
                results[module, name] = [f"not every rank came to an end in {title}\n{ending(done)}"]
        for module, name in claims[:1]:
            results.setdefault((module, name), [f"{name} did not report at all\n{ending(done)}"])
        return results


def ending(done):
    return f"exit status {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-5000:]}"


# ---- on a rank
def report(folder, name, me, text):
    path = pathlib.Path(folder, f"{name}.{me}")
    path.with_suffix(f".{me}.new").write_text(text)
    path.with_suffix(f".{me}.new").rename(path)


def wait_for_all(folder, name, count, seconds):
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


def run_file(file, names, folder, me, count):
    module = importlib.import_module(pathlib.Path(file).stem)
    nothing = lambda: None
    setup, teardown = getattr(module, "setup_rank", nothing), getattr(module, "teardown_rank", nothing)
    setup()
    for name in names:
        title, claim = f"{module.__name__}.{name}", getattr(module, name).claim
        text = ""
        try:
            claim["body"]()
        except BaseException:
            text = traceback.format_exc()
        report(folder, title, me, text)
        if not wait_for_all(folder, title, count, stretched(claim["seconds"])):
            teardown()
            report(folder, f"{title}.again", me, "")
            wait_for_all(folder, f"{title}.again", count, stretched(claim["seconds"]))
            setup()
    teardown()


def main(folder, *claims):
    faulthandler.enable()
    me, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    for file, words in itertools.groupby((claim.rsplit(":", 1) for claim in claims), key=lambda words: words[0]):
        sys.path.insert(0, str(pathlib.Path(file).parent))
        run_file(file, [name for _, name in words], folder, me, count)


if __name__ == "__main__":
    main(*sys.argv[1:])
