#!/usr/bin/env python3
"""Claims about `cohort train`: check.py <folder of programs> <claim>. Exit status 0 when the claim holds."""
import glob
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request

from causes import bad_picture, bad_row, diverges
from defaults import default_codecs, default_optimizers, default_strategies
from disk import corrupt, file_limit, full_disk
from drifting import coded, drifting, drifting_resumed, drifting_too, drifting_unrepeated, measured
from interrupted import buddies, early_notice, notice, other_ranks, resume_adam, resume_sgd
from meshes import mesh
from precisions import precision, precision_stages, resume_scale, resume_scale_stages
from runs import FORGETFUL, LIMIT, SLOWDOWN, TINY, Runs, wait_until, workers
from served import served, served_resumed
from slowing import LONG_STEPS, Slowed, namings


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
    sets = {**FORGETFUL, "epochs": 2, "optimizer": "adam(lr=1e-3)", "engine__clip_norm": 1}
    runs.train("plain", **sets)
    for stage in (1, 2, 3):
        runs.train(f"stage{stage}", sync=f"zero(stage={stage}, op=sum)", engine__lanes=stage % 2, **sets)
        assert runs.metrics(f"stage{stage}") and runs.losses(f"stage{stage}") == runs.losses("plain"), f"other losses in stage {stage}"
        tested = lambda name: [(m["step"], m["test_loss"]) for m in runs.metrics(name) if "test_loss" in m]
        assert tested(f"stage{stage}") == tested("plain"), f"other evaluations in stage {stage}"


def equal_ranks(runs):
    """n ranks equal one rank with n times the batch: the same losses to 1e-4, a short last batch of each epoch included; so do
    gradients accumulated over batches."""
    same = {"optimizer": "sgd(lr=0.05)", "optim__schedule": "constant", "epochs": 0, "steps": 30}
    runs.train("one", n=1, data__batch=128, **same)
    runs.train("two", n=2, data__batch=64, **same)
    runs.train("half", n=1, data__batch=64, data__accumulate=2, **same)
    one = runs.losses("one")
    assert len(one) == 30
    for other in ("two", "half"):
        for (step, a), (same_step, b) in zip(one, runs.losses(other), strict=True):
            assert step == same_step and abs(a - b) < 1e-4, f"{other}, step {step}: {a} and {b}"
    runs.train("mean", n=2, data__batch=64, sync="all_reduce", **{**same, "steps": 3})  # whole batches: averages are the same
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
        file.write("epochs: 2\noptimizer: sgd\noptim:\n  shedule: constant\n")
    refused(runs, "a.yaml:4:3: unknown setting 'optim.shedule'; did you mean 'optim.schedule'?", file="a.yaml")
    with open(runs.path("b.yaml"), "w") as file:
        file.write("data:\n  batch: many\n")
    refused(runs, "b.yaml:2:10: ", file="b.yaml")
    refused(runs, "missing.yaml", file="missing.yaml")
    with open(runs.path("c.yaml"), "w") as file:  # names of former versions
        file.write("optim:\n  rule: sgd\n")
    refused(runs, "c.yaml:2:3: optim.rule is called optimizer now", file="c.yaml")
    refused(runs, "engine.wire is called engine.comm_dtype now", engine__wire="bf16")
    refused(runs, "comm is called backend now", comm="gloo")
    refused(runs, "did you mean 'data.batch'?", data__bach=3)
    refused(runs, "'4.5' is not an integer", data__batch=4.5)
    refused(runs, "data.batch: 0 is out of range", data__batch=0)
    refused(runs, "epochs and steps are both 0", epochs=0)
    refused(runs, "it excludes engine.clip_norm", engine__early_update="true", engine__clip_norm=1)
    refused(runs, "cannot call off a step whose gradients overflow", engine__early_update="true", precision="fp16")
    refused(runs, "unknown loss scale 'troch'; did you mean 'torch'?", loss_scale="troch")
    refused(runs, "loss scale 'megatron' is no rule any more: say deepspeed(", loss_scale="megatron")
    refused(runs, "known: fp32, bf16, fp16", precision="fp8")
    refused(runs, "this strategy sends models", engine__comm_dtype="bf16", sync="local_sgd")
    refused(runs, "take one of them", engine__comm_dtype="bf16", codec="int8")
    refused(runs, "take stage 1, or a codec without feedback", codec="topk", sync="zero(stage=2)", data__accumulate=2)
    refused(runs, "did you mean 'topk'", codec="tpok")
    refused(runs, "take optimizer=sgd(momentum=0)", codec="dgc", optimizer="sgd(lr=0.1, momentum=0.9)")
    refused(runs, "precision=bf16", precision="fp16", sync="local_sgd")
    shown = runs.call([runs.cohort, "train", "--show-config", "--set", "seed=7"]).stdout
    assert "seed: 7  # command line" in shown and "steps: 0  # default" in shown, shown
    refused(runs, "did you mean 'adam'?", optimizer="adan(lr=1)")
    refused(runs, "-n: '0' is not a number", n=0)


