#!/usr/bin/env python3
"""Runs the commands of a document: check.py <source folder> <folder of programs> <page> [Python]. Exit status 0 when all of them work.

They run in a folder that has what the source folder has after `make build` and `make python`, as far as commands name it: examples, build.
Python: the one that has torch; scripts run in it."""
import os
import re
import subprocess
import sys
import tempfile

SOURCE, PROGRAMS, PAGE = sys.argv[1:4]
PYTHON = sys.argv[4] if len(sys.argv) > 4 else ""
BUILD = os.path.dirname(os.path.abspath(PROGRAMS))
LIMIT = max(200, 70 * float(os.environ.get("COHORT_TEST_SLOWDOWN", "1")))  # seconds for one command
SHORT = " --rounds 1 --seconds 0.005 --no-void-check"  # what a reader waits for, a test need not


def commands(text):
    kind = None  # of the block we are in: "" and "sh" hold commands
    for line in text.replace("\\\n", " ").splitlines():
        if line.startswith("```"):
            kind = None if kind is not None else line[3:].strip()
            continue
        line = re.sub(r"\s+# .*", "", line).strip()
        if kind in ("", "sh") and re.match(r"(cohort|make|cmake|cp|seq) ", line):
            yield line


def files(text):
    """A yaml block that starts with `# name.yaml` is that file."""
    for name, body in re.findall(r"^```yaml\n# (\S+\.yaml)\n(.*?)^```", text, re.M | re.S):
        yield name, body


def work(command, folder, env):
    if command.startswith("make install "):  # what it does after the build
        command = f"cmake --install {BUILD} --prefix {command.split('PREFIX=')[1]} >install.log"
    elif command.startswith("make "):
        target = command.split()[1]
        makefile = open(f"{SOURCE}/Makefile").read()
        jobs = re.search(r"^JOB_NAMES := (.*)", makefile, re.M)[1].split()  # one rule has them all
        assert re.search(rf"^{target}:", makefile, re.M) or target in [f"job-{job}" for job in jobs], f"no target for: {command}"
        return
    if command.startswith("cohort bench step"):
        command += " --rounds 1 --steps 4 --warm 1 --no-void-check"
    elif command.startswith("cohort bench") and not command.startswith(("cohort bench memory", "cohort bench codec")):
        command += SHORT
    done = subprocess.run(command, shell=True, cwd=folder, env=env, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}"


def main():
    text = open(f"{SOURCE}/{PAGE}").read()
    found = list(commands(text))
    assert found, f"{PAGE} has no command; is its mark-up still understood here?"
    paths = [PROGRAMS, *([os.path.dirname(PYTHON)] if os.path.isabs(PYTHON) else []), os.environ["PATH"]]
    env = dict(os.environ, PATH=":".join(paths), PYTHONPATH=f"{BUILD}/python")
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(f"{SOURCE}/examples", f"{folder}/examples")
        os.symlink(BUILD, f"{folder}/build")
        with open(f"{folder}/train", "w") as train:
            train.write("#!/bin/sh\ntest -n \"$RANK\" && test -n \"$HOROVOD_RANK\" && echo trained\n")
        os.chmod(f"{folder}/train", 0o755)
        with open(f"{folder}/train.py", "w") as train:
            train.write("import os\nassert os.environ['WORLD_SIZE'] == '2'\n")
        plugin = os.path.join(PROGRAMS, "../examples/libmine.so")
        if "libmine.so" in text:
            os.symlink(os.path.realpath(plugin), f"{folder}/libmine.so")
        for name, body in files(text):
            with open(f"{folder}/{name}", "w") as file:
                file.write(body)
        for command in found:
            work(command, folder, env)
            print("works:", command)


main()
