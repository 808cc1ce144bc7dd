"""cohort.run(function, ...): call a function on several ranks from Python, and get back what each of them returned.

    results = cohort.run(train, args=(3,), num_proc=4)          # [rank 0's result, rank 1's, ...]

The function and the results are pickled (cohort.pickling) and lie in memory without a name, which only processes of the same user can open
through this process's /proc entry. They are on no disk, and gone with this process. Ranks are started by `cohort run`.
"""
import os
import subprocess
import sys
import types
from collections.abc import Callable
from multiprocessing import spawn
from pathlib import Path
from typing import Optional

from cohort import _program, pickling


def _reachable_here(environment):
    """Ranks find this package where this process has it."""
    parts = [str(Path(__file__).parent.parent)] + [p for p in environment.get("PYTHONPATH", "").split(os.pathsep) if p]
    return dict(environment, PYTHONPATH=os.pathsep.join(dict.fromkeys(parts)))


class _Memory:
    """Bytes that another process of this user can open by path for as long as this one lives."""

    def __init__(self, name, data=b""):
        self._fd = os.memfd_create(f"cohort-{name}")
        self.path = f"/proc/{os.getpid()}/fd/{self._fd}"
        if data:
            with open(self.path, "wb") as file:
                file.write(data)

    def read(self):
        with open(self.path, "rb") as file:
            return file.read()

    def close(self):
        os.close(self._fd)


_REFUSED = dict(
    min_np="jobs whose number of ranks changes", max_np="jobs whose number of ranks changes", slots="jobs whose number of ranks changes",
    reset_limit="jobs whose number of ranks changes", elastic_timeout="jobs whose number of ranks changes",
    min_num_proc="jobs whose number of ranks changes", max_num_proc="jobs whose number of ranks changes",
    cooldown_range="jobs whose number of ranks changes", ssh_port="several hosts", ssh_identity_file="several hosts",
    network_interface="several hosts", network_interfaces="several hosts", use_mpi="Open MPI", mpi_args="Open MPI")


def _ranks_asked_for(num_proc, np, hosts, hostfile):
    from cohort import horovodrun
    slots = horovodrun.slots_on_this_host(hosts, hostfile)
    asked = num_proc if num_proc is not None else np if np is not None else slots or 1
    if asked < 1:
        raise ValueError(f"num_proc is {asked}; at least one rank is needed")
    if slots and asked > slots:
        raise ValueError(f"{asked} ranks were asked for, and the hosts have {slots} slots")
    return asked


def run(func: Callable, args: tuple = (), kwargs: Optional[dict] = None, num_proc: Optional[int] = None, hosts: Optional[str] = None,
        hostfile=None, start_timeout=None, disable_cache=None, output_filename=None, verbose=None, use_gloo=None,
        executable: Optional[str] = None, env: Optional[dict] = None, np: Optional[int] = None, **others) -> list:
    """Calls func(*args, **kwargs) on `num_proc` ranks of this host and returns the list of their results, by rank.

    func: defined at the top level of a module, or anything with cloudpickle installed. In a script, keep the call of run() under
        `if __name__ == "__main__":` (without cloudpickle the ranks import the script).
    hosts, hostfile: "localhost:4", or a file of such lines; other hosts are refused.
    start_timeout: seconds the ranks may take to connect. output_filename: a folder for rank.N/stdout and stderr. verbose: print what is started.
    executable: the Python to use. env: the ranks' environment instead of this one. disable_cache, use_gloo: understood, without effect.

    RuntimeError names the rank that failed, with its traceback. Nothing is left running.
    """
    for name, value in others.items():
        if name not in _REFUSED:
            raise TypeError(f"run() got an unexpected keyword argument '{name}'")
        if value:
            raise ValueError(f"run({name}=...) is refused: it is about {_REFUSED[name]}, and ranks are started on this host only, as many as "
                             "num_proc says, over Cohort's own transports")
    ranks = _ranks_asked_for(num_proc, np, hosts, hostfile)
    preparation = spawn.get_preparation_data("cohort.run")
    preparation.pop("authkey", None)  # of multiprocessing's own links, which are not used
    task = _Memory("function", pickling.dumps((preparation, pickling.dumps((func, tuple(args), dict(kwargs or {}))))))
    results = [_Memory(f"result-{r}") for r in range(ranks)]
    command = [_program.path(), "run", "-n", str(ranks), "--stdin", "none"]
    command += ["--start-timeout", str(start_timeout)] if start_timeout else []
    command += ["--output", str(output_filename)] if output_filename else []
    command += ["--verbose"] if verbose else []
    command += ["--", executable or sys.executable, "-m", "cohort.run_worker", task.path] + [r.path for r in results]
    try:
        done = subprocess.run(command, env=_reachable_here(os.environ if env is None else env), check=False)
        return _values([result.read() for result in results], done.returncode)
    finally:
        for memory in [task, *results]:
            memory.close()


def _values(results, status):
    """The rank that failed first is the cause: others may have failed because it was gone."""
    failed = [(data[1:9], rank, data[9:]) for rank, data in enumerate(results) if data[:1] == b"E"]
    if failed:
        _, rank, text = min(failed)
        raise RuntimeError(f"rank {rank} failed:\n{text.decode(errors='replace')}")
    missing = [str(rank) for rank, data in enumerate(results) if data[:1] != b"V"]
    if missing or status != 0:
        what = f"no result of rank {', '.join(missing)}" if missing else "all ranks had returned"
        raise RuntimeError(f"the job ended with status {status}, {what}; see its output for the reason")
    return [pickling.loads(data[1:]) for data in results]


class _Callable(types.ModuleType):
    """`cohort.run` is this module and the function both."""

    def __call__(self, *args, **kwargs):
        return run(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