def misfits(runs):
    """What only the ranks can find out is refused as well as that: by one rank, in one line."""
    refused(runs, "unknown model 'mpl'; did you mean 'mlp'?", model="mpl")
    refused(runs, "/nowhere/train-images-idx3-ubyte", data__train="fashion_mnist(dir=/nowhere)")
    refused(runs, "model 'mlp(in=100, out=10)' takes samples of 100, the data set has 1x28x28", model="mlp(in=100)")
    refused(runs, "model 'lstm(vocab=32, embed=8, hidden=16, context=16)' cannot be trained in fp16 on the CPU: torch ", precision="fp16",
            model="lstm(vocab=32, embed=8, hidden=16, context=16)", data__train="synthetic(task=tokens, shape=16, classes=32)", data__test="")
    refused(runs, "model 'mlp(out=5, in=784)' has 5 classes, the data set has 10", model="mlp(out=5)")


def other_data(runs):
    """Two hosts whose copies of a file differ are refused, with the file and both ranks; so is a run that resumes after its file grew."""
    def write(host, rows):
        os.makedirs(runs.path(host), exist_ok=True)
        with open(runs.path(host) + "/train.csv", "w") as file:
            file.writelines(f"{i % 2},{i % 256},7,9,{200 - i % 100}\n" for i in range(rows))

    sets = {**TINY, "model": "mlp(in=4, hidden=3, out=2)", "data.train": "csv(file=train.csv, shape=1x2x2)", "data.test": "", "epochs": 0, "steps": 3,
            "out": runs.path("run")}
    worker = os.path.join(os.path.dirname(runs.cohort), "cohort-worker")
    def train(status):
        words = [runs.cohort, "run", "-n", "2", "--", "sh", "-c", 'cd host$COHORT_RANK && exec "$@"', "sh", worker, "train"]
        return runs.call(words + [word for key, value in sets.items() for word in ("--set", f"{key}={value}")], status)

    write("host0", 100)
    write("host1", 101)
    said = train(2).stderr
    assert "data.train 'csv(file=train.csv, shape=1x2x2)': number of samples: 100 on rank 0 but 101 on rank 1" in said, said
    assert not os.path.exists(runs.path("run")), "left behind"
    write("host1", 100)
    train(0)
    write("host0", 104)
    write("host1", 104)
    sets["steps"] = 6
    said = train(2).stderr
    assert re.search(r"cannot resume from .*step-00000003: data.train: csv\(file=train.csv, .*number of samples: 100 in the checkpoint but 104 now", said), said


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


def owner(runs):
    """A run's folder is one job's: a second one is refused in one line that names the first, also with resume=never, whose checkpoints
    stay. A job that is paused and taken over writes and removes nothing when it goes on, and ends with status 2. What a killed job left
    behind is taken over by the same command."""
    everything = lambda: {path: open(path, "rb").read() for path in glob.glob(runs.path("run") + "/**", recursive=True) if os.path.isfile(path)}
    files = lambda: [os.path.basename(path) for path in runs.checkpoints("run")]
    job = runs.start("run", epochs=0, steps=1000000, checkpoint__every_steps=5, checkpoint__keep=2)
    try:
        wait_until("a checkpoint", lambda: runs.checkpoints("run"))
        rank0 = workers(job.pid)[0]
        for resume in ("auto", "never"):
            line = runs.train("run", status=2, checkpoint__resume=resume).stderr
            assert re.fullmatch(rf"cohort train: \S+/run belongs to a run that goes on: process {rank0} on \S+ since .*takeover=true.*\n", line), line
        assert runs.checkpoints("run") and not os.path.exists(runs.path("run") + "/checkpoints.old")
        for pid in workers(job.pid).values():
            os.kill(pid, signal.SIGSTOP)
        step = int(runs.checkpoints("run")[-1][-8:])
        runs.train("run", epochs=0, steps=step + 20, checkpoint__every_steps=5, checkpoint__keep=2, checkpoint__takeover="true")
        ours, written = files(), everything()
        for pid in workers(job.pid).values():
            os.kill(pid, signal.SIGCONT)
        assert job.wait(LIMIT) == 2, "it can never save: it ends by itself"
        assert runs.log("run").count("/run was taken over by job ") == 1, runs.log("run")
        assert files() == ours, (files(), ours)
        assert everything() == written, "it wrote into the folder of the other"
    finally:
        for pid in workers(job.pid).values():
            os.kill(pid, signal.SIGCONT)
        job.kill()
        job.wait(LIMIT)
    killed = runs.start("killed", epochs=0, steps=1000000, checkpoint__every_steps=5)
    wait_until("a checkpoint", lambda: runs.checkpoints("killed"))
    os.kill(workers(killed.pid)[0], signal.SIGKILL)
    killed.wait(LIMIT)
    step = int(runs.checkpoints("killed")[-1][-8:])
    again = runs.train("killed", epochs=0, steps=step + 5)
    assert "it is taken over" in again.stderr and not os.path.exists(runs.path("killed") + "/.owner"), again.stderr


with tempfile.TemporaryDirectory(prefix="cohort-train-") as scratch:
    claims = [same_bits, encrypted, stages, resume_sgd, resume_adam, notice, early_notice, buddies, other_ranks, corrupt, full_disk, file_limit, equal_ranks, evaluation, settings, misfits, other_data,
              mesh, questions, precision, precision_stages, resume_scale, resume_scale_stages, recomputed, flipped, slow, owner, bad_row, bad_picture, diverges, drifting, drifting_too, drifting_unrepeated, measured, drifting_resumed, served, served_resumed,
              coded, default_strategies, default_codecs, default_optimizers]
    {claim.__name__: claim for claim in claims}[sys.argv[2]](Runs(sys.argv[1], scratch))
