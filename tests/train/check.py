#!/usr/bin/env python3
"""Claims about `cohort train`: check.py <folder of programs> <claim>. Exit status 0 when the claim holds."""
import contextlib
import glob
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

from runs import LIMIT, SLOWDOWN, TINY, Runs, wait_until, workers
from slowing import LONG_STEPS, Slowed, namings

# Dropout, batch norm and momentum: everything that a resumed run could forget.
FORGETFUL = {
    "model": "asl_cnn(size=12, classes=10)",
    "data__train": "synthetic(shape=1x12x12, samples=600)",
    "data__test": "synthetic(shape=1x12x12, samples=101, split=test)",
    "data__transforms": "shift(pixels=1), normalise",
    "data__batch": 16,
    "epochs": 6,
    "checkpoint__every_steps": 7,
    "checkpoint__every_epochs": 0,
}
DEEP = "mlp(in=784, hidden=32x32x32x32x32x32x32, out=10)"  # larger than its largest tensor by far
STEPS_PER_EPOCH = 19  # 600 samples, 2 x 16 a step


def same_bits(runs):
    """A run repeated gives the same bits; so do other buckets, lanes and updates that overlap backward."""
    small = {"engine__first_bucket": "4KiB", "engine__bucket": "8KiB"}
    ways = [{}, {}, {**small, "engine__lanes": 2}, {**small, "engine__lanes": 0}, {**small, "engine__lanes": 1, "engine__early_update": "true"},
            {"data__threads": 2}]
    for i, way in enumerate(ways):
        runs.train(f"way{i}", **way)
        assert runs.tensors(f"way{i}") == runs.tensors("way0"), f"other bits with {way}"
        assert runs.losses(f"way{i}") == runs.losses("way0"), f"other losses with {way}"


def encrypted(runs):
    """What is learned under TLS, over one socket a link and over three, is what is learned without."""
    runs.train("plain")
    for streams in ("1", "3"):
        name = "tls" + streams
        done = subprocess.run(runs.command(name) + ["--tls"], capture_output=True, text=True, timeout=LIMIT, cwd=runs.folder,
                              env={**runs.env, "COHORT_TRANSPORT": "tcp", "COHORT_STREAMS": streams})
        assert done.returncode == 0, done.stdout + done.stderr
        assert runs.tensors(name) == runs.tensors("plain") and runs.losses(name) == runs.losses("plain"), f"other bits with {streams} sockets"


