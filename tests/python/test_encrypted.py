"""Ranks in Python under TLS (`--tls`): both ways to start, one rank with another setting, and the error of a refused rank."""
from launch import launch

SUMS = """
import torch, torch.distributed as dist, cohort, cohort.torch as hvd
hvd.init()
a = hvd.allreduce(torch.arange(70000.) + hvd.rank(), op=hvd.Sum)
dist.init_process_group("cohort")
b = torch.arange(70000.) + dist.get_rank()
dist.all_reduce(b)
assert torch.equal(a, b) and torch.equal(b, 2 * torch.arange(70000.) + 1), (a, b)
dist.destroy_process_group()
print("the same sums", flush=True)
"""


def launch_encrypted(script):
    return launch(2, script, env={"COHORT_TRANSPORT": "tcp"}, options=["--tls"])


def test_sums_are_those_without():
    done = launch_encrypted(SUMS)
    assert done.returncode == 0 and done.stdout == "the same sums\n" * 2, done.stdout + done.stderr


def test_a_rank_in_the_clear_is_refused():
    done = launch_encrypted("import os\nif os.environ['RANK'] == '1': os.environ['COHORT_TLS'] = 'false'\n" + SUMS)
    assert done.returncode != 0 and "the same sums" not in done.stdout, done.stdout + done.stderr
    assert "speaks TLS and this process does not: give --tls" in done.stderr, done.stderr
