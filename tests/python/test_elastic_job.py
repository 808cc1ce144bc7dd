"""Elastic jobs of Python workers: lost ones are replaced, others leave and come, and every commit counts on all ranks or on none."""
import os
import random
import re
import signal
import sys
import time

import pytest

import launch
from elastic_job import Job

HOROVODRUN = (sys.executable, "-m", "cohort.horovodrun")


def test_workers_are_killed_and_replaced_leave_and_come(tmp_path):
    with Job(tmp_path, ["-n", 3, "--min-n", 2, "--max-n", 4]) as job:
        job.await_commit_of(3)
        killed = job.signal(signal.SIGKILL, rank=0)  # whose state the others have had so far
        job.await_workers(3, {killed})
        number = job.await_commit_of(3)
        left = job.signal(signal.SIGUSR1, rank=1)
        number = job.await_commit_of(2, after=number)
        job.wait_until("it says that it leaves", lambda: f"worker (process {left}) leaves the job: it was asked to" in job.log())
        job.process.send_signal(signal.SIGUSR2)  # the launcher starts one more
        job.await_commit_of(3, after=number)
        job.stop()
        ends = job.ends()
    assert len(ends) == 3
    assert "SIGKILL" in job.log() and "Traceback" not in job.log(), job.log()


def test_a_commit_counts_when_all_who_are_left_had_voted_and_not_before(tmp_path):
    with Job(tmp_path, ["-n", 4, "--min-n", 1, "--respawns", 0], "votes") as job:
        job.wait_until("the second death", (tmp_path / "dies8").exists)
        number = job.await_commit_of(1)
        job.stop()
        ends = job.ends(status=7)  # its own, after training
    for said in (r"worker \d \(rank 0\) failed after the job had been trained to its end\n", r"worker \d \(rank 0\) failed first: exit status 7 "):
        assert re.search(said, job.log()), job.log()
    assert "the job was over when the first function" in job.log()
    assert [(line["batch"], line["commits"]) for _, line in job.lines("leaves")] == [(4, 4)]  # who leaves then has its last commit
    resets = [(line["size"], line["commits"]) for _, line in job.lines("reset")]
    assert sorted(resets) == [(1, 9), (2, 4), (2, 4)]  # dropped on both who were left; counted on the one who was left
    assert len(ends) == 1 and number > 9


@pytest.mark.long
@pytest.mark.parametrize("options", ([], ["--tls"], ["--supervised"]), ids=lambda o: o[0][2:] if o else "plain")
def test_workers_that_are_killed_at_any_moment_lose_no_commit(tmp_path, options):
    dice, gone = random.Random(11), set()
    with Job(tmp_path, ["-n", 3, "--min-n", 1, "--max-n", 3, *options], samples=30) as job:
        for _ in range(5):
            workers = job.await_workers(3, gone)
            time.sleep(dice.uniform(0, 0.05))
            for pid in dice.sample(workers, dice.choice((1, 1, 2))):
                gone.add(pid)
                os.kill(pid, signal.SIGKILL)
                time.sleep(dice.uniform(0, 0.02))
        job.await_workers(3, gone)
        job.stop()
        assert len(job.ends()) == 3


@pytest.mark.long
def test_hosts_change_as_a_discovery_script_says(tmp_path):
    shell, hosts = tmp_path / "shell", tmp_path / "hosts"
    shell.write_text('#!/bin/sh\nshift\nexec sh -c "$*"\n')  # every host is this one
    shell.chmod(0o755)

    def now(text):
        (tmp_path / "new").write_text(text)
        os.rename(tmp_path / "new", hosts)

    now("h1:1\nh2:1\n")
    options = ["-np", 2, "--min-np", 1, "--max-np", 3, "--elastic-timeout", 60, "--host-discovery-script", f"cat {hosts}"]
    with Job(tmp_path, options, "loader", launcher=HOROVODRUN, env={"COHORT_SSH": str(shell)}) as job:
        number = job.await_commit_of(2)
        now("h1:1\nh2:1\nh3:1\n")
        number = job.await_commit_of(3, after=number)
        now("h2:1\nh3:1\n")
        job.await_commit_of(2, after=number)
        job.stop()
        assert len(job.ends()) == 2
    assert "Traceback" not in job.log(), job.log()  # a process that left had its loader until then