def stages(runs):
    """Every stage of ZeRO learns what all-reduce does: the same losses and evaluations, to the last digit."""
    sets = {**FORGETFUL, "epochs": 2, "optim__rule": "adam(lr=1e-3)", "engine__clip_norm": 1}
    runs.train("plain", **sets)
    for stage in (1, 2, 3):
        runs.train(f"stage{stage}", sync=f"zero(stage={stage}, op=sum)", engine__lanes=stage % 2, **sets)
        assert runs.metrics(f"stage{stage}") and runs.losses(f"stage{stage}") == runs.losses("plain"), f"other losses in stage {stage}"
        tested = lambda name: [(m["step"], m["test_loss"]) for m in runs.metrics(name) if "test_loss" in m]
        assert tested(f"stage{stage}") == tested("plain"), f"other evaluations in stage {stage}"


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
    sets = {**FORGETFUL, "optim__rule": rule}
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
    sets = {"model": "mlp(in=784, hidden=256x256, out=10)", "data__batch": 16, "epochs": 40, "optim__rule": "adam(lr=1e-3)",
            "checkpoint__every_epochs": 0, "checkpoint__keep": 50}
    runs.train("whole", **sets)
    one, everybody, launcher = (lambda job: [workers(job.pid)[1]]), (lambda job: workers(job.pid).values()), (lambda job: [job.pid])
    for name, number, whom, who, sync in (("one", signal.SIGUSR1, one, "rank 1", "all_reduce(op=sum)"),
                                          ("all", signal.SIGUSR1, everybody, "rank 0 and 1 other", "all_reduce(op=sum)"),
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
    dice = random.Random(20)
    sets = {"epochs": 4000, "checkpoint__every_epochs": 0}
    job, start = runs.start("whole", **sets), time.monotonic()
    wait_until("the first step", lambda: runs.losses("whole"))
    begins = time.monotonic() - start  # after so long the first step is done
    job.kill()
    job.wait(LIMIT)
    for i in range(10):
        name, number, to_launcher = f"early{i}", (signal.SIGTERM, signal.SIGUSR1)[i % 2], i % 5 == 4
        job, start, delay = runs.start(name, **sets), time.monotonic(), dice.uniform(0, begins)
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
    sets = {"model": "mlp(in=784, hidden=256x256, out=10)", "epochs": 30, "optim__rule": "adam(lr=1e-3)", "engine__clip_norm": 1,
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
        assert len(runs.checkpoints(name)) == 1 and not glob.glob(runs.path(name) + "/checkpoints/.*"), os.listdir(runs.path(name) + "/checkpoints")
        rescued = int(runs.checkpoints(name)[0][-8:])
        again = runs.train(name, n=3, sync=sync, checkpoint__resume="must", **sets)
        assert f"goes on after update {rescued}\n" in again.stdout and rescued >= 3, again.stdout
        assert consolidated(runs, name) == whole, f"stage {stage}, rank {lost} lost after update {rescued}: other bits than without the loss"
        steps = dict(runs.losses(name))
        assert all(steps.get(step, loss) == loss for step, loss in runs.losses("whole")) and max(steps) == max(dict(runs.losses("whole")))


def consolidated(runs, name):
    """The bytes of what a sharded run learned, optimizer state included, as one plain file."""
    path = runs.path(name + ".safetensors")
    if os.path.exists(path):
        os.remove(path)
    runs.call([runs.cohort, "reshard", runs.path(name), path, "--consolidate", "--optimizer"])
    with open(path, "rb") as file:
        return file.read()


def other_ranks(runs):
    """Another number of ranks takes the rest of an epoch: every sample of the run once an epoch, and no more epochs than asked for."""
    runs.train("run", steps=5, epochs=0)
    done = runs.train("run", n=3, epochs=2)
    assert "the checkpoint is of 2 ranks, this run has 3" in done.stderr, done.stderr
    rest = -(-(600 - 5 * 64) // 96)
    assert f"updates {5 + rest + 7}" in re.sub(" +", " ", done.stdout), done.stdout


def corrupt(runs):
    """One changed byte in the newest checkpoint: the one before serves, and the log says so. resume=must without any is refused,
    and so is a checkpoint of another rule."""
    runs.train("run", checkpoint__every_steps=10)
    older, newest = runs.checkpoints("run")[-2:]
    with open(f"{newest}/model.safetensors", "r+b") as file:
        file.seek(-100, os.SEEK_END)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))
    done = runs.train("run", epochs=3)
    assert re.search(rf"error: checkpoint {re.escape(newest)} is damaged and was passed over: .*sha256", done.stderr), done.stderr
    assert f"goes on after update {int(older[-8:])}\n" in done.stdout, done.stdout
    other = runs.train("run", status=2, epochs=4, optim__rule="adam(lr=1e-3)")
    assert re.fullmatch(r"cohort train: checkpoint .* was trained with sgd.* which adam.* needs: .*\n", other.stderr), other.stderr
    with open(runs.path("run") + "/config.yaml") as file:
        assert "rule: \"sgd" in file.read(), "the settings that were refused are kept as those of the run"
    none = runs.train("none", status=2, checkpoint__resume="must")
    assert none.stderr.splitlines() == [f"cohort train: checkpoint.resume is must, and {runs.path('none')}/checkpoints holds no whole checkpoint"], none.stderr


def on_small_disk(runs, **sets):
    """Runs it with its folder `run` on a disk of 400 KiB, of which `copy` is what is left."""
    script = f'mount -t tmpfs -o size=400k none "$0" && {{ "$@"; code=$?; cp -r "$0" {runs.path("copy")}; exit $code; }}'
    return subprocess.run(["unshare", "-rm", "sh", "-c", script, runs.path("run")] + runs.command("run", **sets), capture_output=True,
                          text=True, timeout=LIMIT, env=runs.env, cwd=runs.folder)


def with_small_files(runs, **sets):
    """One checkpoint is there, and no file may grow as large as another would need. Buckets are files too."""
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (110_000, 110_000))

    sets.update(n=1, model=DEEP, engine__bucket="8KiB", engine__first_bucket="8KiB")
    runs.train("run", n=1, model=DEEP, epochs=1)
    done = subprocess.run(runs.command("run", **sets), capture_output=True, text=True, timeout=LIMIT, env=runs.env, cwd=runs.folder,
                          preexec_fn=limit)
    shutil.copytree(runs.path("run"), runs.path("copy"))
    return done


