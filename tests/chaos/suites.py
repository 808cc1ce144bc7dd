"""Rows that existing tests already prove: their programs, run here, each case a try."""
import json
import os
import subprocess
import sys
import tempfile
import time

LIMIT = 300
TESTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")


def run_suite(chaos, program, cases, seconds=None):
    """Every test of a GoogleTest program that matches; seconds: how long one may take. That none is found is a failure."""
    if not chaos.in_time() or not chaos.suites:
        return
    with tempfile.TemporaryDirectory(prefix="cohort-chaos-") as folder:
        out = os.path.join(folder, "out.json")
        done = subprocess.run([os.path.join(chaos.programs, program), f"--gtest_filter={cases}", f"--gtest_output=json:{out}", "--gtest_color=no"],
                              capture_output=True, text=True, timeout=chaos.limit(LIMIT), cwd=folder)
        found = []
        if os.path.exists(out):
            with open(out) as file:
                found = [case for suite in json.load(file)["testsuites"] for case in suite["testsuite"] if case["status"] == "RUN"]
    for case in found:
        name, took, why = f"{chaos.row} {case['classname']}.{case['name']}", float(case["time"].rstrip("s")), ""
        if case.get("failures"):
            why = str(case["failures"])
        elif seconds and took > chaos.limit(seconds):
            why = f"took {took} s, not {seconds}"
        chaos.write([chaos.tried(name, not why, recover=took, why=why, cases=int(case.get("kills", 1)))])
    failed = sum(bool(case.get("failures")) for case in found)
    if not found or (done.returncode != 0 and not failed):
        chaos.write([chaos.tried(f"{chaos.row} {program} {cases}", False, why=f"ended with {done.returncode}, {len(found)} tests: {done.stdout[-1500:]}{done.stderr[-500:]}")])
    chaos.say(f"{program} {cases}: {len(found)} cases, {failed} failed")


def run_claim(chaos, script, claim, env=None, seconds=LIMIT):
    """One claim of a script of tests/, a process of its own: a try."""
    def body():
        begin = time.monotonic()
        done = subprocess.run([sys.executable, os.path.join(TESTS, script), chaos.programs, claim], capture_output=True, text=True,
                              timeout=chaos.limit(seconds), env={**os.environ, **(env or {})})
        assert done.returncode == 0, done.stdout[-1500:] + done.stderr[-2500:]
        return {"recover": time.monotonic() - begin}
    if chaos.in_time() and chaos.suites:
        chaos.attempt(f"{chaos.row} {os.path.dirname(script)}: {claim}", body)


def run_python(chaos, file):
    """A file of the Python package's tests, under the Python that has torch: a try."""
    build = os.path.dirname(chaos.programs)

    def body():
        with open(os.path.join(build, "python_path")) as path:
            python = path.read().strip()
        done = subprocess.run([python, "-m", "pytest", "-q", "-p", "no:cacheprovider", os.path.join(TESTS, "python", file)], capture_output=True, text=True,
                              timeout=chaos.limit(LIMIT), env={**os.environ, "COHORT_BUILD": build, "COHORT_BINARY": os.path.join(chaos.programs, "cohort"),
                                                               "PYTHONPATH": os.path.join(build, "python") + ":" + os.path.join(TESTS, "python")})
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-500:]
    if chaos.in_time() and chaos.suites:
        chaos.attempt(f"{chaos.row} {file}", body)


def replay_corpus(chaos, *names):
    """Inputs of fuzzers: each decoder is run on its own corpus, and crashes on none."""
    for name in names if chaos.suites else ():
        def body(name=name):
            done = subprocess.run([os.path.join(chaos.programs, name + "_fuzz"), os.path.join(TESTS, "..", "fuzz", "corpus", name)],
                                  capture_output=True, text=True, timeout=chaos.limit(LIMIT))
            assert done.returncode == 0, done.stdout[-500:] + done.stderr[-1500:]
        chaos.attempt(f"{chaos.row} corpus of {name}", body)
