"""cohort.Trainer: a torch module and Python data on the C++ training loop, with every strategy."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile

import pytest
import torch
from torch import nn

import cohort
from launch import COHORT, ranks

SAMPLES = 37  # the last batch of an epoch is short, and one rank has none of it
QUIET = {"observe": {"tensorboard": False, "report": False}, "threads": 1}


class Points:
    """Classification of points; one is broken where asked for."""

    broken = None

    def __init__(self):
        g = torch.Generator().manual_seed(3)
        self.x = torch.randn(SAMPLES, 6, generator=g)
        self.y = (self.x.sum(1) > 0).long()

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        if index == self.broken:
            raise ValueError(f"no such point: {index}")
        return self.x[index], int(self.y[index])


def network(seed=0, dropout=0.0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(inplace=True), nn.Dropout(dropout), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 2))


def folder(name, own=False):
    """Of a run: the same on all ranks of this launch, whose parent is one launcher."""
    mine = f"-{os.getpid()}" if own else ""
    return os.path.join(tempfile.gettempdir(), f"cohort-trainer-{os.getppid()}", name + mine)


def teardown_rank():
    shutil.rmtree(os.path.dirname(folder("")), ignore_errors=True)


def trainer(model, name, own=False, data=None, keep=False, **more):
    out = folder(name, own)
    settings = {"out": out, "epochs": 2, "data": {"batch": 4}, "optimizer": "adam(lr=1e-2)", **QUIET}
    if not keep:
        settings["checkpoint"] = {"resume": "never"}
    return cohort.Trainer(model, data or Points(), settings, **more)


def alone(run):
    """run() in a world of one."""
    before = os.environ.get("COHORT_PLACE")
    os.environ["COHORT_PLACE"] = "alone"
    try:
        return run()
    finally:
        os.environ.pop("COHORT_PLACE") if before is None else os.environ.update(COHORT_PLACE=before)


def values(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


STRATEGIES = ("all_reduce(op=sum)", "zero(stage=1, op=sum)", "zero(stage=2, op=sum)", "zero(stage=3, op=sum)")


@ranks(2)
def test_two_ranks_learn_what_one_with_twice_the_batch_does_and_strategies_have_the_same_bits():
    single = network()
    alone(lambda: trainer(single, "one", own=True, **{"data.batch": 8}).run())
    learned = []
    for sync in STRATEGIES:
        model = network(seed=int(os.environ["RANK"]))  # first values are rank 0's
        summary = trainer(model, "two", sync=sync).run()
        assert summary.steps == 10 and summary.loss > 0
        learned.append(values(model))
    for sync, of in zip(STRATEGIES, learned):
        assert torch.equal(of, learned[0]), sync
    torch.testing.assert_close(learned[0], values(single), rtol=1e-4, atol=1e-6)
    assert not torch.equal(learned[0], values(network()))


@ranks(2)
def test_accumulated_batches_learn_what_whole_ones_do_and_bf16_computes_in_16_bits():
    at_loss, inside = set(), set()

    def loss(outputs, labels):
        at_loss.add(outputs.dtype)
        return nn.functional.cross_entropy(outputs, labels, reduction="none")

    for sync in STRATEGIES:
        whole, parts, half = network(), network(), network()
        expected = trainer(whole, "whole", loss=loss, sync=sync).run()
        trainer(parts, "parts", loss=loss, sync=sync, **{"data.batch": 2, "data.accumulate": 2}).run()
        torch.testing.assert_close(values(parts), values(whole), rtol=1e-4, atol=1e-6)
        assert at_loss == {torch.float32} and not torch.equal(values(whole), values(network())), sync
        half[0].register_forward_hook(lambda module, inputs, output: inside.add(output.dtype))
        found = trainer(half, "half", loss=loss, sync=sync, precision="bf16", **{"data.batch": 2, "data.accumulate": 2}).run()
        assert torch.bfloat16 in inside and at_loss == {torch.float32} and values(half).dtype == torch.float32, (inside, at_loss)
        assert found.steps == expected.steps and abs(found.loss - expected.loss) < 0.05, (sync, found.loss, expected.loss)
        assert not torch.equal(values(half), values(parts)), sync


@ranks(2)
def test_afterwards_every_rank_has_whole_parameters_of_its_own_and_the_checkpoint_their_names():
    for sync in ("all_reduce(op=sum)", "zero(stage=3, op=sum)"):
        model = network()
        model.register_buffer("seen", torch.zeros(3))
        model.register_buffer("scratch", torch.ones(1), persistent=False)
        t = trainer(model, "whole", sync=sync, test=Points())
        summary = t.run()
        assert (t.rank, t.size) == (int(os.environ["RANK"]), 2)
        assert all(p.grad is None and p.untyped_storage().nbytes() == 4 * p.numel() for p in model.parameters())
        assert t.predict(torch.randn(3, 6)).shape == (3, 2) and model.training and t.model is model
        assert summary.metrics["accuracy"] > 0.5 and summary.test_loss < 1
        if t.rank == 0:
            assert summary.saved and pathlib.Path(summary.checkpoint).parent.parent == pathlib.Path(summary.folder)
            stored = consolidated(summary.checkpoint)
            assert stored.keys() == model.state_dict().keys() and all(torch.equal(stored[n], v) for n, v in model.state_dict().items())
        sum(p.sum() for p in model.parameters()).backward()  # an ordinary module again


def consolidated(checkpoint):
    """The tensors of `cohort reshard --consolidate`."""
    with tempfile.TemporaryDirectory() as scratch:
        file = pathlib.Path(scratch, "whole.safetensors")
        subprocess.run([COHORT, "reshard", checkpoint, file, "--consolidate"], check=True, capture_output=True)
        data = file.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    tensors = json.loads(data[8:start])
    tensors.pop("__metadata__", None)
    place = {name: slice(*(start + offset for offset in t["data_offsets"])) for name, t in tensors.items()}
    return {name: torch.frombuffer(bytearray(data[place[name]]), dtype=torch.float32).view(t["shape"]) for name, t in tensors.items()}


@ranks(2)
def test_a_run_that_stops_goes_on_with_the_same_bits():
    straight = network(dropout=0.2)
    trainer(straight, "straight", steps=9, epochs=0, recompute="every(2)", sync="zero(stage=3, op=sum)").run()
    model = network(dropout=0.2)
    first = trainer(model, "stopped", keep=True, steps=9, epochs=0)

    @first.after_step
    def stop(step):
        if step.number == 4 and first.rank == 1:
            first.leave("enough for now")

    summary = first.run()
    assert summary.ended_early and 4 <= summary.steps <= 5
    again = network(seed=5, dropout=0.2)  # its own first values do not count
    second = trainer(again, "stopped", keep=True, steps=9, epochs=0)
    seen = []
    second.after_step(lambda step: seen.append(step.number))
    assert second.run().steps == 9 and seen[-1] == 9 and len(seen) == 9 - summary.steps
    assert torch.equal(values(again), values(straight))
    assert not torch.equal(values(model), values(again))


@ranks(2)
def test_an_exception_of_a_data_set_is_raised_where_it_happened_and_named_elsewhere():
    me = int(os.environ["RANK"])
    for threads in (0, 2):
        data = Points()
        run = trainer(network(), "broken", data=data, **{"data.sampler": "in_order", "data.batch": 3, "data.threads": threads})
        run.after_step(lambda _: setattr(data, "broken", 11))  # in the second epoch: rank 1 takes it
        with pytest.raises(ValueError if me == 1 else RuntimeError) as caught:
            run.run()
        if me == 1:
            assert str(caught.value) == "no such point: 11" and "sample 11: item 11 of the training set" in caught.value.__notes__[0]
        else:
            text = "rank 1 ended the run: epoch [01], step 1: sample 11: item 11 of the training set: ValueError: no such point: 11 .test_tr"
            assert re.match(text, str(caught.value)), caught.value


class Two(nn.Module):
    def forward(self, x):
        return x, x


class Backward(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        raise OSError("backward is broken")


class Broken(nn.Linear):
    def forward(self, x):
        return Backward.apply(super().forward(x))


@ranks(2)
def test_exceptions_of_forward_backward_loss_metric_and_callback_come_out_as_they_are():
    def fails(*_):
        raise LookupError("mine is broken")

    for model, error, text, more in (
        (nn.Sequential(nn.Linear(6, 2), Two()), TypeError, "forward of block '0' returned tuple", {}),
        (nn.Sequential(nn.Linear(5, 2)), RuntimeError, "shapes cannot be multiplied", {}),
        (nn.Sequential(nn.Linear(6, 2), nn.Flatten(0)), ValueError, "model 'Sequential' gives [2] for one sample", {}),
        (network(), ValueError, "Target 7 is out of bounds", {"data": [(torch.ones(6), 7)] * 9}),
        (Broken(6, 2), OSError, "backward is broken", {}),
        (network(), LookupError, "mine is broken", {"loss": fails}),
        (network(), LookupError, "mine is broken", {"metrics": {"mine": fails}, "test": Points(), "loss": nn.functional.cross_entropy}),
    ):
        with pytest.raises(Exception) as caught:
            trainer(model, "fails", **more).run()
        if "rank 0, which reports the cause" not in str(caught.value) or os.environ["RANK"] == "0":
            assert text in str(caught.value), caught.value
            assert isinstance(caught.value, error) or "ended the run" in str(caught.value), caught.value
    run = trainer(network(), "callback")
    run.after_step(fails)
    with pytest.raises((LookupError, RuntimeError), match="mine is broken"):
        run.run()


@ranks(2)
def test_a_loss_and_metrics_of_ones_own_average_over_the_samples_of_all_ranks():
    data = [(torch.full((2,), float(i)), torch.tensor([float(2 * i), 1.0])) for i in range(7)]

    class Mean(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.tensor([1.0, 0.0]))

        def forward(self, x):
            return x * self.scale

    def absolute(outputs, labels):  # one number for each sample
        return (outputs - labels).abs().sum(1)

    def worst(outputs, labels):
        assert not torch.is_grad_enabled()
        return (outputs - labels).abs().mean().item()

    model = Mean()
    summary = trainer(model, "loss", data=data, test=data, loss=absolute, metrics={"worst": worst, "each": absolute}, epochs=0, steps=1,
                      optimizer="sgd(lr=0.0)", optim={"schedule": "constant"}).run()
    expected = sum(i + 1 for i in range(7)) / 7
    assert summary.test_loss == pytest.approx(expected) and summary.metrics["each"] == pytest.approx(expected)
    assert summary.metrics["worst"] == pytest.approx(expected / 2)


class Ids(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(70_000, 4)
        self.out = nn.Linear(4, 5)

    def forward(self, x):
        assert x.dtype == torch.int64
        return self.out(self.table(x))


class Picture(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Conv2d(3, 3, 1)

    def forward(self, x):
        assert x.dtype == torch.float32 and 0 <= x.min() and x.max() <= 1
        return self.out(x).mean((2, 3))


@ranks(2)
def test_samples_may_be_ids_pictures_or_floats_and_labels_classes_ids_or_floats():
    import numpy as np
    ids = [(torch.tensor([i, 69_000 + i, 3]), torch.tensor([i % 5, 4, -100])) for i in range(9)]
    assert trainer(Ids(), "ids", data=ids, test=ids).run().metrics.keys() == {"accuracy"}
    pictures = [(np.full((3, 4, 4), 25 * i, dtype=np.uint8), np.int64(i % 3)) for i in range(9)]
    trainer(Picture(), "pictures", data=pictures, **{"data.transforms": "flip"}).run()
    numbers = [(np.array([i, 1.0]), i / 10) for i in range(9)]  # float64, and a Python float
    summary = trainer(nn.Linear(2, 1), "numbers", data=numbers, test=numbers, epochs=20, optimizer="adam(lr=0.1)").run()
    assert summary.metrics["rmse"] < 0.3


@ranks(2)
def test_blocks_of_a_model_that_is_no_sequential_and_tied_weights():
    class Language(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(8, 4)
            self.layers = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(2))
            self.head = nn.Linear(4, 8, bias=False)
            self.head.weight = self.table.weight

        def forward(self, x):
            x = self.table(x)
            for layer in self.layers:
                x = layer(x)
            return self.head(x)

    data = [(torch.arange(i, i + 3) % 8, torch.arange(i + 1, i + 4) % 8) for i in range(12)]
    learned = []
    for sync, blocks in (("all_reduce(op=sum)", None), ("zero(stage=3, op=sum)", ["table", "layers", "head"])):
        torch.manual_seed(1)
        model = Language()
        trainer(model, "blocks", data=data, sync=sync, blocks=blocks).run()
        assert model.head.weight is model.table.weight
        learned.append(values(model))
    assert torch.equal(*learned)
    with pytest.raises(ValueError, match="parameter head.*|parameter layers.0.0.weight is in none of table"):
        trainer(Language(), "blocks", data=data, blocks=["table"])
    with pytest.raises(ValueError, match="no child module 'tabel'; it has table, layers"):
        trainer(Language(), "blocks", data=data, blocks=["tabel"])


@ranks(2)
def test_it_uses_the_ranks_of_hvd_init_where_there_are_some():
    import cohort.torch as hvd
    hvd.init()
    try:
        model = network()
        t = trainer(model, "hvd")
        t.run()
        assert (t.rank, t.size) == (hvd.rank(), hvd.size())
        assert hvd.allreduce(values(model)[:3], op=hvd.Average).tolist() == values(model)[:3].tolist()
    finally:
        hvd.shutdown()


def test_settings_are_refused_with_the_nearest_name_and_kept_as_said(tmp_path, monkeypatch):
    data = Points()
    for settings, text in (({"optimiser": "sgd"}, "optimizer"), ({"data": {"bacth": 8}}, "data.batch"), ({"epochs": "many"}, "epochs"),
                           ({"model": "cnn"}, "not for cohort.Trainer"), ({"sync": "zero(stage=4)"}, "stage"),
                           ({"sync_batch_norm": True}, "cohort.torch.SyncBatchNorm")):
        with pytest.raises(ValueError, match=text):
            cohort.Trainer(network(), data, settings)
    with pytest.raises(TypeError, match="setting data is a set"):
        cohort.Trainer(network(), data, data={1})
    with pytest.raises(TypeError, match="train is a generator without __len__ and __getitem__"):
        cohort.Trainer(network(), (x for x in data))
    with pytest.raises(TypeError, match="model is a type, not a torch.nn.Module"):
        cohort.Trainer(nn.Linear, data)
    file = tmp_path / "run.yaml"
    file.write_text("model: Sequential\nepochs: 3\ndata:\n  train: own\n  batch: 16\n")  # as a run's config.yaml
    monkeypatch.setenv("COHORT_TRAIN_SEED", "9")
    text = cohort.Trainer(network(), data, file, **{"data.batch": 32}, optim={"frozen": ["0.*", "2.*"]}, seed=4).settings
    assert "epochs: 3" in text and "batch: 32" in text and "seed: 9" in text and "0.*" in text and "2.*" in text


def test_a_sequential_has_a_block_for_each_child_with_parameters():
    from cohort.trainer import _blocks
    names = lambda model: [(name, len(modules)) for name, modules, _ in _blocks(model, None)]
    assert names(network()) == [("0", 3), ("3", 2), ("5", 1)]
    assert names(nn.Sequential(nn.Flatten(), nn.Linear(2, 2))) == [("0", 2)]
    shared = nn.Linear(2, 2)
    assert names(nn.Sequential(shared, nn.ReLU(), shared)) == [("model", 1)]
    hooked = network()
    hooked.register_forward_hook(lambda *_: None)
    assert names(hooked) == [("model", 1)]


def test_a_notice_to_leave_ends_the_run_unless_the_program_handles_it(tmp_path):
    def run(name):
        t = cohort.Trainer(network(), Points(), {"out": str(tmp_path / name), "epochs": 3, "data.batch": 8, **QUIET})
        t.after_step(lambda step: step.number == 3 and os.kill(os.getpid(), signal.SIGUSR1))
        return t.run()

    assert run("left").ended_early and signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL
    heard = []
    signal.signal(signal.SIGUSR1, lambda *_: heard.append(True))
    try:
        assert not run("kept").ended_early and heard == [True]
    finally:
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)


def test_a_trainer_runs_once_and_may_run_beside_other_threads(tmp_path):
    import threading
    made = cohort.Trainer(network(), Points(), {"out": str(tmp_path / "run"), "epochs": 1, "data.batch": 8, **QUIET})
    results = []
    thread = threading.Thread(target=lambda: results.append(made.run()))
    thread.start()
    thread.join(60)
    assert results[0].steps == 5 and made.size == 1
    with pytest.raises(RuntimeError, match="this run is over"):
        made.run()
