"""Claims about 16 bits and the loss scale: for check.py."""
import re

from runs import consolidated


def scale_story(runs, name):
    return [(line["step"], line["scale"], line["skipped"]) for line in runs.metrics(name) if "scale" in line]


def precision(runs):
    """bf16 and fp16 learn what fp32 learns; a loss scale that is too large leaves steps out on all ranks, counts and shows them."""
    sets = {"epochs": 0, "steps": 24, "optim__schedule": "constant"}
    runs.train("fp32", **sets)
    for way in ({"precision": "bf16"}, {"precision": "fp16"}, {"engine__comm_dtype": "bf16", "engine__comm_sum_dtype": "fp32"}, {"engine__comm_dtype": "fp16"}):
        name = "-".join(way.values())
        done = runs.train(name, **way, **sets)
        losses, plain = runs.losses(name), runs.losses("fp32")
        assert losses[-1][1] < losses[0][1] / 2, f"{way}: nothing was learned: {losses}"
        assert losses != plain, f"{way} changed nothing"
        assert all(abs(a - b) < 0.05 for (_, a), (_, b) in zip(losses, plain, strict=True)), f"{way}: {losses}\n{plain}"
        scaled = "fp16" in way.values()
        assert bool(re.search(r"steps left out +0\nloss scale +65536\n", done.stdout)) == scaled, done.stdout
    far = {"precision": "fp16", "loss_scale": "torch(init=1e9, window=5)", **sets}
    done = runs.train("two", **far)
    runs.train("again", **far)
    story = scale_story(runs, "two")
    left_out = story[-1][2]
    assert left_out > 3 and story[0][1] == 1e9 and story[0][2] == 1 and story[1][1] == 5e8, story
    assert scale_story(runs, "again") == story and runs.tensors("again") == runs.tensors("two"), "the run repeated left out other steps"
    assert re.search(rf"updates +{24 - left_out}\nsteps left out +{left_out}\n", done.stdout), done.stdout
    rows = [int(count) for count in re.findall(r" after (\d+) steps in a row were left out", done.stdout)]  # one alone has no such line
    alone = done.stdout.count("the step was left out on all of them") - len(rows)
    assert sum(rows) + alone == left_out and "at loss scale 1000000000" in done.stdout, done.stdout


def resume_scale(runs):
    """A run that goes on from a checkpoint has the loss scales, the count of steps left out and the bits of one that never stopped."""
    for rule in ("torch(init=1e9, window=5)", "deepspeed(init=1e8, window=4)"):
        name = rule.split("(")[0]
        sets = {"precision": "fp16", "loss_scale": rule, "epochs": 0, "optim__schedule": "constant", "optimizer": "adam(lr=1e-3)"}
        runs.train(name + "-whole", steps=22, **sets)
        runs.train(name, steps=9, **sets)
        again = runs.train(name, steps=22, **sets)
        assert "goes on after update 9\n" in again.stdout, again.stdout
        assert scale_story(runs, name) == scale_story(runs, name + "-whole"), rule
        assert scale_story(runs, name)[8][2] > 0, "nothing had been left out when the checkpoint was made"
        assert runs.losses(name) == runs.losses(name + "-whole") and runs.tensors(name) == runs.tensors(name + "-whole"), rule


def precision_stages(runs):
    """In 16 bits too every stage of ZeRO has the bits of all-reduce: losses, scales, steps left out by all ranks, parameters and state."""
    sets = {"epochs": 0, "steps": 14, "optim__schedule": "constant", "optimizer": "adam(lr=1e-3)", "engine__clip_norm": 1}
    for precision, scale in (("bf16", "none"), ("fp16", "torch(init=1e9, window=5)")):
        for stage in (0, 1, 2, 3):
            sync = f"zero(stage={stage}, op=sum)" if stage else "all_reduce(op=sum)"
            runs.train(f"{precision}{stage}", precision=precision, loss_scale=scale, sync=sync, engine__lanes=stage % 2, **sets)
            assert runs.losses(f"{precision}{stage}") == runs.losses(f"{precision}0"), f"{precision}: other losses in stage {stage}"
            assert scale_story(runs, f"{precision}{stage}") == scale_story(runs, f"{precision}0"), f"{precision}: other scales in stage {stage}"
            assert consolidated(runs, f"{precision}{stage}") == consolidated(runs, f"{precision}0"), f"{precision}: other bits in stage {stage}"
    story = scale_story(runs, "fp160")
    assert 3 < story[-1][2] < 14, f"steps must be left out, and others not: {story}"


def resume_scale_stages(runs):
    """A sharded run in fp16 that goes on has scales, steps left out and bits of one that never stopped, also when it goes on at another stage."""
    sets = {"precision": "fp16", "loss_scale": "deepspeed(init=1e8, window=4)", "epochs": 0, "optim__schedule": "constant", "optimizer": "adam(lr=1e-3)"}
    runs.train("whole", steps=16, **sets)
    for first, then in ((1, 1), (3, 2), (2, 3)):
        name = f"from{first}to{then}"
        runs.train(name, steps=7, sync=f"zero(stage={first}, op=sum)", **sets)
        again = runs.train(name, steps=16, sync=f"zero(stage={then}, op=sum)", **sets)
        assert "goes on after update 7\n" in again.stdout, again.stdout
        assert scale_story(runs, name) == scale_story(runs, "whole") and scale_story(runs, name)[6][2] > 0, scale_story(runs, name)
        assert runs.losses(name) == runs.losses("whole") and consolidated(runs, name) == consolidated(runs, "whole"), name
