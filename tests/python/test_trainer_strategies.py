"""cohort.Trainer with strategies whose replicas drift, and with codecs: it learns, all use one model in the end, and a run goes on."""
import os

import pytest
import torch

from launch import ranks
from test_trainer import Points, consolidated, network, teardown_rank, trainer, values  # noqa: F401: launch.py calls teardown_rank

DRIFTING = ("local_sgd(h=3)", "post_local_sgd(h=3, start=4)", "diloco(h=3)", "streaming_diloco(h=4, fragments=2, delay=1, momentum=0.5)", "easgd(h=2)",
            "eamsgd(h=2, momentum=0.5)", "sma", "dpsgd(graph=ring)", "dpsgd(graph=full)", "push_sum", "pair_averaging", "pair_averaging(pull=true)",
            "choco(codec=topk(ratio=0.2), gamma=0.2)", "hierarchical_gossip(per_host=1)", "parallel_sgd")
UNREPEATED = ("ad_psgd", "local_sgd(h=3, wait=none)", "diloco(h=3, wait=none, momentum=0.5)", "easgd(h=2, async=true)")  # ranks meet when they come
CODED = tuple({"sync": sync, "codec": codec} for sync in ("all_reduce", "zero(stage=1)", "zero(stage=2)") for codec in ("int8", "topk(ratio=0.25)"))
SETTINGS = {"optimizer": "adam(lr=3e-2)", "engine": {"report_every": 1}}  # of a leave, too, where there are neither votes nor rounds
REPEATED = tuple({"sync": sync} for sync in DRIFTING) + CODED
WAYS = REPEATED + tuple({"sync": sync} for sync in UNREPEATED)


def train(model, name, way, **more):
    run = trainer(model, name, test=Points(), **SETTINGS, **way, **more)
    return run, run.run()


@ranks(2)
def test_every_way_learns_and_ends_in_the_model_that_it_was_judged_by():
    for way in WAYS:
        model = network(seed=int(os.environ["RANK"]))
        before = values(model)
        run, summary = train(model, "ways", way, epochs=6)
        assert way["sync"].partition("(")[0] in run.settings and way.get("codec", "none").partition("(")[0] in run.settings, way
        assert summary.metrics["accuracy"] > 0.75 and summary.test_loss < 0.6, (way, summary)
        assert not torch.equal(values(model), before)
        points = Points()
        accuracy = (run.predict(points.x).argmax(1) == points.y).float().mean().item()
        assert abs(accuracy - summary.metrics["accuracy"]) < 1e-6, (way, accuracy, summary.metrics)
        if run.rank == 0:
            stored = consolidated(summary.checkpoint)
            assert all(torch.equal(stored[name], value) for name, value in model.state_dict().items()), way


@ranks(2)
def test_a_run_that_stops_goes_on_with_the_same_bits():
    for number, way in enumerate(REPEATED):
        straight = network()
        train(straight, "straight", way, steps=9, epochs=0)
        first_half = network()
        first = trainer(first_half, f"stopped{number}", keep=True, steps=9, epochs=0, test=Points(), **SETTINGS, **way)

        @first.after_step
        def stop(step):
            if step.number == 5:
                first.leave("enough for now")

        summary = first.run()
        assert summary.ended_early and summary.steps < 9, (way, summary)
        again = network(seed=5)
        second = trainer(again, f"stopped{number}", keep=True, steps=9, epochs=0, test=Points(), **SETTINGS, **way)
        assert second.run().steps == 9
        assert torch.equal(values(again), values(straight)), way


@ranks(1)
def test_ways_that_do_not_go_together_are_refused():
    def refused(why, **settings):
        with pytest.raises(ValueError, match=why):
            trainer(network(), "refused", **settings)
    refused("it is for gradients, and this strategy sends models", sync="local_sgd(h=4)", codec="int8")
    refused("zip", codec="zip")
    refused("zip", sync="zip")
    refused("ratio", codec="topk(ratio=3)")
