"""Claims about what is learned with words alone, nothing tuned: for check.py. The default MLP on Fashion-MNIST, two ranks of 64 samples,
little more than an epoch; rounds of diloco (100 steps) and the start of post_local_sgd (500) are within it."""
STEPS = 600
BOUND = 0.5  # of the test loss; it begins at 2.3, and all_reduce comes to 0.38 after an epoch


def learn(runs, setting, words):
    for word in words:
        name = f"{setting}-{word}"
        sets = ("epochs=0", f"steps={STEPS}", "observe.tensorboard=false", "observe.report=false", f"{setting}={word}")
        runs.call([runs.cohort, "train", "-n", "2", "-o", runs.path(name), *(part for one in sets for part in ("--set", one))])
        tested = [m["test_loss"] for m in runs.metrics(name) if "test_loss" in m]
        assert tested and tested[-1] < BOUND, f"{setting}={word}: test loss {tested}, not below {BOUND}"
        runs.call(["rm", "-rf", runs.path(name)])


def default_strategies(runs):
    """Every strategy whose replicas drift learns with its defaults."""
    learn(runs, "sync", ("local_sgd", "post_local_sgd", "diloco", "easgd", "sma", "dpsgd"))


def default_codecs(runs):
    """So do codecs with error feedback."""
    learn(runs, "codec", ("int8", "topk"))


def default_optimizers(runs):
    """So do optimizers, at their own default rates."""
    learn(runs, "optimizer", ("lars", "lamb", "adafactor", "muon"))