def outlives_the_disk(runs, way, **model):
    done = way(runs, checkpoint__every_steps=2, checkpoint__keep=1)
    assert done.returncode == 1, f"{done.returncode}\n{done.stdout}{done.stderr}"
    assert re.search(r"updates +(20|38)\n", done.stdout), done.stdout
    assert re.search(r"the checkpoint of step \d+ was not written: .*(No space left on device|File too large)", done.stderr), done.stderr
    assert "its last checkpoint could not be written" in done.stderr, done.stderr
    left = os.listdir(runs.path("copy") + "/checkpoints")
    assert len(left) == 1 and left[0].startswith("step-"), left
    again = runs.train("copy", **model)  # with room again it goes on from what is there
    assert f"goes on after update {int(left[0][5:])}\n" in again.stdout and "damaged" not in again.stderr, again.stdout + again.stderr


def full_disk(runs):
    """No room for a second checkpoint: training goes on to its end, says what is missing, and the first checkpoint stays whole."""
    os.mkdir(runs.path("run"))
    mounts = subprocess.run(["unshare", "-rm", "mount", "-t", "tmpfs", "none", runs.path("run")], capture_output=True, timeout=LIMIT)
    if mounts.returncode != 0:
        return file_limit(runs)
    outlives_the_disk(runs, on_small_disk)


def file_limit(runs):
    """The same when files may not grow, which needs no right to mount."""
    outlives_the_disk(runs, with_small_files, n=1, model=DEEP)


def equal_ranks(runs):
    """n ranks equal one rank with n times the batch: the same losses to 1e-4, a short last batch of each epoch included; so do
    gradients accumulated over batches."""
    same = {"optim__rule": "sgd(lr=0.05)", "optim__schedule": "constant", "epochs": 0, "steps": 30}
    runs.train("one", n=1, data__batch=128, **same)
    runs.train("two", n=2, data__batch=64, **same)
    runs.train("half", n=1, data__batch=64, data__accumulate=2, **same)
    one = runs.losses("one")
    assert len(one) == 30
    for other in ("two", "half"):
        for (step, a), (same_step, b) in zip(one, runs.losses(other), strict=True):
            assert step == same_step and abs(a - b) < 1e-4, f"{other}, step {step}: {a} and {b}"
    runs.train("mean", n=2, data__batch=64, engine__strategy="all_reduce", **{**same, "steps": 3})  # whole batches: averages are the same
    for (step, a), (_, b) in zip(one, runs.losses("mean")):
        assert abs(a - b) < 1e-4, f"averaged, step {step}: {a} and {b}"
    assert one[-1][1] < one[0][1] / 2, "nothing was learned"


def evaluation(runs):
    """Accuracy and loss of the same parameters do not depend on how many ranks share the test set, also when some have nothing left."""
    noisy = {"data__train": "synthetic(samples=600, noise=127)", "data__test": "synthetic(samples=67, noise=127, split=test)", "epochs": 0,
             "steps": 3}
    runs.train("base", n=1, **noisy)
    seen = set()
    for n in (1, 2, 3):
        shutil.copytree(runs.path("base"), runs.path(f"on{n}"))
        done = runs.train(f"on{n}", n=n, **noisy)  # nothing is left to train: only the evaluation
        seen.add(re.search(r"test accuracy +([\d.]+) %\ntest loss +([\d.]+)", done.stdout).groups())
    assert len(seen) == 1, seen
    score = runs.call([runs.cohort, "predict", runs.path("base"), "--data", noisy["data__test"]]).stdout
    accuracy, loss = seen.pop()
    assert 0 < float(accuracy) < 100 and f"accuracy {accuracy} %" in score and f"loss {loss}" in score, (accuracy, loss, score)


