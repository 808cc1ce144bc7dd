"""Elastic jobs whose replicas drift."""
import random

from jobs import FOR_EVER, Job
from membership_changes import lose_one_of_three


def drifting(programs, scratch):
    """kill -9 with strategies whose replicas drift: the survivors go on from their mean, a replacement joins, no step is taken twice, and the job
    goes on learning."""
    rng = random.Random(11)
    for i, sync in enumerate(("local_sgd(h=5)", "diloco(h=5)", "dpsgd(graph=ring)", "ad_psgd", "local_sgd(h=5, wait=none)")):
        with Job(programs, scratch, f"run{i}", n=3, least=2, steps=FOR_EVER, optimizer="adam(lr=1e-3)", sync=sync) as job:
            lose_one_of_three(job, rng, sync)
            job.await_size(3)
            job.await_step(job.step() + 20)
            job.stops()
            assert job.said(r"continue after step \d+"), job.log()
            job.judge()
            losses = [loss for _, loss in job.runs.losses(job.name)]
            assert losses[-1] < losses[0], f"{sync} does not learn: {losses}"
