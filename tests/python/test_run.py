"""cohort.run(function): what each rank returned comes back by rank; errors are raised."""
import os
import subprocess
import sys

import pytest
import torch

import cohort
from cohort.run import run
from launch import environment, stretched


def place(factor, offset=0):
    import cohort.torch as hvd
    hvd.init()
    total = hvd.allreduce(torch.ones(2), op=hvd.Sum)
    return hvd.rank() * factor + offset, hvd.size(), total


def fails_on(rank):
    import cohort.torch as hvd
    hvd.init()
    if hvd.rank() == rank:
        raise KeyError("a reason")
    return hvd.rank()


def leaves(status):
    os._exit(status)


def big():
    return bytes(3_000_000)


@pytest.mark.parametrize("count", (1, 2, pytest.param(3, marks=pytest.mark.long)))
def test_results_come_back_by_rank(count):
    results = run(place, args=(10,), kwargs={"offset": 1}, num_proc=count)
    assert [r[:2] for r in results] == [(10 * rank + 1, count) for rank in range(count)]
    assert all(r[2].tolist() == [count] * 2 for r in results)


def test_one_rank_is_the_default_and_results_may_be_big():
    assert run(big) == [bytes(3_000_000)]


def test_the_module_can_be_called():
    import cohort.run
    assert cohort.run(big, hosts="localhost:1") == [bytes(3_000_000)]


def test_the_rank_that_failed_is_named_with_its_traceback(capfd):
    with pytest.raises(RuntimeError, match=r"rank 1 failed:(?s:.*)KeyError: 'a reason'"):
        run(fails_on, args=(1,), num_proc=2)


def test_a_rank_that_vanishes_is_reported_by_the_status(capfd):
    with pytest.raises(RuntimeError, match="status 3, no result of rank 0"):
        run(leaves, args=(3,))


def test_output_can_go_to_files(tmp_path, capfd):
    run(print, args=("hello",), num_proc=2, output_filename=tmp_path / "logs")
    assert (tmp_path / "logs" / "rank.1" / "stdout").read_text() == "hello\n"


def test_hosts_and_slots(tmp_path):
    hosts = tmp_path / "hosts"
    hosts.write_text("localhost slots=2  # here\n\n")
    assert len(run(big, hostfile=hosts)) == 2
    with pytest.raises(ValueError, match="2 slots"):
        run(big, num_proc=3, hostfile=hosts)
    with pytest.raises(ValueError, match="another host"):
        run(big, hosts="elsewhere:2")


def test_what_needs_other_launchers_is_refused():
    for option in ("min_np", "max_np", "use_mpi", "ssh_port", "network_interfaces", "reset_limit"):
        with pytest.raises(ValueError, match="refused"):
            run(big, **{option: 2})
        with pytest.raises(TypeError, match="unexpected"):
            run(big, nonsense=1)
    with pytest.raises(ValueError, match="at least one"):
        run(big, num_proc=0)


def test_functions_that_cannot_be_pickled_raise_with_the_next_step():
    if "cloudpickle" in sys.modules:
        assert run(lambda: 5) == [5]
    else:
        with pytest.raises(TypeError, match="top level of a module"):
            run(lambda: 5)


SCRIPT = """
import horovod

def mine(x):
    import horovod.torch as hvd
    hvd.init()
    return hvd.rank() + x

if __name__ == '__main__':
    print(horovod.run(mine, args=(5,), num_proc=2))
"""


def test_functions_of_a_script(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, str(script)], env=environment(), capture_output=True, text=True, timeout=stretched(60))
    assert done.stdout == "[5, 6]\n", done.stderr