def recomputed(runs):
    """Blocks that are recomputed change no bit of losses, parameters, running statistics and evaluations: dropout and batch norm included,
    with one rank's statistics and with those of all, with buckets that leave during backward. What cannot be is refused."""
    base = {**FORGETFUL, "epochs": 1, "data__accumulate": 2, "engine__bucket": "8KiB", "engine__lanes": 1}
    for norm in ("false", "true"):
        sets = {**base, "sync_batch_norm": norm}
        runs.train(f"kept-{norm}", **sets)
        for i, way in enumerate(("every(1)", "every(2)", "names(stage2)", "until_fits(1GiB)")):
            name = f"way{i}-{norm}"
            done = runs.train(name, recompute=way, **sets)
            said = re.search(r"recomputes (\d) of (\d) blocks", done.stdout + done.stderr)
            blocks = int(said[2])
            assert int(said[1]) == [blocks, blocks // 2, 1, 0][i], said[0]
            assert runs.losses(name) == runs.losses(f"kept-{norm}"), f"other losses with recompute={way}, sync_batch_norm={norm}"
            assert runs.tensors(name) == runs.tensors(f"kept-{norm}"), f"other bits with recompute={way}, sync_batch_norm={norm}"
            tests = [[m["test_loss"] for m in runs.metrics(run) if "test_loss" in m] for run in (name, f"kept-{norm}")]
            assert tests[0] == tests[1] and tests[0], tests
    refused(runs, "recompute: 'all' is none of none, every(2), names(block, block), until_fits(2GiB)", recompute="all")
    refused(runs, "recompute: the model has no block 'h.9'; its blocks are fc1, fc2, head", recompute="names(h.9)")
    refused(runs, "recompute: until_fits(1 KiB) cannot be: activations of a batch need", recompute="until_fits(1KiB)")


def refused(runs, say, name="bad", **how):
    done = runs.train(name, status=2, **how)
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("cohort train: ") and say in lines[0], f"expected '{say}' in one line:\n{done.stderr}"
    assert done.stdout == "", done.stdout
    assert not os.path.exists(runs.path(name)), f"left behind: {os.listdir(runs.path(name))}"


def settings(runs):
    """Settings that cannot be are refused before anything starts: one line, exit status 2, nothing left behind."""
    with open(runs.path("a.yaml"), "w") as file:
        file.write("epochs: 2\noptim:\n  rule: sgd\n  shedule: constant\n")
    refused(runs, "a.yaml:4:3: unknown setting 'optim.shedule'; did you mean 'optim.schedule'?", file="a.yaml")
    with open(runs.path("b.yaml"), "w") as file:
        file.write("data:\n  batch: many\n")
    refused(runs, "b.yaml:2:10: ", file="b.yaml")
    refused(runs, "missing.yaml", file="missing.yaml")
    refused(runs, "did you mean 'data.batch'?", data__bach=3)
    refused(runs, "'4.5' is not an integer", data__batch=4.5)
    refused(runs, "data.batch: 0 is out of range", data__batch=0)
    refused(runs, "epochs and steps are both 0", epochs=0)
    refused(runs, "it excludes engine.clip_norm", engine__early_update="true", engine__clip_norm=1)
    refused(runs, "cannot call off a step whose gradients overflow", engine__early_update="true", precision="fp16")
    refused(runs, "unknown loss scale 'troch'; did you mean 'torch'?", scale="troch")
    refused(runs, "known: fp32, bf16, fp16", precision="fp8")
    refused(runs, "engine.wire=bf16 goes with all_reduce", engine__wire="bf16", engine__strategy="zero(stage=1)")
    shown = runs.call([runs.cohort, "train", "--show-config", "--set", "seed=7"]).stdout
    assert "seed: 7  # command line" in shown and "steps: 0  # default" in shown, shown
    refused(runs, "did you mean 'adam'?", optim__rule="adan(lr=1)")
    refused(runs, "-n: '0' is not a number", n=0)


def misfits(runs):
    """What only the ranks can find out is refused as well as that: by one rank, in one line."""
    refused(runs, "unknown model 'mpl'; did you mean 'mlp'?", model="mpl")
    refused(runs, "/nowhere/train-images-idx3-ubyte", data__train="fashion_mnist(dir=/nowhere)")
    refused(runs, "model 'mlp(in=100)' takes samples of 100, the data set has 1x28x28", model="mlp(in=100)")
    refused(runs, "model 'lstm(vocab=32, embed=8, hidden=16, context=16)' cannot be trained in fp16 on the CPU: torch ", precision="fp16",
            model="lstm(vocab=32, embed=8, hidden=16, context=16)", data__train="synthetic(task=tokens, shape=16, classes=32)", data__test="")
    refused(runs, "model 'mlp(out=5)' tells 5 classes apart, the data set has 10", model="mlp(out=5)")


def scale_story(runs, name):
    return [(line["step"], line["scale"], line["skipped"]) for line in runs.metrics(name) if "scale" in line]


def precision(runs):
    """bf16 and fp16 learn what fp32 learns; a loss scale that is too large leaves steps out on all ranks, counts and shows them."""
    sets = {"epochs": 0, "steps": 24, "optim__schedule": "constant"}
    runs.train("fp32", **sets)
    for way in ({"precision": "bf16"}, {"precision": "fp16"}, {"engine__wire": "bf16", "engine__wire_sum": "fp32"}, {"engine__wire": "fp16"}):
        name = "-".join(way.values())
        done = runs.train(name, **way, **sets)
        losses, plain = runs.losses(name), runs.losses("fp32")
        assert losses[-1][1] < losses[0][1] / 2, f"{way}: nothing was learned: {losses}"
        assert losses != plain, f"{way} changed nothing"
        assert all(abs(a - b) < 0.05 for (_, a), (_, b) in zip(losses, plain, strict=True)), f"{way}: {losses}\n{plain}"
        scaled = "fp16" in way.values()
        assert bool(re.search(r"steps left out +0\nloss scale +65536\n", done.stdout)) == scaled, done.stdout
    far = {"precision": "fp16", "scale": "torch(init=1e9, window=5)", **sets}
    done = runs.train("two", **far)
    runs.train("again", **far)
    story = scale_story(runs, "two")
    left_out = story[-1][2]
    assert left_out > 3 and story[0][1] == 1e9 and story[0][2] == 1 and story[1][1] == 5e8, story
    assert scale_story(runs, "again") == story and runs.tensors("again") == runs.tensors("two"), "the run repeated left out other steps"
    assert re.search(rf"updates +{24 - left_out}\nsteps left out +{left_out}\n", done.stdout), done.stdout
    assert done.stdout.count("the step was left out on all of them") == left_out and "at loss scale 1000000000" in done.stdout, done.stdout


def resume_scale(runs):
    """A run that goes on from a checkpoint has the loss scales, the count of steps left out and the bits of one that never stopped."""
    for rule in ("torch(init=1e9, window=5)", "deepspeed(init=1e8, window=4)", "fairscale(init=1e8, window=6, tolerance=0.1)"):
        name = rule.split("(")[0]
        sets = {"precision": "fp16", "scale": rule, "epochs": 0, "optim__schedule": "constant", "optim__rule": "adam(lr=1e-3)"}
        runs.train(name + "-whole", steps=22, **sets)
        runs.train(name, steps=9, **sets)
        again = runs.train(name, steps=22, **sets)
        assert "goes on after update 9\n" in again.stdout, again.stdout
        assert scale_story(runs, name) == scale_story(runs, name + "-whole"), rule
        assert scale_story(runs, name)[8][2] > 0, "nothing had been left out when the checkpoint was made"
        assert runs.losses(name) == runs.losses(name + "-whole") and runs.tensors(name) == runs.tensors(name + "-whole"), rule


def flipped(runs):
    """One bit of one parameter flips on one rank: at the next comparison all ranks stop, the rank and the tensor are named, and no checkpoint holds it."""
    flip = os.path.join(os.path.dirname(runs.cohort), "train_flip")
    def run(name, n, rank, **sets):
        words = [runs.cohort, "run", "-n", str(n), "--grace", "60s", "--", flip, str(rank), "7", f"out={runs.path(name)}"]
        words += [f"{key.replace('__', '.')}={value}" for key, value in {**TINY, "epochs": 0, "steps": 30, "checkpoint.keep": 50, "checkpoint.every_epochs": 0, **sets}.items()]
        return subprocess.run(words, capture_output=True, text=True, timeout=LIMIT, env=runs.env, cwd=runs.folder)
    last = lambda name: int(runs.checkpoints(name)[-1][-8:]) if runs.checkpoints(name) else 0
    for name, rank, sets, found, saved in (
            ("steps", 1, {"check_replicas": 10}, 10, 0), ("saves", 2, {"check_replicas": 1000, "checkpoint__every_steps": 4}, 8, 4),
            ("both", 0, {"check_replicas": 5, "checkpoint__every_steps": 5}, 10, 5),
            ("norms", 1, {**FORGETFUL, "epochs": 0, "check_replicas": 3}, 7, 0)):
        done = run(name, 3, rank, **sets)
        assert done.returncode == 1, done.stdout + done.stderr
        said = re.findall(rf"after update (\d+) rank {rank} holds other values than the others: '([^']+)' is the first that differs", done.stderr)
        assert said and {int(step) for step, _ in said} == {found}, f"{name}: all say it at step {found}:\n{done.stderr}"
        assert len({tensor for _, tensor in said}) == 1 and said[0][1].endswith(".weight"), done.stderr
        assert last(name) == saved, f"{name}: {runs.checkpoints(name)}"
    done = run("two", 2, 1, check_replicas=4)
    assert done.returncode == 1 and re.search(r"after update 8 ranks hold different values, and no majority .* [0-9a-f]{8} on rank 0, [0-9a-f]{8} on rank 1;", done.stderr), done.stderr
    done = run("never", 2, 1, check_replicas=0)
    assert done.returncode == 0 and last("never") == 30, done.stderr
    for stage in (1, 2, 3):
        done = run(f"stage{stage}", 2, 99, sync=f"zero(stage={stage}, op=sum)", check_replicas=3)
        assert done.returncode == 0 and ("nothing to compare" in done.stdout) == (stage == 3), done.stdout + done.stderr


def slow(runs):
    """A rank that computes at half its speed is named within 20 steps and when it is back: on the screen, in the metrics, over HTTP and in the table."""
    job = runs.start("run", n=4, steps=150, observe__prometheus_port=0, **LONG_STEPS)
    step = lambda: max((m["step"] for m in runs.metrics("run")), default=0)
    named = lambda: namings(runs.metrics("run"), 2)  # beside other work another may be slow as well, at times
    page = lambda: urllib.request.urlopen(re.search(r"metrics at (\S+)", runs.log("run"))[1], timeout=LIMIT).read().decode()
    try:
        wait_until("some steps", lambda: step() >= 24)
        assert not named(), f"named although all are equal: {named()}"
        with Slowed(workers(job.pid)[2], 2):
            start = step()
            wait_until("it is named", lambda: named() or step() > start + 20 * SLOWDOWN)
            assert named(), f"rank 2 was not named in {step() - start} steps: {namings(runs.metrics('run'))}"
            assert 'cohort_rank_slow{rank="2"} 1' in page() and re.search("^cohort_slow_ranks [1-4]$", page(), re.M), page()
        first = named()[0][0]
        wait_until("it is back", lambda: len(named()) == 2)
        assert job.wait(LIMIT) == 0, runs.log("run")
    finally:
        job.kill()
        job.wait(LIMIT)
    assert [slow for _, _, slow in named()] == [True, False], named()
    said = runs.log("run")
    assert re.search(rf"step {first}: rank 2 is slow: 0\.\d+ of the median throughput", said) and "rank 2 is no longer slow" in said, said
    assert re.search(rf"slow ranks +rank 2 \(0\.\d+ of the median\) from step {first} on to \d+", said), said


def precision_stages(runs):
    """In 16 bits too every stage of ZeRO has the bits of all-reduce: losses, scales, steps left out by all ranks, parameters and state."""
    sets = {"epochs": 0, "steps": 14, "optim__schedule": "constant", "optim__rule": "adam(lr=1e-3)", "engine__clip_norm": 1}
    for precision, scale in (("bf16", "none"), ("fp16", "torch(init=1e9, window=5)")):
        for stage in (0, 1, 2, 3):
            sync = f"zero(stage={stage}, op=sum)" if stage else "all_reduce(op=sum)"
            runs.train(f"{precision}{stage}", precision=precision, scale=scale, sync=sync, engine__lanes=stage % 2, **sets)
            assert runs.losses(f"{precision}{stage}") == runs.losses(f"{precision}0"), f"{precision}: other losses in stage {stage}"
            assert scale_story(runs, f"{precision}{stage}") == scale_story(runs, f"{precision}0"), f"{precision}: other scales in stage {stage}"
            assert consolidated(runs, f"{precision}{stage}") == consolidated(runs, f"{precision}0"), f"{precision}: other bits in stage {stage}"
    story = scale_story(runs, "fp160")
    assert 3 < story[-1][2] < 14, f"steps must be left out, and others not: {story}"


def resume_scale_stages(runs):
    """A sharded run in fp16 that goes on has scales, steps left out and bits of one that never stopped, also when it goes on at another stage."""
    sets = {"precision": "fp16", "scale": "deepspeed(init=1e8, window=4)", "epochs": 0, "optim__schedule": "constant", "optim__rule": "adam(lr=1e-3)"}
    runs.train("whole", steps=16, **sets)
    for first, then in ((1, 1), (3, 2), (2, 3)):
        name = f"from{first}to{then}"
        runs.train(name, steps=7, sync=f"zero(stage={first}, op=sum)", **sets)
        again = runs.train(name, steps=16, sync=f"zero(stage={then}, op=sum)", **sets)
        assert "goes on after update 7\n" in again.stdout, again.stdout
        assert scale_story(runs, name) == scale_story(runs, "whole") and scale_story(runs, name)[6][2] > 0, scale_story(runs, name)
        assert runs.losses(name) == runs.losses("whole") and consolidated(runs, name) == consolidated(runs, "whole"), name


def questions(runs):
    """SIGQUIT: every rank says where it is, and the run goes on."""
    job = runs.start("run", epochs=100000, checkpoint__every_epochs=0)
    try:
        wait_until("a first step", lambda: runs.metrics("run"))
        for asked in (1, 2):
            job.send_signal(signal.SIGQUIT)
            lines = lambda: [line for r in (0, 1) for line in runs.log("run").splitlines() if re.search(rf"rank {r} info: step \d+ of \d+, .* for ", line)]
            wait_until("both ranks answer", lambda: len(lines()) == 2 * asked)
        step = runs.metrics("run")[-1]["step"]
        wait_until("the run goes on", lambda: runs.metrics("run")[-1]["step"] > step + 10)
        os.kill(workers(job.pid)[1], signal.SIGSTOP)  # now rank 0 waits for it
        def waits():  # asked again: at first it may still be computing
            job.send_signal(signal.SIGQUIT)
            return re.search(r"rank 0 info: .*; in all_reduce '(bucket|the step)", runs.log("run"))
        wait_until("rank 0 says what it waits in", waits)
    finally:
        for pid in workers(job.pid).values():
            os.kill(pid, signal.SIGCONT)
        job.terminate()
        job.wait(LIMIT)


with tempfile.TemporaryDirectory(prefix="cohort-train-") as scratch:
    claims = [same_bits, encrypted, stages, resume_sgd, resume_adam, notice, early_notice, buddies, other_ranks, corrupt, full_disk, file_limit, equal_ranks, evaluation, settings, misfits,
              questions, precision, precision_stages, resume_scale, resume_scale_stages, recomputed, flipped, slow]
    {claim.__name__: claim for claim in claims}[sys.argv[2]](Runs(sys.argv[1], scratch))
