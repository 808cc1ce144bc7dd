"""Claims about runs of `cohort train` that are killed, told to leave, and resumed: for check.py."""
import contextlib
import glob
import os
import random
import re
import shutil
import signal
import time

from runs import FORGETFUL, LIMIT, SLOWDOWN, STEPS_PER_EPOCH, consolidated, wait_until, workers


def caught(runs, name, ready, act, n=2, **sets):
    """The status of a run on which `act` was done while it learned, and for how long it went on. One that was quicker and learned all that the
    run "whole" did is made again."""
    for _ in range(5):
        shutil.rmtree(runs.path(name), ignore_errors=True)
        job = runs.start(name, n, **sets)
        try:
            wait_until("some steps, or the end", lambda: ready() or job.poll() is not None)
            with contextlib.suppress(KeyError, ProcessLookupError):  # its ranks are gone
                act(job)
            start = time.monotonic()
            status = job.wait(LIMIT)
        finally:
            job.kill()
            job.wait(LIMIT)
        if runs.losses(name)[-1:] != runs.losses("whole")[-1:]:
            return status, time.monotonic() - start
    raise AssertionError("five runs were over before anything could be done to them:\n" + runs.log(name))


def killed_and_resumed(runs, rule):
    sets = {**FORGETFUL, "optimizer": rule}
    runs.train("whole", **sets)

    def in_the_middle():
        steps = [int(path[-8:]) for path in runs.checkpoints("killed")]
        return steps and steps[-1] % STEPS_PER_EPOCH and len(runs.metrics("killed")) > STEPS_PER_EPOCH

    status, took = caught(runs, "killed", in_the_middle, lambda job: os.kill(workers(job.pid)[1], signal.SIGKILL), **sets)
    assert took < LIMIT / 9, f"the other rank lived on for {took:.1f} s"
    assert status == 128 + signal.SIGKILL, status
    assert "rank 1 failed first: killed by SIGKILL" in "\n".join(runs.log("killed").splitlines()[-12:]), runs.log("killed")
    again = runs.train("killed", **sets)
    step = int(re.search(r"goes on after update (\d+)", again.stdout)[1])
    assert step % STEPS_PER_EPOCH, f"step {step} is no middle of an epoch"
    assert runs.tensors("killed") == runs.tensors("whole"), f"resumed after step {step}: other bits than the run that never stopped"
    assert runs.losses("killed") == runs.losses("whole"), "metrics.jsonl differs from that of the run that never stopped"
    tested = lambda name: [(m["step"], m["test_loss"]) for m in runs.metrics(name) if "test_loss" in m]
    assert tested("killed") == tested("whole") and len(tested("whole")) == 6, "other evaluations than those of the run that never stopped"


def resume_sgd(runs):
    """kill -9 of a rank: the others stop within two seconds and name it; started again, the run ends with the bits of one never killed."""
    killed_and_resumed(runs, "sgd(lr=0.02, momentum=0.9, weight_decay=1e-3)")


def resume_adam(runs):
    """The same with Adam."""
    killed_and_resumed(runs, "adam(lr=1e-3)")


def told_to_leave(runs, name, number, whom, **sets):
    """Sends it while the run learns; the step after which the run ended, and what it said."""
    def tell(job):
        for pid in whom(job):
            os.kill(pid, number)

    status, _ = caught(runs, name, lambda: len(runs.losses(name)) > STEPS_PER_EPOCH + 3, tell, **sets)
    assert status == 0, runs.log(name)
    said = re.findall(r"^(rank .*) got (\w+): the run ends after update (\d+) of \d+, saved in (.*); start it again to go on$", runs.log(name), re.M)
    assert len(said) == 1 and said[0][1] == signal.Signals(number).name and said[0][3] == runs.path(name) + "/checkpoints", runs.log(name)
    step = int(said[0][2])
    assert [int(path[-8:]) for path in runs.checkpoints(name)] == [step] == [runs.losses(name)[-1][0]], f"{step}: {runs.checkpoints(name)}"
    return step, said[0][0]


def notice(runs):
    """SIGUSR1 to one rank of a fixed job, to all of them, SIGTERM to the launcher: all end well after the same step with a checkpoint of it,
    and the run that goes on has the bits of one never told. SIGINT ends it as ever."""
    sets = {"model": "mlp(in=784, hidden=256x256, out=10)", "data__batch": 16, "epochs": 40, "optimizer": "adam(lr=1e-3)",
            "checkpoint__every_epochs": 0, "checkpoint__keep": 50}
    runs.train("whole", **sets)
    one, every, launcher = (lambda job: [workers(job.pid)[1]]), (lambda job: workers(job.pid).values()), (lambda job: [job.pid])
    for name, number, whom, who, sync in (("one", signal.SIGUSR1, one, "rank 1", "all_reduce(op=sum)"),
                                          ("all", signal.SIGUSR1, every, "rank 0 and 1 other", "all_reduce(op=sum)"),
                                          ("launcher", signal.SIGTERM, launcher, "rank 0 and 1 other", "zero(stage=2, op=sum)")):
        step, told = told_to_leave(runs, name, number, whom, sync=sync, **sets)
        assert told == who if whom is one else told in ("rank 0", "rank 1", who), (step, told)  # the second may be told after the vote
        again = runs.train(name, sync=sync, checkpoint__resume="must", **sets)
        assert f"goes on after update {step}\n" in again.stdout, again.stdout
        assert consolidated(runs, name) == consolidated(runs, "whole"), f"{name}, told after update {step}: other bits than never told"
        assert runs.losses(name) == runs.losses("whole"), "metrics.jsonl differs from that of the run that was never told"
    job = runs.start("interrupted", **sets)
    wait_until("some steps", lambda: len(runs.losses("interrupted")) > 3)
    job.send_signal(signal.SIGINT)
    assert job.wait(LIMIT) == 128 + signal.SIGINT and not runs.checkpoints("interrupted"), runs.log("interrupted")