@pytest.mark.long
def test_too_many_changes_end_the_job(tmp_path):
    options = ["-np", 2, "--min-np", 1, "--max-np", 2, "--reset-limit", 0]
    with Job(tmp_path, options, launcher=HOROVODRUN) as job:
        job.await_commit_of(2)
        job.signal(signal.SIGKILL, rank=1)
        assert job.process.wait(60 * launch.SLOWDOWN) != 0
    assert "its ranks have changed 1 times, and --reset-limit allows 0" in job.log()


PLAIN = """
import os, signal, sys, pytest, torch, cohort.torch as hvd
assert 'HOROVOD_RANK' not in os.environ and os.environ['HOROVOD_ELASTIC'] == '1'
with pytest.raises(ValueError, match='those of an elastic job change'):
    hvd.init(comm=[0])
hvd.init()
for step in range(20):
    if sys.argv[1] == 'lose' and step == 10 and hvd.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    hvd.allreduce(torch.ones(3))
print('came to its end', hvd.rank(), hvd.size())
sys.exit(3 if sys.argv[1] == 'fail' else 0)
"""


@pytest.mark.parametrize("what", ("lose", *(pytest.param(what, marks=pytest.mark.long) for what in ("end", "fail"))))
def test_a_program_without_elastic_run(what):
    options = ["--min-n", "1", "--respawns", "0", "--lost-after", f"{2 * launch.SLOWDOWN}s", "--start-timeout", f"{30 * launch.SLOWDOWN}s"]
    done = launch.launch(2, PLAIN, what, options=options, timeout=180)
    if what != "lose":
        assert done.returncode == (3 if what == "fail" else 0) and done.stdout.count("came to its end") == 2, launch.ending(done)
        assert "epoch 2" not in done.stderr, done.stderr
    else:
        assert done.returncode != 0 and "goes on with other ranks in a function with @hvd.elastic.run" in done.stderr, launch.ending(done)


def test_between_two_epochs_nothing_is_committed(monkeypatch):
    from cohort import _core, elastic
    state = elastic.ObjectState(lambda value: value, lambda: 0, step=1)
    state.step = 2
    monkeypatch.setattr(_core, "between_epochs", lambda: True)
    for call in (state.commit, state.check_host_updates):
        with pytest.raises(elastic.HorovodInternalError, match="between two epochs"):
            call()
    state.restore()
    assert state.step == 1


def test_a_rank_lost_while_they_connect_makes_them_connect_again_with_all_their_sets(monkeypatch):
    from cohort import elastic, membership
    from cohort.torch import process_sets
    left, sizes, registered = [], iter((2, 3)), []
    small, large = process_sets.ProcessSet([0, 1]), process_sets.ProcessSet([0, 2])

    def add_set(ranks):
        registered.append(ranks)
        if len(registered) == 1:
            raise elastic.HorovodInternalError("rank 2 is lost")
        return len(registered)

    def reset():
        kept, size = process_sets._kept(), next(sizes)
        process_sets._forget()
        monkeypatch.setattr(process_sets._core, "size", lambda: size)
        process_sets._add_again(kept)

    monkeypatch.setattr(process_sets, "_dynamic", True)
    monkeypatch.setattr(process_sets, "_added", [large, small])
    monkeypatch.setattr(process_sets._core, "rank", lambda: 0)
    monkeypatch.setattr(process_sets._core, "add_set", add_set)
    monkeypatch.setattr(membership, "elastic", lambda: True)
    monkeypatch.setattr(membership, "leave_epoch", lambda: left.append(True))
    with pytest.warns(UserWarning, match="a rank above the 2 there are"):
        elastic._reconnect(reset)
    assert left == [True] and registered == [[0, 1], [0, 2], [0, 1]]
    process_sets._forget()


def test_torch_distributed_is_refused(monkeypatch):
    from cohort import distributed
    monkeypatch.setenv("COHORT_ELASTIC", "1s")
    with pytest.raises(RuntimeError, match="elastic job change.*without --min-n"):
        distributed._create(None)
