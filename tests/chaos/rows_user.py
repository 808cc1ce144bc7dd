"""Programs that fail by themselves: 5 a rank runs out of memory, crashes, throws or exits; 17 a loss that is not finite on one rank; 19 a rank that
ends before the others."""
import os
import re
import signal
import subprocess
import time

from suites import run_claim, run_suite

LIMIT = max(60, 20 * float(os.environ.get("COHORT_TEST_SLOWDOWN", "1")))
NAMED = 1.0     # seconds until the job has ended and logged why
RANKS = 4
# What the rank does: its cause in the last lines of output, exit statuses of the launcher. Without memory any thread may throw, and where the
# exception is not caught the program is aborted.
CAUSES = {"memory": ("bad_alloc", {1, 128 + signal.SIGABRT}), "segv": ("SIGSEGV", {128 + signal.SIGSEGV}), "throw": ("user code threw this", {1}),
          "exit": ("exit status 7", {7})}


def watched(words, env=None):
    """Runs a job; returns [(seconds, line)] of its output, and its exit status."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("COHORT_")}
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**clean, **(env or {})})
    lines = []
    for line in process.stdout:
        lines.append((time.monotonic(), line.rstrip("\n")))
    return lines, process.wait(LIMIT)


def fail_of(chaos, how, victim, transport):
    """(lines, status, seconds until the launcher reported the failure). Every other rank must have named the victim."""
    lines, status = watched(["timeout", str(LIMIT), os.path.join(chaos.programs, "cohort"), "run", "-n", str(RANKS),
                             os.path.join(chaos.programs, "launch_rank"), "fails", str(victim), how], {"COHORT_TRANSPORT": transport})
    text = "\n".join(line for _, line in lines)
    begin = next((at for at, line in lines if f"rank {victim}: now" in line), None)
    reported = next((at for at, line in lines if "failed first" in line), None)
    assert begin and reported, text
    for rank in set(range(RANKS)) - {victim}:
        said = [line for _, line in lines if line.startswith(f"[{rank}]") and " on rank " in line]
        assert said and all(re.search(rf"rank {victim} (at \S+ )?(left|died|aborted|closed)", line) for line in said), f"rank {rank} does not name rank {victim}:\n{text}"
    assert re.search(rf"rank {victim}\b", "\n".join(line for _, line in lines[-4:])), f"rank {victim} is not named at the end:\n{text}"
    return lines, status, reported - begin


def row5(chaos, tries):
    def body(how, victim, transport):
        words, expected = CAUSES[how]
        lines, status, named = fail_of(chaos, how, victim, transport)
        text = "\n".join(line for _, line in lines)
        assert status in expected, f"exit status {status}, not one of {expected}:\n{text}"
        tail = "\n".join(line for _, line in lines[-6:])
        assert words in tail and f"rank {victim} failed first" in tail, f"'{words}' of rank {victim} is not at the end of the output:\n{text}"
        assert named <= chaos.limit(NAMED), f"named after {named:.2f} s"
        return {"detect": named}
    for i in range(max(tries, len(CAUSES))):
        how, victim, transport = list(CAUSES)[i % len(CAUSES)], chaos.rng.randrange(RANKS), chaos.rng.choice(["shm", "tcp"])
        if chaos.in_time():
            chaos.attempt(f"5 {how} on rank {victim}, {transport}", lambda: body(how, victim, transport))
    run_suite(chaos, "laws_test", "ProcessLaws.ARankKilled*")  # without a launcher: every rank names it by itself


def row17(chaos, tries):
    """One rank's loss is infinite or NaN at a random step: all skip that step, continue, and end with the same finite bits."""
    def body(step, victim, what):
        lines, status = watched(["timeout", str(LIMIT), os.path.join(chaos.programs, "cohort"), "run", "-n", str(RANKS),
                                 os.path.join(chaos.programs, "bad_rank"), str(step), str(victim), what], {"OMP_NUM_THREADS": "1"})
        text = "\n".join(line for _, line in lines)
        assert status == 0, text
        for rank in range(RANKS):
            assert f"rank {rank}: skipped {step}; the same finite bits on all ranks" in text, text
    for _ in range(tries):
        step, victim, what = chaos.rng.randrange(10), chaos.rng.randrange(RANKS), chaos.rng.choice(["nan", "inf"])
        if chaos.in_time():
            chaos.attempt(f"17 {what} at step {step} on rank {victim}", lambda: body(step, victim, what))
    run_suite(chaos, "ddp_test", "DataParallel.*GradientIsNotFinite:GradScaler.*StepThatOverflows*")
    run_suite(chaos, "engine_test", "Clipping.ByANormThatOverflows*")
    run_claim(chaos, "train/check.py", "precision")


row17.most = 20


def row19(chaos, tries):
    """A rank that returns early is named by the others, who do not wait for it; those that use join continue without it; and batches of unequal
    size weigh as much as they have samples."""
    def body(victim, transport):
        lines, status, named = fail_of(chaos, "leave", victim, transport)
        assert status != 0, "\n".join(line for _, line in lines)
        assert named <= chaos.limit(NAMED), f"named after {named:.2f} s"
        return {"detect": named}
    for _ in range(tries):
        victim, transport = chaos.rng.randrange(RANKS), chaos.rng.choice(["shm", "tcp"])
        if chaos.in_time():
            chaos.attempt(f"19 rank {victim} ends early, {transport}", lambda: body(victim, transport))
    run_suite(chaos, "queue_test", "Join.*:NegotiatorTest.Join*")
    run_claim(chaos, "train/check.py", "equal_ranks")


row19.most = 20
ROWS = {"5": row5, "17": row17, "19": row19}