def early_notice(runs):
    """SIGTERM or SIGUSR1 while ranks still start, to one of them or to the launcher: the run ends well at once, with a checkpoint from which it
    goes on. Programs of others under `cohort run` have the signals as they would have them without."""
    moments = random.Random(20)
    sets = {"epochs": 4000, "checkpoint__every_epochs": 0}
    job, start = runs.start("whole", **sets), time.monotonic()
    wait_until("the first step", lambda: runs.losses("whole"))
    begins = time.monotonic() - start  # after so long the first step is done
    job.kill()
    job.wait(LIMIT)
    for i in range(10):
        name, number, to_launcher = f"early{i}", (signal.SIGTERM, signal.SIGUSR1)[i % 2], i % 5 == 4
        job, start, delay = runs.start(name, **sets), time.monotonic(), moments.uniform(0, begins)
        try:
            wait_until("ranks", lambda: len(workers(job.pid)) == 2)
            time.sleep(max(0, start + delay - time.monotonic()))
            moment = time.monotonic() - start
            os.kill(job.pid if to_launcher else workers(job.pid)[i // 2 % 2], number)
            status = job.wait(LIMIT)
        finally:
            job.kill()
            job.wait(LIMIT)
        said = re.findall(r"^rank .* got (\w+): the run ends after update (\d+) of \d+, saved in ", runs.log(name), re.M)
        story = f"{signal.Signals(number).name} {moment:.2f} s of {begins:.2f} s after the start, status {status}:\n{runs.log(name)}"
        assert status == 0 and len(said) == 1 and said[0][0] == signal.Signals(number).name, story
        assert [int(path[-8:]) for path in runs.checkpoints(name)] == [int(said[0][1])], story
    again = runs.train(name, checkpoint__resume="must", steps=int(said[0][1]) + 5, epochs=0)
    assert f"goes on after update {said[0][1]}\n" in again.stdout, again.stdout
    signals = ["grep", "-E", "Sig(Blk|Ign|Cgt)", "/proc/self/status"]
    assert runs.call([runs.cohort, "run", "-n", "1", "--no-prefix", "--"] + signals).stdout == runs.call(signals).stdout


def buddies(runs):
    """kill -9 of any rank, no checkpoint before: its buddy has what it had, the survivors save all, and the run goes on with the same bits."""
    sets = {"model": "mlp(in=784, hidden=256x256, out=10)", "epochs": 30, "optimizer": "adam(lr=1e-3)", "engine__clip_norm": 1,
            "checkpoint__every_epochs": 0}
    whole = None
    for lost, stage in ((1, 1), (0, 2), (2, 3)):
        name, sync = f"lost{lost}", f"zero(stage={stage}, op=sum, buddy=true)"
        if not whole:
            runs.train("whole", n=3, sync=sync, **sets)
            whole = consolidated(runs, "whole")

        def kill(job):
            assert not runs.checkpoints(name), "an older checkpoint would do"
            os.kill(workers(job.pid)[lost], signal.SIGKILL)

        status, took = caught(runs, name, lambda: len(runs.metrics(name)) > 3, kill, n=3, sync=sync, **sets)
        assert status == 128 + signal.SIGKILL, runs.log(name)
        said = runs.log(name)
        assert "nothing is lost: " in said and f"rank {lost} failed first: killed by SIGKILL" in said, said
        assert took < 10 * SLOWDOWN, f"the survivors took {took:.1f} s"
        hidden = [os.path.basename(path) for path in glob.glob(runs.path(name) + "/checkpoints/.*")]
        assert len(runs.checkpoints(name)) == 1 and hidden == [".fence"], os.listdir(runs.path(name) + "/checkpoints")
        saved = int(runs.checkpoints(name)[0][-8:])
        again = runs.train(name, n=3, sync=sync, checkpoint__resume="must", **sets)
        assert f"goes on after update {saved}\n" in again.stdout and saved >= 3, again.stdout
        assert consolidated(runs, name) == whole, f"stage {stage}, rank {lost} lost after update {saved}: other bits than without the loss"
        steps = dict(runs.losses(name))
        assert all(steps.get(step, loss) == loss for step, loss in runs.losses("whole")) and max(steps) == max(dict(runs.losses("whole")))


def other_ranks(runs):
    """Another number of ranks takes the rest of an epoch: every sample of the run once an epoch, and no more epochs than asked for."""
    runs.train("run", steps=5, epochs=0)
    done = runs.train("run", n=3, epochs=2)
    assert "the checkpoint is of 2 ranks, this run has 3" in done.stderr, done.stderr
    rest = -(-(600 - 5 * 64) // 96)
    assert f"updates {5 + rest + 7}" in re.sub(" +", " ", done.stdout), done.stdout
