#!/usr/bin/env python3
"""clang-tidy on the torch-free modules (a torch file takes half a minute each). A file that passed is looked at again only when it, a header
of ours that it includes, or .clang-tidy has changed: build/tidy/ remembers. The first run takes a quarter of an hour on two cores."""
import concurrent.futures
import functools
import hashlib
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TORCH = ("cohort/nn/", "cohort/sync/", "cohort/engine/", "cohort/train/loop/", "cohort/plan/forecast/", "cohort/ddp/", "cohort/cli/worker/", "cohort/python/",
         "cohort/collective/backends/gloo", "cohort/collective/backends/nccl", "cohort/collective/backends/torch_backend")
INCLUDE = re.compile(rb'^\s*#\s*include\s+"(cohort/[^"]+)"', re.M)


def sources():
    for path in sorted((ROOT / "cohort").rglob("*.cc")):
        name = path.relative_to(ROOT).as_posix()
        if not name.endswith("_test.cc") and not name.startswith(TORCH):
            yield name


@functools.lru_cache(maxsize=None)
def text_of(name):
    path = ROOT / name
    return path.read_bytes() if path.exists() else b""  # a generated header: its generator's input is a source too


def key(name):
    """Of everything of ours that the compiler reads for this file."""
    seen, todo = set(), [name]
    while todo:
        at = todo.pop()
        if at not in seen:
            seen.add(at)
            todo += [match.decode() for match in INCLUDE.findall(text_of(at))]
    digest = hashlib.sha256(text_of(".clang-tidy"))
    for each in sorted(seen):
        digest.update(each.encode() + b"\0" + text_of(each))
    return digest.hexdigest()


def tidy(name):
    done = subprocess.run(["clang-tidy-14", "-p", "build", "--quiet", "--extra-arg=-Wno-unknown-warning-option", name], cwd=ROOT,
                          capture_output=True, text=True, timeout=600)
    return done.returncode, done.stdout


def main():
    stamps = ROOT / "build" / "tidy"
    stamps.mkdir(parents=True, exist_ok=True)
    keys = {name: key(name) for name in sources()}
    stamp = {name: stamps / name.replace("/", "+") for name in keys}
    todo = [name for name in keys if not stamp[name].exists() or stamp[name].read_text() != keys[name]]
    print(f"clang-tidy: {len(todo)} of {len(keys)} files have changed since they passed", flush=True)
    failed = []
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        running = {pool.submit(tidy, name): name for name in todo}
        for number, done in enumerate(concurrent.futures.as_completed(running), 1):
            name = running[done]
            code, found = done.result()
            if code == 0:
                stamp[name].write_text(keys[name])
            else:
                failed.append(name)
                print(found, flush=True)
            if sys.stdout.isatty() or number % 25 == 0 or number == len(todo):
                print(f"clang-tidy: {number} of {len(todo)}, {len(failed)} with findings", flush=True)
    if failed:
        sys.exit("clang-tidy found something in:\n  " + "\n  ".join(sorted(failed)))


if __name__ == "__main__":
    main()
